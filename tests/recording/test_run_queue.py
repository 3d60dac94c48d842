"""What the kernel says of threads: which has a core, which waits for one, which sleeps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from workbench.recording.run_queue import LOOK, OwnTime, busiest, others_share, thread_times

BUSY = "print(flush=True)\nwhile True: pass"
ASLEEP = "print(flush=True)\nimport time\ntime.sleep(60)"


@contextmanager
def process(code: str, core: int) -> Iterator[int]:
    """A process that keeps to this core; its number."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        os.sched_setaffinity(child.pid, {core})
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
    finally:
        child.kill()
        child.communicate()


def test_a_thread_that_shares_a_core_is_ready_more_than_it_runs_and_a_sleeper_is_neither() -> None:
    core = min(os.sched_getaffinity(0))
    with ExitStack() as living:
        pids = [living.enter_context(process(BUSY, core)) for _ in range(4)]
        asleep = living.enter_context(process(ASLEEP, core))
        before, since = {pid: thread_times(pid) for pid in (*pids, asleep)}, time.monotonic()
        time.sleep(1.0)
        took = int((time.monotonic() - since) * 1e9)
        spent = {pid: busiest(times, thread_times(pid), took) for pid, times in before.items()}
    on = sum(spent[pid][0] for pid in pids)
    ready = sum(spent[pid][1] for pid in pids)
    assert ready > 2 * on, spent  # three of four wait at any moment
    on, ready = spent[asleep]  # it may still have been on its way to sleep
    assert on < 0.1 * took and ready < 0.5 * took


def test_time_without_a_core_is_not_one_s_own_and_every_limit_is_reached() -> None:
    core = min(os.sched_getaffinity(0))
    with ExitStack() as living:
        first, *_ = (living.enter_context(process(BUSY, core)) for _ in range(4))
        asleep = living.enter_context(process(ASLEEP, core))
        clocks = {"crowded": OwnTime([first, asleep]), "idle": OwnTime([asleep])}
        since = time.monotonic()
        while (took := time.monotonic() - since) < 8 * LOOK:
            time.sleep(LOOK / 2)
            seconds = {name: clock.seconds for name, clock in clocks.items()}
    assert LOOK <= seconds["crowded"] < 0.7 * took  # the first look, then a fourth of the time
    assert seconds["idle"] > 0.7 * took


def test_what_others_keep_busy_is_seen() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as living:
        for core in cores:
            living.enter_context(process(BUSY, core))
        assert others_share(0.5) > 0.8 * len(cores) / (os.cpu_count() or 1)


def test_of_a_process_that_is_gone_nothing_is_said() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    times = {1: (5, 5, True)}
    assert thread_times(child.pid) == {} and busiest(times, {}, 9) == (0, 0)
    assert busiest(times, {1: (9, 6, True), 2: (3, 7, False)}, 9) == (4, 7)
    assert busiest(times, {1: (5, 5, True)}, 9) == (0, 9), "it has waited all the time"
    assert busiest(times, {1: (5, 5, False)}, 9) == (0, 0), "it sleeps"
