"""The driver's end of a rank process: real ones of the warm pool, how they end, how that shows."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections import Counter

import pytest

from tests.conftest import processes
from tests.live import gone, until
from tools.soak.held import descriptors
from tools.soak.runs import interrupt_after
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.pool import warm_pool
from workbench.launchers.processes.rank_handle import end, ended, enlist, settle


def test_a_process_without_work_ends_when_the_driver_hangs_up() -> None:
    handles = enlist(warm_pool(), [3, 1])
    assert [one.rank for one in handles] == [3, 1] and len({one.pid for one in handles}) == 2
    settle(handles, 0.0)
    assert ended(handles) == {}
    handles[0].close()
    settle(handles[:1], 20.0)
    assert ended(handles) == {3: 0} and handles[0].end == "ended" and gone([handles[0].pid])
    handles[1].order({"work": "none such"})  # its process says why on its standard error
    until(lambda: handles[1].hear() is None, 20, "it says no more")
    settle(handles, 20.0)
    assert handles[1].code == 1
    handles[1].order({"work": "too late"})  # is not told, and harms no other
    handles[1].signal(signal.SIGKILL)
    handles[1].close()


def test_a_rank_that_does_not_end_is_killed() -> None:
    handles = enlist(warm_pool(), range(2))
    handles[1].signal(signal.SIGSTOP)
    for one in handles:
        one.close()
    settle(handles[:1], 20.0)
    end(handles, patience=0.05)
    assert ended(handles) == {0: 0, 1: -signal.SIGKILL}
    assert handles[1].end == "was killed by SIGKILL" and gone([handles[1].pid])


def test_a_worker_that_the_driver_lets_go_of_ends() -> None:
    (handle,) = enlist(warm_pool(), [0])
    pid = handle.pid
    os.kill(pid, 0)
    del handle
    gc.collect()
    until(lambda: gone([pid]), 20, "its process has ended")


def test_a_process_for_which_no_descriptor_is_free_is_refused_and_the_pool_goes_on() -> None:
    home = warm_pool()
    assert home.pid > 0
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, most))
    try:
        with pytest.raises(WorkbenchError, match="open files") as caught:
            home.take(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    assert "0 of 2" in str(caught.value)
    (handle,) = enlist(home, [0])
    handle.close()
    settle([handle], 20.0)
    assert handle.code == 0, "its end is heard"


def test_what_comes_after_an_interrupt_is_given_back() -> None:
    home = warm_pool()
    for handle in enlist(home, range(2)):  # they rest in the pool no longer
        handle.close()
    before, processes_before = Counter(descriptors(os.getpid()).values()), set(processes())
    os.kill(home.pid, signal.SIGSTOP)
    with interrupt_after(0.3):
        home.take(3)
    os.kill(home.pid, signal.SIGCONT)
    until(lambda: not set(processes()) - processes_before, 20, "the processes have ended")
    until(lambda: not Counter(descriptors(os.getpid()).values()) - before, 20, "sockets are closed")
    (handle,) = enlist(home, [0])  # and none gets what was meant for another
    assert handle.code is None
    handle.close()
    settle([handle], 20.0)
