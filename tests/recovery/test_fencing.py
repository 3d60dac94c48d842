"""A rank that was evicted and is thawed afterwards can touch nothing of the next generation."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, training, until
from tests.pairwise import first
from tests.recovery.lasting import recovered
from tests.recovery.test_policies import assert_as_sequential, experiment, kinds
from workbench.rank import stop_watch
from workbench.runs.member_table import Mark
from workbench.shared_memory.control_block import LOST
from workbench.store.recoveries import recoveries_of

VICTIM = 1
# Memory of the driver, and of a process for all its generations: see the test of the kill.
NOT_SLOTS = ("control block", "trace", "stacks", "process's bell")


def old_slots(pids: Iterable[int], victim: int) -> list[mmap.mmap]:
    """Map the slots and pages that the victim may write to, its own and its peers'."""
    maps = Path(f"/proc/{victim}/maps").read_text().splitlines()
    mapped = {int(line.split()[4]) for line in maps if line.split()[1] == "rw-s"}
    slots = dict[int, mmap.mmap]()
    for pid in pids:
        for one in Path(f"/proc/{pid}/fd").iterdir():
            name = os.readlink(one)
            if "memfd:workbench" in name and not any(other in name for other in NOT_SLOTS):
                fd = os.open(one, os.O_RDWR)
                inode, size = os.fstat(fd).st_ino, os.fstat(fd).st_size
                if inode in mapped and inode not in slots:
                    slots[inode] = mmap.mmap(fd, size)
                os.close(fd)
    return [*slots.values()]


def stopped(run: wb.Run) -> int:
    """Stop the victim in the midst of training, and return its process."""
    training(run, 3)
    os.kill(run.pids[VICTIM], signal.SIGSTOP)
    return run.pids[VICTIM]


def wake_forever(pid: int, over: threading.Event) -> None:
    """Try to wake a process again and again, as an impatient user would."""
    while not over.is_set():
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        time.sleep(0.001)


def assert_fenced(run: wb.Run, pid: int, how: str = "killed") -> None:
    """Assert that the process had ended before any rank was in the next generation, so that it
    could map nothing of that, and that the run names it.
    """
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.lost == {str(VICTIM): "evicted"} and gone([pid])
    ended = kinds(run, "detect").filter(pl.col("peer") == VICTIM, pl.col("name") == how)
    later = run.events.filter(pl.col("generation") == recovery.generation)
    assert ended["end_ns"].max() < later.filter(pl.col("rank") >= 0)["start_ns"].min()
    assert later.filter(pl.col("rank") == VICTIM).height == 0
    assert run.recovery()[0].words.startswith(f"rank {VICTIM} was evicted in iteration")


@pytest.mark.parametrize("policy", first(1, ["shrink", "wait"]))
def test_a_rank_that_is_thawed_after_its_eviction_is_dead(policy: str) -> None:
    exp = experiment("data_parallel", 3, recovery=policy, timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    pid, over = stopped(run), threading.Event()
    row = run._supervisor.regrouping.table.row
    until(
        lambda: Mark.EVICTED in row(VICTIM).marks or recoveries_of(run.store.metadata),
        60,
        "it is evicted",
    )
    waking = threading.Thread(target=wake_forever, args=(pid, over))
    waking.start()
    try:
        assert_as_sequential(run, recovered(run), {0, 2}, stopped=True)
    finally:
        over.set()
        waking.join()
    assert_fenced(run, pid)


@pytest.mark.full
def test_what_a_zombie_could_write_to_the_others_use_no_more() -> None:
    """All slots and pages of the old generation are overwritten, again and again, while the next
    one trains.
    """
    exp = experiment("data_parallel", 3, recovery="shrink", timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    pid = stopped(run)
    slots = old_slots(run.pids.values(), pid)
    assert len(slots) >= 3, "a page of each rank, and slots"
    until(lambda: recoveries_of(run.store.metadata), 60, "the others go on")
    here = run.iteration
    while not run.done and run.iteration < here + 50:
        for one in slots:
            one[:] = os.urandom(1) * len(one)
        time.sleep(0.005)
    assert_as_sequential(run, recovered(run), {0, 2}, stopped=True)
    assert_fenced(run, pid)


@pytest.mark.full
def test_a_zombie_that_wakes_before_it_is_killed_waits_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kill is withheld for a second, in which the evicted rank runs."""
    exp = experiment("data_parallel", 3, recovery="shrink", timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    signal_of, killers = run._ranks.signal, list[threading.Timer]()

    def late(rank: int, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            signal_of(rank, signal.SIGCONT)
            killers.append(threading.Timer(1.0, signal_of, (rank, number)))
            killers[-1].start()
        else:
            signal_of(rank, number)

    monkeypatch.setattr(run._ranks, "signal", late)
    pid = stopped(run)
    until(lambda: killers, 60, "it is evicted")
    until(lambda: VICTIM in run._supervisor.regrouping.table.left or gone([pid]), 30, "it leaves")
    assert run._control.words[LOST] == 1 and not recoveries_of(run.store.metadata)
    assert_as_sequential(run, recovered(run), {0, 2}, stopped=True)
    assert_fenced(run, pid, "ended")
    abort = kinds(run, "abort").filter(pl.col("rank") == VICTIM)
    assert abort["generation"].to_list() == [0], "it had left its own generation"


@pytest.mark.parametrize("found_by", ["a rank", "the driver"])
def test_one_that_is_thawed_and_cannot_be_killed_ends_by_itself_and_is_named(
    found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is thawed instead of killed, and the others are safe from it all the same.

    On busy cores the driver may find the stopped rank before the others do, and evict it while all
    are in their group.
    """
    if found_by == "the driver":
        monkeypatch.setattr(stop_watch, "SLACK", -1.9)
    exp = experiment("data_parallel", 3, recovery="shrink", timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    signal_of = run._ranks.signal

    def thaw(rank: int, number: signal.Signals) -> None:
        signal_of(rank, signal.SIGCONT if number == signal.SIGKILL else number)

    monkeypatch.setattr(run._ranks, "signal", thaw)
    pid = stopped(run)
    assert_as_sequential(run, recovered(run), {0, 2}, stopped=True)
    assert_fenced(run, pid, "ended")


@pytest.mark.full
def test_one_that_is_thawed_just_as_the_others_give_it_up_goes_on_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exp = experiment("data_parallel", 3, recovery="shrink", timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    regrouping = run._supervisor.regrouping
    call_off = regrouping.call_off

    def thaw_and_call_off(*args: Any) -> None:
        os.kill(run.pids[VICTIM], signal.SIGCONT)
        until(lambda: process_runs(run.pids[VICTIM]), 30, "it runs")
        call_off(*args)

    monkeypatch.setattr(regrouping, "call_off", thaw_and_call_off)
    stopped(run)
    assert_as_sequential(run, recovered(run), {0, 1, 2}, stopped=True)
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.lost == {} and recovery.members == (0, 1, 2)
    assert run.recovery()[0].words.startswith("no rank was lost in iteration")


def process_runs(pid: int) -> bool:
    """Return whether a process is not stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt"
