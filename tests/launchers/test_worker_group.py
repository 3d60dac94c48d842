"""A worker group on ranks of the warm pool: its start, what it hears, that it leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest

from tests.live import gone, until
from tools.soak.held import descriptors
from workbench.launchers.processes.launcher import launcher_of
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.store.event_store import Store
from workbench.studies.crossover.timing_pool import TimingPool


def test_a_start_that_fails_leaves_no_process_and_no_descriptor() -> None:
    launcher = launcher_of("local")
    before = Counter(descriptors(os.getpid()).values())
    group = WorkerGroup(2, launcher.take, Store())
    with pytest.raises(TypeError):
        group.start({"work": object()})  # no message can carry it
    pids = group.pids
    assert len(pids) == 2 and not gone(pids.values())
    group.close()
    assert gone(pids.values()) and group.ended.keys() == {0, 1}
    assert not Counter(descriptors(os.getpid()).values()) - before


def test_those_who_start_a_group_end_it_where_the_start_fails() -> None:
    with pytest.raises(TypeError) as caught:  # it keeps the frame, as a notebook does
        TimingPool(2, slot_bytes=object())  # type: ignore[arg-type]
    (group,) = {
        id(one): one
        for entry in caught.traceback
        for one in entry.frame.f_locals.values()
        if isinstance(one, WorkerGroup)
    }.values()
    assert len(group.pids) == 2 and gone(group.pids.values())


def test_a_rank_that_is_lost_is_heard_no_more_and_may_be_replaced() -> None:
    group = WorkerGroup(2, launcher_of("local").take, Store())
    try:
        first, second = group.take(range(2))
        second.signal(signal.SIGKILL)
        until(lambda: group.ended == {1: -signal.SIGKILL}, what="its end is known")
        assert group.hear(5.0) == []  # at once: its socket says that there is no more
        since = time.monotonic()
        assert group.hear(0.2) == [] and time.monotonic() - since > 0.15, "it is not polled again"
        (third,) = group.take([1])
        assert group.ended == {} and group.handles == {0: first, 1: third}
        group.begin(third, {"work": "none such"})  # its process says why on its standard error
        until(lambda: group.hear(0.1) == [] and group.ended == {1: 1}, what="it has ended")
    finally:
        group.close()
    assert gone([first.pid, third.pid])
