"""Comparisons that the server holds: real ranks, one run after another in one place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import workbench as wb
from tests.live import LONG, lenet, until
from workbench.interface.app.comparisons import Comparisons, HostedComparison
from workbench.interface.app.limits import Limits, Refused
from workbench.interface.app.runs import Runs
from workbench.presets.catalogue import Compared


def compared(**experiments: wb.Experiment) -> Compared:
    return Compared("Two ways", "Which is it?", lambda: experiments)


def short(ranks: int = 2, iterations: int = 5) -> wb.Experiment:
    return lenet(ranks=ranks, iterations=iterations, pad_compute=None)


def here() -> bool:
    return True


def over(one: HostedComparison) -> None:
    until(lambda: one.done, 60, f"the comparison's end: {one.state}, {one.words}")


@pytest.fixture
def runs() -> Iterator[Runs]:
    hosts = Runs(Limits(runs=1, ranks=4, grace=0.5))
    yield hosts
    for hosted in hosts.live:
        for rank in hosted.run.pids:
            hosted.run.kill(rank)


def test_its_runs_take_one_place_after_another_and_stand_side_by_side(runs: Runs) -> None:
    comparisons = Comparisons(runs)
    one = comparisons.start(compared(ring=short(), naive=short().replace(all_reduce="naive")), "me")
    runs.enter(one.place, here)
    with pytest.raises(Refused, match="It is yours"):
        runs.start(short(), "me")
    over(one)
    assert [past.title for past in one.pasts] == ["ring", "naive"]
    assert [past.state for past in one.pasts] == ["finished"] * 2
    assert one.state == "2 of 2 runs done" and one.words == ""
    assert one.verdict.startswith("By time per step, ")
    assert [*runs.history("me")] == one.pasts
    assert all(past.run.store.metadata["question"] == "Which is it?" for past in one.pasts)
    assert comparisons.find(one.id) is one and comparisons.of("me") == [one]
    assert comparisons.of("you") == [] and comparisons.find("no such id") is None
    until(lambda: not runs._places, 5, "the free place")
    assert runs.start(short(), "me").past.title, "its place is free again"


def test_it_ends_without_a_page_and_when_it_is_stopped(runs: Runs) -> None:
    alone = HostedComparison(runs, compared(first=short(), second=short()), "me")
    over(alone)
    assert [past.title for past in alone.pasts] == ["first"]
    assert alone.words == "Its last page had been closed for 0.5 s, so its ranks were ended."
    until(lambda: not runs._places, 5, "the free place")
    stopped = HostedComparison(runs, compared(long=short(iterations=LONG), second=short()), "me")
    runs.enter(stopped.place, here)
    until(lambda: stopped.pasts and stopped.pasts[0].run.iteration, 30, "its first iteration")
    stopped.stop()
    over(stopped)
    assert [past.state for past in stopped.pasts] == ["stopped"]


def test_one_run_above_the_limits_refuses_all_before_any_starts(runs: Runs) -> None:
    with pytest.raises(Refused, match="up to 4 ranks, and this one asks for 8"):
        Comparisons(runs).start(compared(small=short(), large=short(ranks=8)), "me")
    assert not runs.live and not runs._places and len(runs.history("me")) == 0
