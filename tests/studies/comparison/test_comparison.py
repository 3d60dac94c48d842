"""wb.compare: several experiments and seeds; kept, found again, failed, stopped, shown."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jupyter_client.manager import start_new_kernel

import workbench as wb
from tests.live import ROOT, crowding, until
from workbench.analysis.measures import MEASURES
from workbench.common.errors import RunTimeout, SpecError, WorkbenchError
from workbench.studies.comparison.comparison import Comparison
from workbench.studies.comparison.display import chart_bundle, table_bundle
from workbench.studies.comparison.trials import CURVE, key_of, names_for
from workbench.views.pages.following_output import PLOTLY

SMALL = {"ranks": 2, "iterations": 12, "batch_size": 16}
RING = wb.Experiment(**SMALL)
NAIVE = RING.replace(all_reduce="naive", ranks=3)
LONG = RING.replace(iterations=100_000)
DIES = RING.replace(faults=wb.Kill(rank=1, at_iteration=5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def comparison(folder: Path) -> Comparison:
    """A ring, the naive way, and a server; two seeds each, kept."""
    server = wb.Experiment(
        strategy="parameter_server", **SMALL | {"ranks": 3}, options={"consistency": "asp"}
    )
    return wb.compare({"ring": RING, "naive": NAIVE, "asp": server}, seeds=2, folder=folder).wait(
        90
    )


# ---- what was found


def test_every_experiment_runs_with_every_seed(comparison: Comparison) -> None:
    assert comparison.done and comparison.names == ("ring", "naive", "asp")
    assert [(one.name, one.seed) for one in comparison.trials] == [
        (name, seed) for seed in (0, 1) for name in comparison.names
    ]
    for one in comparison.trials:
        assert one.state == "finished" and one.error is None
        assert one.experiment.seed == one.seed
    assert repr(comparison) == "Comparison(ring · naive · asp: 6 of 6 runs done)"


def test_a_curve_is_the_runs_own(comparison: Comparison) -> None:
    for one in comparison["ring"]:
        alone = wb.run(one.experiment)
        losses = alone.wait(60).losses
        curve = one.losses()
        assert curve.schema == CURVE
        assert curve["loss"].to_list() == pytest.approx(losses)
        assert curve["updates"].to_list() == curve["iteration"].to_list() == list(range(12))
        assert (curve["seconds"].diff().drop_nulls() > 0).all()
        sent = sum(alone.result.bytes_sent.values())
        assert one.summary()["bytes_all"] == sent
        assert 0.9 * sent < curve["nbytes"][-1] <= sent


def test_a_server_updates_once_a_gradient_and_moves_what_theory_says(
    comparison: Comparison,
) -> None:
    for one in comparison["asp"]:
        summary = one.summary()
        assert summary["updates"] == 2 * 12 and summary["algorithm"] == "asp"
        size = summary["bytes_busiest"] / (2 * 2 * 12)  # two ways, two workers, twelve iterations
        assert size == 4 * 61_706  # LeNet's parameters
        assert one.losses()["updates"][-1] >= 20
        assert (
            0 <= summary["waiting_share"] <= 1 and summary["staleness"] <= summary["staleness_max"]
        )


def test_tables_have_numbers(comparison: Comparison) -> None:
    runs, table = comparison.runs, comparison.table
    assert runs.height == 6 and set(MEASURES) <= set(runs.columns)
    of_naive = runs.filter(name="naive")
    row = table.filter(name="naive").to_dicts()[0]
    assert row["seeds"] == 2 and row["strategy"] == "data_parallel"
    assert row["loss_end"] == pytest.approx(of_naive["loss_end"].mean())
    assert (row["loss_end_least"], row["loss_end_most"]) == (
        of_naive["loss_end"].min(),
        of_naive["loss_end"].max(),
    )
    assert row["loss_end_least"] < row["loss_end_most"]
    assert "staleness" in table.columns and table["staleness"].null_count() == 2
    assert comparison["ring"][0].seed == 0
    with pytest.raises(KeyError, match="no 'rings'; there are ring, naive, asp"):
        comparison["rings"]


@pytest.mark.full
def test_recovery_policies_stand_side_by_side_on_one_death() -> None:
    lasts = RING.replace(ranks=3, iterations=8, faults=wb.Kill(rank=1, at_iteration=4))
    policies = {name: lasts.replace(recovery=name) for name in ("abort", "shrink", "replace")}
    comparison = wb.compare(policies).wait(120)
    runs = {row["name"]: row for row in comparison.runs.to_dicts()}
    assert comparison["abort"][0].state == "failed" and runs["abort"]["recoveries"] == 0
    for name in ("shrink", "replace"):
        one = runs[name]
        assert (one["recovery"], one["recoveries"], one["iterations"]) == (name, 1, 8)
        assert one["recovery_ms"] > 0 and 0 < one["goodput"] <= 1
        assert one["iterations_lost"] == 0
    text = table_bundle(comparison)["text/plain"]
    assert "recovery policy" in text and "goodput" in text
    assert "goodput" not in table_bundle(wb.compare([RING]).wait(90))["text/plain"]


def test_until_a_loss(comparison: Comparison) -> None:
    rows = comparison.until(2.25)
    for one, row in zip(comparison.trials, rows.to_dicts(), strict=True):
        curve = one.losses()
        at = next(i for i, loss in enumerate(curve["loss"]) if loss < 2.25)
        assert row["iterations"] == curve["iteration"][at]
        assert row["seconds"] == curve["seconds"][at]
        assert row["bytes"] == curve["nbytes"][at]
    assert comparison.until(0.0)["seconds"].null_count() == 6


# ---- kept, and found again


def test_what_is_done_is_not_run_again(comparison: Comparison, folder: Path) -> None:
    began = time.monotonic()
    other = RING.replace(lr=0.05)
    again = wb.compare({"first": RING, "changed": other}, seeds=2, folder=folder).wait(60)
    assert [(one.name, one.recalled) for one in again.trials] == [
        ("first", True),
        ("changed", False),
        ("first", True),
        ("changed", False),
    ]
    assert "2 from" in again.words
    for before, now in zip(comparison["ring"], again["first"], strict=True):
        assert now.summary() == before.summary()
        assert now.losses().equals(before.losses())
        assert now.run.figure("loss").data[0].y[-1] == before.losses()["loss"][-1]
    assert time.monotonic() - began < 60 * crowding()


def test_a_file_of_the_folder_is_a_run(comparison: Comparison, folder: Path) -> None:
    files = sorted(path.name for path in folder.glob("naive-*"))
    assert len(files) == 2 and files[0].startswith("naive-seed0-")
    saved = wb.load(folder / files[0])
    assert saved.events.filter(kind="forward").height == 3 * 12
    assert comparison["naive"][0].past.run is None, "events are let go once they are kept"


@pytest.mark.full
def test_a_damaged_file_is_run_again(tmp_path: Path) -> None:
    first = wb.compare({"one": RING}, folder=tmp_path).wait(60)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    again = wb.compare({"one": RING}, folder=tmp_path).wait(60)
    assert not again.trials[0].recalled and again.trials[0].state == "finished"
    assert again.trials[0].losses()["loss"].equals(first.trials[0].losses()["loss"])
    assert wb.compare({"one": RING}, folder=tmp_path).trials[0].recalled


def test_code_that_is_named_by_its_path_counts_by_its_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def train(job):\n    pass\n")
    exp = wb.Experiment(strategy=f"{file}:train")
    before = key_of(exp)
    assert key_of(exp) == before
    file.write_text("def train(job):\n    return\n")
    assert key_of(exp) != before
    assert key_of(RING) != key_of(RING.replace(seed=1))


# ---- one that fails, one that is stopped


def test_one_that_fails_is_said_and_the_others_go_on() -> None:
    both = wb.compare({"dies": DIES, "lives": RING}).wait(60)
    died, lived = both.trials
    assert (died.state, lived.state) == ("failed", "finished")
    assert "rank 1" in died.error and "SIGKILL" in died.error
    assert "1 failed" in both.words and both.table["seeds"].to_list() == [0, 1]
    assert died.losses().height == 5, "what it did before is there"
    shown = table_bundle(both)
    assert "rank 1" in shown["text/html"] and "dies, seed 0" in shown["text/html"]
    with pytest.raises(WorkbenchError, match="dies, seed 0: rank 1"):
        both.wait(1, check=True)


def test_if_all_fail_waiting_raises() -> None:
    with pytest.raises(WorkbenchError, match="dies, seed 0"):
        wb.compare({"dies": DIES}).wait(60)


def test_what_only_starting_finds_out_is_of_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["workbench.runs.run"]  # the package's own ``run`` is the function
    start = module.start

    def refuses(exp: wb.Experiment) -> wb.Run:
        if exp.ranks == 3:
            raise OSError("no room")
        return start(exp)

    monkeypatch.setattr(module, "start", refuses)
    both = wb.compare({"refused": NAIVE, "runs": RING}).wait(60)
    assert [one.state for one in both.trials] == ["failed", "finished"]
    assert "no room" in both.trials[0].error


def test_stop_ends_what_runs_and_starts_no_other() -> None:
    both = wb.compare({"long": LONG, "other": RING})
    until(lambda: (both.trials[0].summary()["iterations"] or 0) > 3, 60, "iterations")
    assert both.words == "0 of 2 runs done, 1 running"
    with pytest.raises(RunTimeout, match="it goes on"):
        both.wait(0.2)
    both.stop()
    both.wait(30)
    assert [one.state for one in both.trials] == ["stopped", "waiting"]
    assert both.trials[0].losses().height > 3


def test_side_by_side() -> None:
    both = wb.compare({"a": LONG, "b": LONG.replace(lr=0.05)}, at_once=2)

    def states() -> list[str]:
        return [one.state for one in both.trials]

    try:
        until(lambda: states() == ["running"] * 2 or both.trials[0].done or both.trials[1].done)
        assert states() == ["running"] * 2, [one.error for one in both.trials]
    finally:
        both.stop()
        both.wait(30)
    assert states() == ["stopped", "stopped"]


# ---- names, and what cannot be


def test_experiments_are_named_by_what_sets_them_apart() -> None:
    base = wb.Experiment(strategy="parameter_server")
    each = [base.replace(options={"consistency": name}) for name in ("bsp", "asp")]
    each.append(base.replace(options={"consistency": "ssp", "staleness": 2}, lr=0.1))
    names = [name for name, _ in names_for([("", exp) for exp in each])]
    assert names == ["bsp", "asp", "lr 0.1, ssp, staleness 2"]
    mixed = names_for([("mine", RING), ("", NAIVE)])
    assert [name for name, _ in mixed] == ["mine", "3 ranks, naive"]


@pytest.mark.parametrize(
    ("experiments", "how", "words"),
    [
        (RING, {}, "takes several experiments"),
        ([], {}, "no experiment"),
        ([RING, 3], {}, r"experiments\[1\] is int"),
        ([("a", RING), ("a", NAIVE)], {}, "two experiments are called 'a'"),
        ([RING, RING], {}, "two experiments are called"),
        ([RING, NAIVE], {"seeds": 0}, "seeds = 0"),
        ([RING, NAIVE], {"seeds": [1, 1]}, "numbers that all differ"),
        ([RING, NAIVE], {"at_once": 0}, "at_once = 0"),
        ([RING, NAIVE], {"folder": "/dev/null/x"}, "folder = '/dev/null/x'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    experiments: Any, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        wb.compare(experiments, **how)


def test_a_run_stopped_at_its_memory_limit_is_said_and_the_others_go_on() -> None:
    comparison = wb.compare(
        {
            "too little": RING.replace(memory_limit="100 kB"),
            "enough": RING.replace(memory_limit="1 GB"),
        }
    ).wait(60)
    tight, roomy = comparison["too little"][0], comparison["enough"][0]
    assert tight.state == "failed" and "memory_limit = 0.100 MB" in str(tight.error)
    assert roomy.state == "finished"


def test_it_is_light_and_stays_a_function() -> None:
    code = (
        "import sys, workbench.studies.comparison.comparison, workbench as wb\n"
        "assert callable(wb.compare) and callable(wb.run)\n"
        "print([name for name in ('plotly', 'panel', 'IPython', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# ---- figures


def test_figures_of_real_runs(comparison: Comparison) -> None:
    figure = comparison.figure()
    assert len(figure.data) == 4 * 3 * 3  # four axes, three experiments, line and band
    assert {trace.name for trace in figure.data if trace.showlegend} == {"ring", "naive", "asp"}
    assert len(comparison.figure("seconds").data) == 9
    with pytest.raises(ValueError, match="no axis"):
        comparison.figure("epochs")


def test_a_bar_in_a_terminal_says_how_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    wb.compare({"one": RING}).wait(60, progress=True)
    assert "1 of 1 runs done" in capsys.readouterr().out


# ---- in a notebook


def test_a_saved_notebook_shows_it_without_anything_that_runs(comparison: Comparison) -> None:
    bundle = chart_bundle(comparison)
    picture = ElementTree.fromstring(bundle["image/svg+xml"])
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ring", "naive", "asp", "Loss, by updates", "Loss, by time"} <= set(texts)
    lines = picture.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 * 3 + 3  # three charts, and the key
    assert len(bundle[PLOTLY]["data"]) == 27 and bundle["text/plain"] == repr(comparison)
    table = table_bundle(comparison)
    assert table["text/html"].count("<th>") == 2 * 4  # rows that differ; folded, all of them
    assert re.search(r"time, s +\d", table["text/plain"])


def test_nothing_that_is_told_breaks_the_page() -> None:
    named = wb.compare({"<script>": DIES, "b & c": RING}).wait(60)
    assert "<script>" not in table_bundle(named)["text/html"]
    ElementTree.fromstring(chart_bundle(named)["image/svg+xml"])


@pytest.mark.full
def test_in_a_kernel_it_follows_what_happens_to_the_end() -> None:
    manager, client = start_new_kernel()
    messages: list[dict[str, Any]] = []
    try:

        def run(code: str) -> None:
            def take(message: dict[str, Any]) -> None:
                messages.append({"type": message["msg_type"], **message["content"]})

            client.execute_interactive(code, timeout=120, output_hook=take)
            failed = [one for one in messages if "traceback" in one]
            assert not failed, "\n".join(failed[0]["traceback"])

        run("import workbench as wb, time")
        run(
            "exp = wb.Experiment(ranks=2, iterations=20, batch_size=16)\n"
            "found = wb.compare([exp, exp.replace(all_reduce='naive')])\nfound"
        )
        shown = [one for one in messages if one["type"] == "display_data"]
        assert len(shown) == 2 and "image/svg+xml" in shown[0]["data"]
        run("await found; time.sleep(2.5)")
        newest = {
            one["transient"]["display_id"]: one["data"]
            for one in messages
            if one["type"] == "update_display_data"
        }
        assert set(newest) == {one["transient"]["display_id"] for one in shown}
        picture, table = (newest[one["transient"]["display_id"]] for one in shown)
        assert "2 of 2 runs done" in picture["image/svg+xml"]
        assert "finished" in table["text/html"] and "running" not in table["text/html"]
        run("print([t.name for t in __import__('threading').enumerate() if 'compar' in t.name])")
        assert any(one.get("text", "").strip() == "[]" for one in messages), "a thread is left"
        run("wb.shutdown()")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_more_runs_than_a_user_waits_for_are_refused_at_once() -> None:
    for seeds in (10**18, 10_001):
        with pytest.raises(SpecError, match="seeds"):
            wb.compare([wb.Experiment()], seeds=seeds)
    with pytest.raises(SpecError, match="repeats"):
        wb.speed_up(wb.Experiment(), repeats=10**18)
