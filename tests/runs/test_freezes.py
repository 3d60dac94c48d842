"""A frozen rank is stopped and continued in that order, however long either signal takes."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import workbench as wb
from tests.live import LONG, lenet, of, training, until
from tests.recovery.lasting import ended

FROZEN = 1
FREEZE = wb.Freeze(rank=FROZEN, at_iteration=3, seconds=0.05)


@pytest.mark.parametrize("late", [signal.SIGSTOP, signal.SIGCONT])
def test_a_freeze_ends_whose_signals_are_late(
    late: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGSTOP that comes after its SIGCONT would stop the process forever."""
    run = wb.run(lenet(iterations=LONG, timeout="2 s", faults=FREEZE))
    signal_of, sent = run._ranks.signal, list[signal.Signals]()

    def send(rank: int, number: signal.Signals) -> None:
        if number == late:
            time.sleep(4 * FREEZE.seconds)
        sent.append(number)
        signal_of(rank, number)

    monkeypatch.setattr(run._ranks, "signal", send)
    until(lambda: run.done or run.iteration > 6, what="training goes on")
    assert ended(run).ok
    assert sent == [signal.SIGSTOP, signal.SIGCONT]
    (row,) = of(run.events, kind="fault", name="freeze").rows(named=True)
    assert (row["peer"], row["value"], row["lane"]) == (FROZEN, FREEZE.seconds, "experiment")


def test_a_rank_that_is_being_thawed_is_never_taken_for_a_stopped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it is evicted, where another rank is lost at that moment."""
    run = wb.run(lenet(ranks=3, iterations=LONG, recovery="shrink"))
    signal_of, stopped = run._ranks.signal, list[list[int]]()

    def send(rank: int, number: signal.Signals) -> None:
        stopped.append(run._supervisor._stops.stopped())
        signal_of(rank, number)
        stopped.append(run._supervisor._stops.stopped())

    training(run)
    monkeypatch.setattr(run._ranks, "signal", send)
    run.freeze(FROZEN)
    run.thaw(FROZEN)
    assert ended(run).ok
    assert stopped == [[]] * 4


def test_a_rank_does_not_go_on_before_its_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal may come late, when the run would be over."""
    exp = lenet(ranks=2, iterations=8, faults=wb.Freeze(rank=FROZEN, at_iteration=3, seconds=1))
    run = wb.run(exp)
    signal_of = run._ranks.signal
    timers = list[threading.Timer]()

    def send(*target: Any) -> None:
        timers.append(threading.Timer(0.5, signal_of, target))
        timers[-1].start()

    monkeypatch.setattr(run._ranks, "signal", send)
    assert run.wait(60).ok
    for one in timers:
        one.join()
    (row,) = of(run.events, kind="fault", name="freeze").rows(named=True)
    later = of(run.events, kind="forward", rank=FROZEN, iteration=3)["start_ns"].min()
    assert later - row["start_ns"] > 0.9e9
