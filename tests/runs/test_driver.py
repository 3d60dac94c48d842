"""A driver that ends, however it does, leaves nothing; and one that has several runs."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import (
    PATIENCE,
    crowding,
    gone,
    lenet,
    of,
    script,
    training,
    until,
)
from tests.pairwise import first
from tests.runs.failing import SOON, failure, started
from workbench import laws
from workbench.launchers.processes import pool
from workbench.launchers.processes.pool import warm_pool
from workbench.runs import starting
from workbench.runs.progress import show_progress
from workbench.store.collector import Collector
from workbench.store.result import Result

# -- the driver --


def test_a_timeout_of_wait_leaves_the_run_going() -> None:
    with started() as run:
        training(run)
        with pytest.raises(wb.RunTimeout, match="it goes on"):
            run.wait(timeout=0.2)
        at = run.iteration
        until(lambda: run.iteration > at, what="it goes on")
        run.stop()
        assert run.wait(timeout=90).ok


def test_wait_without_check_returns_the_failed_result() -> None:
    with started() as run:
        run.kill(0)
        result = run.wait(timeout=90, check=False)
    assert result is run.result and not result.ok
    assert isinstance(result.error, wb.PeerLost)


def test_of_a_run_that_could_not_begin_nothing_is_left_while_its_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook keeps the last error, and with it all that its frames hold."""

    def none(*_: Any) -> dict[str, Any]:
        raise wb.WorkbenchError("no orders today")

    exp = lenet(iterations=2, checkpoint=wb.Checkpoint(folder=str(tmp_path), every=1))
    before = {*warm_pool()._watchers} if warm_pool().pid else set()
    with monkeypatch.context() as patch, pytest.raises(wb.WorkbenchError, match="today") as caught:
        patch.setattr(starting, "orders_of", none)
        wb.run(exp)
    assert {*warm_pool()._watchers} <= before, "its ranks have ended"
    assert wb.run(exp).wait(timeout=90).ok, "it has given back its folder of checkpoints"
    assert caught.tb is not None


def test_a_start_that_is_interrupted_at_its_last_step_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(collector: Collector) -> None:
        start(collector)
        raise KeyboardInterrupt

    start, before = Collector.start, {*threading.enumerate()}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Collector, "start", interrupted)
        wb.run(lenet())
    left = {one.name for one in {*threading.enumerate()} - before}
    assert not left & {"workbench collector", "workbench rings"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_whose_launcher_cannot_be_closed_is_over_nevertheless() -> None:
    def close(ranks: int) -> None:
        raise OSError("a disk is gone")

    with started() as run:
        run._launcher.close = close  # type: ignore[method-assign]
        run.kill(1)
        result = run.wait(timeout=90, check=False)
        assert run._ranks.thread is not None
        run._ranks.thread.join(90)  # what it raises is this test's
    assert isinstance(result.error, wb.PeerLost) and result.error.rank == 1


class Late:
    """A run whose ranks take longer to stop than a Ctrl-C waits for."""

    experiment, iteration, done, result = lenet(), 0, False, Result()

    @property
    def loss(self) -> float | None:
        raise KeyboardInterrupt

    def stop(self) -> None: ...

    def wait(
        self, timeout: float | None = None, check: bool = True, progress: bool | None = None
    ) -> Any:
        raise wb.RunTimeout("it goes on")


def test_an_interrupt_in_a_terminal_is_passed_on_where_the_run_stops_late() -> None:
    with pytest.raises(KeyboardInterrupt):
        show_progress(Late())


HOLDS = """
import os, signal, sys, time
import workbench as wb
run = wb.run(wb.Experiment(ranks=3, iterations=100_000, batch_size=16))
while run.iteration < 3 and not run.done:
    time.sleep(0.01)
from workbench.launchers.processes.pool import warm_pool
print(*run.pids.values(), warm_pool().pid, flush=True)
"""


def pids_of(process: Any) -> list[int]:
    line = process.stdout.readline()
    assert line.strip(), process.communicate()[1]
    return [int(word) for word in line.split()]


@contextlib.contextmanager
def driver(tmp_path: Path, text: str) -> Iterator[Any]:
    process = script(tmp_path / "script.py", text)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def nothing_remains(pids: list[int]) -> None:
    begin = time.monotonic()
    until(lambda: gone(pids), 10, f"the end of {pids}")
    assert time.monotonic() - begin < SOON * crowding()


@pytest.mark.parametrize(
    "more",
    first(1, ["", "run.freeze(1)\n", "if os.fork() == 0:\n    time.sleep(30)\n"]),
    ids=["plain", "a rank is frozen", "a child holds its sockets"],
)
def test_a_driver_that_is_killed_leaves_nothing(more: str, tmp_path: Path) -> None:
    with driver(tmp_path, HOLDS + more + "print('ready', flush=True)\ntime.sleep(60)\n") as process:
        pids = pids_of(process)
        assert process.stdout.readline() == "ready\n"
        assert not any(map(gone, [[pid] for pid in pids]))
        os.kill(process.pid, signal.SIGKILL)
        nothing_remains(pids)


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    with driver(tmp_path, HOLDS + "run.wait()\n") as process:
        pids = pids_of(process)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode in (130, -signal.SIGINT)
        assert err.rstrip().endswith("KeyboardInterrupt") and "Exception ignored" not in err
        assert gone(pids)


@pytest.mark.full  # so are the scripts of the tests beside it
def test_a_script_without_a_main_guard_works_and_leaves_nothing(tmp_path: Path) -> None:
    text = HOLDS + "run.stop()\nprint(run.wait(20).ok, __name__)\n"
    with driver(tmp_path, text) as process:
        pids = pids_of(process)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "True __main__\n", "")
        assert gone(pids)


