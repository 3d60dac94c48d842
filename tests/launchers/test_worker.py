"""The driver's end of a rank process: real ones of the warm pool, how they end, how that shows."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter

from tests.conftest import processes
from tests.live import gone, until
from tests.soak.held import descriptors
from tests.soak.runs import interrupt_after
from workbench.launchers.local import nursery
from workbench.launchers.worker import end, ended, enlist, settle


def test_who_has_nothing_to_do_ends_when_the_driver_hangs_up() -> None:
    workers = enlist(nursery(), [3, 1])
    assert [one.rank for one in workers] == [3, 1] and len({one.pid for one in workers}) == 2
    settle(workers, 0.0)
    assert ended(workers) == {}
    workers[0].close()
    settle(workers[:1], 20.0)
    assert ended(workers) == {3: 0} and workers[0].end == "ended" and gone([workers[0].pid])
    workers[1].order({"work": "none such"})  # its process says why on its standard error
    assert workers[1].hear() is None
    settle(workers, 20.0)
    assert workers[1].code == 1
    workers[1].order({"work": "too late"})  # is not told, and harms nobody
    workers[1].signal(signal.SIGKILL)
    workers[1].close()


def test_who_does_not_end_is_killed() -> None:
    workers = enlist(nursery(), range(2))
    workers[1].signal(signal.SIGSTOP)
    for one in workers:
        one.close()
    settle(workers[:1], 20.0)
    end(workers, patience=0.05)
    assert ended(workers) == {0: 0, 1: -signal.SIGKILL}
    assert workers[1].end == "was killed by SIGKILL" and gone([workers[1].pid])


def test_a_worker_that_the_driver_lets_go_of_ends() -> None:
    (worker,) = enlist(nursery(), [0])
    pid = worker.pid
    os.kill(pid, 0)
    del worker
    gc.collect()
    until(lambda: gone([pid]), 20, "its process has ended")


def test_what_comes_after_an_interrupt_is_given_back() -> None:
    home = nursery()
    for worker in enlist(home, range(2)):  # they rest in the pool no longer
        worker.close()
    before, processes_before = Counter(descriptors(os.getpid()).values()), set(processes())
    os.kill(home.process.pid, signal.SIGSTOP)
    with interrupt_after(0.3):
        home.take(3)
    os.kill(home.process.pid, signal.SIGCONT)
    until(lambda: not set(processes()) - processes_before, 20, "the processes have ended")
    until(lambda: not Counter(descriptors(os.getpid()).values()) - before, 20, "sockets are closed")
    (worker,) = enlist(home, [0])  # and nobody gets what was meant for another
    assert worker.code is None
    worker.close()
    settle([worker], 20.0)
