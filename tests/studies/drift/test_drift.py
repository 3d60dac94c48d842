"""wb.drift over real processes: the right ones pass, every mutant is found, and named."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from jupyter_client.manager import start_new_kernel

import workbench as wb
from tests.live import PATIENCE, crowding
from tests.pairwise import first, named
from workbench.common.errors import RunTimeout, SpecError, WorkbenchError
from workbench.studies.drift.display import chart_bundle, still, table_bundle
from workbench.studies.drift.drift import Report
from workbench.studies.drift.subjects import uneven
from workbench.studies.drift.summary import text
from workbench.views.pages.following_output import PLOTLY

WAIT = 170  # seconds, on cores that are busy with something else
WRONG = {
    "no division": "gradients are added, and not divided",
    "mean of means": "means over parts of different size",
    "wrong seeds": "every rank begins with parameters of its own",
    "same shard": "all ranks take the same part of the minibatch, rank 0's",
    "no sync": "the gradients are not averaged: each rank trains alone",
}
RULES = {
    "sgd": {"optimizer": "sgd", "lr": 0.1},
    "momentum": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9},
    "adam": {"optimizer": "adam"},
}


@pytest.fixture(scope="module")
def report() -> Report:
    """The right one and all mutants, on 2 ranks."""
    return wb.drift(iterations=4, at=(1,)).wait(WAIT)


# ---- rounding, and bugs


@pytest.mark.full
def test_the_right_one_is_rounding_and_every_mutant_is_named(report: Report) -> None:
    assert report.ok and report.verdict == "rounding"
    for name, words in WRONG.items():
        assert report.verdicts[name].startswith(f"bug: {words}"), report.verdicts[name]


def test_rounding_shrinks_by_the_bits_that_float64_has_more(report: Report) -> None:
    shares = report.table.pivot("dtype", index=["subject", "iterations"], values="share")
    for name, updates, single, double in shares.iter_rows():
        if name == "data_parallel":
            assert 2**24 < single / double < 2**34, (updates, single, double)
            assert single < 1e-5 * updates
        else:
            assert single / double == pytest.approx(1, rel=1e-3), (name, updates)
            assert double > 1e-3


def test_replicas_tell_the_two_bugs_apart_that_train_rank_0_alike(report: Report) -> None:
    identical = dict(report.table.select("subject", "identical").iter_rows())
    assert identical == {
        "data_parallel": True,
        "no division": True,
        "mean of means": True,
        "wrong seeds": False,
        "same shard": True,
        "no sync": False,
    }
    at_end = report.table.filter(iterations=4, dtype="float64")
    ulps = dict(at_end.select("subject", "ulps_max").iter_rows())
    assert ulps["same shard"] == ulps["no sync"]


def test_the_first_update_shows_what_it_was_made_of(report: Report) -> None:
    """The gradients worked out in one process explain those of the ranks to the last digits."""
    match = report._matches
    assert (match["data_parallel"].what, match["no division"].what) == ("whole", "mean of means")
    assert match["no division"].scale == pytest.approx(2, abs=1e-12)
    assert match["same shard"].what == match["no sync"].what == "part 0"
    assert match["wrong seeds"].what == ""
    for name in ("data_parallel", "no division", "mean of means", "same shard", "no sync"):
        assert match[name].left < 1e-12, name


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranks", "rule"), first(1, [(3, "momentum"), (4, "adam")]), ids=lambda one: str(one)
)
def test_with_other_ranks_and_rules(ranks: int, rule: str) -> None:
    report = wb.drift(ranks=ranks, iterations=1, **RULES[rule]).wait(WAIT)
    assert report.ok, str(report)
    for name, words in WRONG.items():
        assert words in report.verdicts[name], report.verdicts[name]


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("rule", RULES)
def test_with_all_ranks_and_rules(ranks: int, rule: str) -> None:
    report = wb.drift(ranks=ranks, iterations=20, **RULES[rule]).wait(WAIT)
    assert report.ok, str(report)


@pytest.mark.full
def test_other_strategies_of_the_workbench_are_rounding() -> None:
    several = {"ddp": "ddp", "pipeline": "pipeline", "server": "parameter_server"}
    report = wb.drift(several, ranks=3, iterations=2, at=(2,), batch_size=12, mutants=False).wait(
        120
    )
    assert report.verdicts == dict.fromkeys(several, "rounding")
    assert report.ok


def test_one_rank_makes_no_difference() -> None:
    report = wb.drift(ranks=1, iterations=1).wait(WAIT)
    assert report.verdict == "no difference" and len(report.subjects) == 1


def test_an_uneven_minibatch_is_chosen() -> None:
    assert [uneven(ranks) for ranks in (1, 2, 3, 4, 5, 8)] == [10, 11, 10, 10, 11, 10]


# ---- a user's own


def weighed(rank, size, model, minibatches, optimizer, loss):
    for images, labels in minibatches:
        optimizer.zero_grad()
        mine = images[rank::size], labels[rank::size]
        (loss(mine) * (len(mine[1]) / len(labels))).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def listing(rank, size, model, minibatches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(images[rank::size]), labels[rank::size]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def too_slow(rank, size, model, minibatches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    for images, labels in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def compressed(rank, size, model, minibatches, optimizer, loss):
    for images, labels in minibatches:
        optimizer.zero_grad()
        loss((images[rank::size], labels[rank::size])).backward()
        for parameter in model.parameters():
            small = parameter.grad.half()
            dist.all_reduce(small)
            parameter.grad = small.to(parameter.dtype) / size
        optimizer.step()


def neighbors(rank, size, model, minibatches, optimizer, loss):
    for images, labels in minibatches:
        optimizer.zero_grad()
        half = len(labels) // size
        loss((images[:half], labels[:half])).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def stumbles(rank, size, model, minibatches):
    for _ in minibatches:
        if rank == 1:
            raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("loop", "batch_size", "verdict"),
    first(
        1,
        [
            (listing, 12, "rounding"),
            (stumbles, 12, "failed: rank 1 raised: ValueError: no such luck"),
            (listing, 11, "bug: means over parts of different size are averaged"),
            (
                too_slow,
                11,
                "another algorithm: equal to the same loop on one rank, but not to plain SGD: its "
                "first update is 0.3 times as large",
            ),
            (compressed, 12, "bug: it computes with about 3 digits, whatever the dtype"),
            (neighbors, 12, "bug: all ranks take the same part of the minibatch, block 0 of it"),
            (weighed, 11, "rounding"),
        ],
    ),
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_a_loop_as_one_writes_it_in_a_script(loop, batch_size: int, verdict: str) -> None:
    report = wb.drift(loop, iterations=1, batch_size=batch_size, mutants=False).wait(WAIT)
    assert report.subjects[0].name == loop.__name__
    assert report.verdict.startswith(verdict), str(report)
    assert report.ok == verdict.startswith(("rounding", "another algorithm"))


@pytest.mark.full
def test_a_bug_that_waits_for_the_last_minibatch_of_an_epoch_is_found_there() -> None:
    """1,437 digits are 22 minibatches of 64 and one of 29, which two ranks cannot share evenly."""
    report = wb.drift(listing, iterations=24, at=(22,), batch_size=64, mutants=False).wait(WAIT)
    finding = report.findings["listing"]
    assert finding.since == 22 and "right until iteration 23" in finding.verdict, finding
    before = report.table.filter(iterations=22, dtype="float64")["share"].item()
    after = report.table.filter(iterations=24, dtype="float64")["share"].item()
    assert before < 1e-12 < 1e-5 < after


def trains_alone(job, config):
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        optimizer.zero_grad()
        loss = job.forward(model, job.load(minibatch.ids))
        job.backward(loss)
        job.update(optimizer)
        job.report(loss, len(minibatch.ids))
    job.finish(model)


@pytest.mark.full
def test_a_strategy_defined_here_and_an_experiment() -> None:
    exp = wb.Experiment(strategy=trains_alone, ranks=2, iterations=2, batch_size=9, seed=4)
    for subject in (trains_alone, exp):
        report = wb.drift(subject, mutants=False, **({} if subject is exp else {"iterations": 1}))
        assert report.wait(WAIT).verdict in ("no difference", "rounding"), str(report)
    assert report.subjects[0].experiment == exp and report.at == (1, 2)


# ---- what cannot be, and what goes wrong


def wants_more(rank, size, model, dataset):
    pass


@pytest.mark.parametrize(
    ("subject", "fields", "words"),
    [
        (wants_more, {}, "names what it wants of rank, size, model, minibatches"),
        ("data_paralel", {}, "did you mean 'data_parallel'"),
        (None, {"dtype": "float64"}, "leave out dtype"),
        (None, {"at": (0, 3)}, "from 1 on"),
        (None, {"batches": 3}, "has no field 'batches'"),
        ({}, {}, "no subject"),
        ({"no sync": "ddp"}, {}, "a mutant's name"),
        ({"a": wb.Experiment(), "b": wb.Experiment(seed=3)}, {}, "b and a are different trainings"),
    ],
    ids=named,
)
def test_what_cannot_be_is_refused_before_anything_runs(subject, fields, words: str) -> None:
    with pytest.raises(SpecError, match=words.replace("(", r"\(")):
        wb.drift(subject, **fields)


class Broken:
    def model(self) -> torch.nn.Module:
        raise RuntimeError("no model today")


def test_without_anything_to_compare_with_waiting_says_so() -> None:
    with pytest.raises(WorkbenchError, match="nothing to compare with: no model today"):
        wb.drift(task=Broken, iterations=2).wait(WAIT)


def test_a_wait_has_an_end_and_stop_ends_it_soon() -> None:
    report = wb.drift(iterations=100_000, at=(1,))
    with pytest.raises(RunTimeout, match="runs done"):
        report.wait(0.2)
    assert not report.done
    report.stop()
    began = time.monotonic()
    report.wait(PATIENCE)
    assert report.done and report.over < len(report.plan)
    assert time.monotonic() - began < 20 * crowding()


# ---- shown


def test_the_text_says_the_verdict_the_reasons_and_a_row_a_training(report: Report) -> None:
    lines = text(report).splitlines()
    assert lines[0] == "data_parallel: rounding"
    assert any("2 ranks, 4 updates by sgd on minibatches of 11" in one for one in lines)
    for name, verdict in report.verdicts.items():
        assert [one for one in lines if one.startswith(name) and one.endswith(verdict)], name
    assert f"{report!r}" == "Report(data_parallel: rounding)"


def test_the_still_picture_is_whole_and_draws_every_training(report: Report) -> None:
    picture = ElementTree.fromstring(still(report))
    lines = picture.findall(".//{http://www.w3.org/2000/svg}polyline")
    each = len(report.subjects)
    assert len(lines) == 4 * each + each + 2  # charts, the key, two medians
    words = " ".join(picture.itertext())
    for name, verdict in report.verdicts.items():
        assert name in words and verdict[:100] in words
    assert "<img" in report._repr_html_() and "<table>" in report._repr_html_()


def test_float32_and_float64_stand_on_one_scale(report: Report) -> None:
    figure = report.figure()
    assert isinstance(figure, go.Figure)
    layout = figure.to_dict()["layout"]
    assert layout["yaxis"]["range"] == layout["yaxis3"]["range"]
    assert layout["yaxis5"]["range"] == layout["yaxis7"]["range"]
    assert layout["yaxis"]["type"] == layout["yaxis7"]["type"] == "log"
    single, double = (
        np.median([one.y for one in figure.data if one.name == "data_parallel" and one.xaxis == x])
        for x in ("x3", "x4")
    )
    assert single > 1 > 1e-3 > double
    assert report.figure("dark").layout.paper_bgcolor != figure.layout.paper_bgcolor


@pytest.mark.full
def test_pictures_before_anything_is_known() -> None:
    report = wb.drift(iterations=1, mutants=False)
    bundle = chart_bundle(report)
    ElementTree.fromstring(bundle["image/svg+xml"])
    assert "waiting" in table_bundle(report)["text/plain"] or report.over
    report.wait(WAIT)
    assert PLOTLY in chart_bundle(report)


@pytest.mark.full
def test_a_loop_from_a_notebooks_cell() -> None:
    kernel, client = start_new_kernel(kernel_name="python3")
    try:
        cells = (
            "import torch, torch.distributed as dist\nimport workbench as wb",
            "def mine(rank, size, model, minibatches, optimizer, loss):\n"
            "    for images, labels in minibatches:\n"
            "        optimizer.zero_grad()\n"
            "        loss((images[rank::size], labels[rank::size])).backward()\n"
            "        for p in model.parameters():\n"
            "            dist.all_reduce(p.grad)\n"
            "        optimizer.step()\n",
            "report = wb.drift(mine, iterations=1, mutants=False)\nreport",
            "_ = await report",
            "print(report.verdict)",
        )
        heard: list[dict] = []
        for cell in cells:
            reply = client.execute_interactive(cell, timeout=60, output_hook=heard.append)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    printed = "".join(one["content"].get("text", "") for one in heard)
    assert "bug: gradients are added, and not divided" in printed
    last = [one for one in heard if "image/svg+xml" in one["content"].get("data", {})][-1]
    assert last["msg_type"] == "update_display_data" and PLOTLY in last["content"]["data"]