@pytest.mark.full  # so are drivers that are killed and interrupted
def test_a_driver_that_ends_in_mid_run_leaves_nothing(tmp_path: Path) -> None:
    with driver(tmp_path, HOLDS + "raise SystemExit(5)\n") as process:
        pids = pids_of(process)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (5, "")
        assert gone(pids)


@pytest.mark.full
def test_the_end_of_the_process_that_starts_ranks_is_reported() -> None:
    with started() as run:
        training(run)
        pid = warm_pool().pid
        os.kill(pid, signal.SIGKILL)
        error, seconds = failure(run)
    assert seconds < SOON * crowding() and f"(pid {pid}) was killed by SIGKILL" in str(error)
    assert of(run.events, kind="send").height > 0
    assert wb.run(lenet()).wait(timeout=60).ok  # the next run starts another


@pytest.mark.full
def test_shutdown_ends_all() -> None:
    with started() as run:
        training(run)
        home = warm_pool()
        wb.shutdown()
        assert gone([*run.pids.values(), home.pid, home.process.pid])
        error, _ = failure(run)
    assert "wb.shutdown()" in str(error)
    assert (
        pool._warm_pool is None
    )  # the run's end, which asks for warm ranks, has not brought it back
    assert wb.run(lenet()).wait(timeout=60).ok


# -- more than one run --


@pytest.mark.full
def test_two_runs_at_a_time_do_not_touch_each_other() -> None:
    alone = wb.run(lenet(iterations=8)).wait(timeout=60)
    with started(ranks=2) as neighbor:
        first, second = (wb.run(lenet(iterations=8, strategy=s)) for s in ("data_parallel", "ddp"))
        for run in (first, second):
            assert run.wait(timeout=60).losses == pytest.approx(alone.losses, abs=1e-6)
            assert laws.check_events(run.events) == []
        neighbor.kill(1)
        error, _ = failure(neighbor)
    assert isinstance(error, wb.PeerLost)


@pytest.mark.full
def test_runs_leave_no_descriptors_threads_or_processes() -> None:
    def counted() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(2):
        wb.run(lenet(iterations=2)).wait(timeout=60)
    before = counted()
    pids = []
    for _ in range(10):
        run = wb.run(lenet(iterations=2))
        assert run.wait(timeout=60).ok
        assert run.events.height > 0
        pids += run.pids.values()
    assert gone(pids)
    fds, threads = counted()
    assert fds <= before[0] + 1 and threads <= before[1]  # the last run still lives


def test_a_run_that_is_kept_keeps_its_table_and_little_else() -> None:
    kept = [wb.run(lenet(iterations=2)) for _ in range(3)]
    for run in kept:
        run.wait(timeout=60)
    before = len(os.listdir("/proc/self/fd"))
    more = [wb.run(lenet(iterations=2)) for _ in range(5)]
    assert all(run.wait(timeout=60).ok for run in more)
    until(lambda: len(os.listdir("/proc/self/fd")) - before <= len(more), 10, "a trace is closed")
    assert all(run.events.height and run.overhead().records for run in kept + more)

    def mapped() -> bool:
        gc.collect()  # a recorder and its lanes know each other: they go when Python looks
        with open("/proc/self/maps") as file:
            return "workbench trace" in file.read()

    until(lambda: not mapped(), 10, "the memory of traces has gone")


def test_a_stopped_fork_server_is_named_when_its_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wb.run(lenet(iterations=1)).wait(timeout=60)
    home = warm_pool()
    monkeypatch.setattr(pool, "START_DEADLINE", 0.5)
    os.kill(home.pid, signal.SIGSTOP)
    try:
        stopped = rf"\(pid {home.pid}\) gave 0 of 2 .* it is stopped \(SIGSTOP\)"
        with pytest.raises(wb.WorkbenchError, match=stopped):
            home.take(2)
    finally:
        os.kill(home.pid, signal.SIGCONT)
    monkeypatch.undo()
    assert wb.run(lenet(iterations=1)).wait(timeout=60).ok
