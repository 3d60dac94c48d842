"""A strategy by path, or of a notebook, recovers as those of the folder do: its traits say so."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch.distributed as dist

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits, traits_of
from workbench.user_code.source import capture

KILL = wb.Kill(rank=2, at_iteration=2)
FILE = dedent('''
    """Data parallel in twelve lines."""

    import torch.distributed as dist
    import workbench as wb

    TRAITS = wb.Traits(title="Mine", {traits})

    def check_survivors(config, same_ranks):
        if {refuses}:
            raise wb.SpecError("not with fewer ranks")

    def mine(job, config):
        model = job.model()
        optimizer = job.optimizer(model)
        for minibatch in job.iterations():
            ids = minibatch.ids[job.rank :: job.ranks]
            optimizer.zero_grad()
            loss = job.forward(model, job.load(ids))
            job.backward(loss, weight=len(ids) / len(minibatch.ids))
            job.report(loss, len(ids))
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            job.update(optimizer)
        job.finish(model)
''')


@wb.Traits(replicas="equal", recovers="any")
def averages(job: Any, config: Any) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        ids = minibatch.ids[job.rank :: job.ranks]
        optimizer.zero_grad()
        loss = job.forward(model, job.load(ids))
        job.backward(loss, weight=len(ids) / len(minibatch.ids))
        job.report(loss, len(ids))
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        job.update(optimizer)
    job.finish(model)


def by_path(folder: Path, traits: str, refuses: str = "False") -> str:
    file = folder / "mine.py"
    file.write_text(FILE.format(traits=traits, refuses=refuses))
    return f"{file}:mine"


@pytest.mark.full
@pytest.mark.parametrize("place", first(1, ["function", "path"]))
def test_it_goes_on_without_a_lost_rank_and_loses_nothing(place: str, tmp_path: Path) -> None:
    own = by_path(tmp_path, 'replicas="equal", recovers="any"') if place == "path" else averages
    exp = lenet(ranks=3, iterations=5, dtype="float64", strategy=own)
    whole = wb.run(exp).wait(60).losses
    survived = wb.run(exp.replace(recovery="shrink", faults=[KILL])).wait(60)
    assert survived.ok and survived.losses == pytest.approx(whole, abs=1e-12)
    wb.run(exp.replace(iterations=2, digest_every=1)).wait(60)


def test_without_a_word_it_does_not_recover(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Traits\(recovers='any'\)"):
        lenet(strategy=by_path(tmp_path, ""), recovery="shrink")


def test_its_own_check_of_survivors_is_asked_before_anything_starts(tmp_path: Path) -> None:
    path = by_path(tmp_path, 'recovers="any"', refuses="not same_ranks")
    exp = lenet(strategy=path, recovery="shrink", ranks=2, iterations=1)
    with pytest.raises(SpecError, match="not with fewer ranks"):
        wb.run(exp)
    assert wb.run(exp.replace(recovery="replace")).wait(60).ok


HELPERS = dedent("""
    import os, pathlib
    with pathlib.Path(__file__).with_suffix(".log").open("a") as log:
        print(os.getpid(), file=log)

    def prepare(ids):  # the file's own, which the driver does not call
        return ids.tolist()

    def check(exp, config):
        pass

    def missing_role(config, ranks, members):
        return ""
""")


def test_its_file_runs_once_in_the_driver_and_its_own_helpers_are_its_own(tmp_path: Path) -> None:
    path = by_path(tmp_path, 'recovers="any"')
    file = tmp_path / "mine.py"
    file.write_text(file.read_text() + HELPERS)
    exp = lenet(strategy=path, recovery="shrink", ranks=2, iterations=1)
    assert wb.run(exp).wait(60).ok
    processes = file.with_suffix(".log").read_text().split()
    assert processes.count(str(os.getpid())) == 1


def test_traits_are_read_and_not_run(tmp_path: Path) -> None:
    path = by_path(tmp_path, 'replicas="equal"')
    assert traits_of(path) == Traits(title="Mine", replicas="equal")
    assert traits_of(capture(averages)) == Traits(replicas="equal", recovers="any")
    with pytest.raises(SpecError, match="write plain values"):
        traits_of(by_path(tmp_path, "replicas=print('ran')"))
    with pytest.raises(SpecError, match="recovers"):
        traits_of(by_path(tmp_path, 'recovers="always"'))
