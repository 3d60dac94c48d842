"""What goes wrong is named within its time, nothing is left, and the record can be read."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import signal
import time
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import (
    crowding,
    lasting,
    lenet,
    of,
    training,
    until,
)
from tests.pairwise import first
from tests.runs.failing import SOON, failure, started
from tests.runs.steered import hold
from workbench import laws
from workbench.launchers.processes.pool import warm_pool
from workbench.shared_memory.segments import process_state

# -- a rank is killed --


@pytest.mark.timing
@pytest.mark.parametrize("moment", first(1, range(5)))
@pytest.mark.parametrize("strategy", ["data_parallel", "ddp"])
def test_a_rank_killed_at_any_moment_of_training_is_named(strategy: str, moment: int) -> None:
    chance = random.Random(f"{strategy} {moment}")
    with started(strategy=strategy, ranks=chance.choice([2, 3, 4])) as run:
        training(run)
        time.sleep(chance.uniform(0, 0.2))
        victim = chance.randrange(len(run.pids))
        os.kill(run.pids[victim], signal.SIGKILL)
        error, seconds = failure(run)
    assert isinstance(error, wb.PeerLost) and error.rank == victim
    assert seconds < SOON * crowding()
    assert f"rank {victim} (process {run.pids[victim]}) was killed by SIGKILL" in str(error)
    under_way = str(error).partition("Under way:")[2]
    spans = ("all_reduce", "load", "forward", "backward", "optimizer")
    assert any(word in under_way for word in spans)
    assert [str(v) for v in laws.check_events(run.events, complete=False)] == []


@pytest.mark.timing
@pytest.mark.parametrize("moment", first(1, range(4)))
def test_a_rank_killed_while_the_ranks_start_is_named(moment: int) -> None:
    with started() as run:
        time.sleep(moment * 0.02)
        os.kill(run.pids[1], signal.SIGKILL)
        error, seconds = failure(run)
    assert isinstance(error, wb.PeerLost) and error.rank == 1
    assert seconds < SOON * crowding() and "SIGKILL" in str(error)
    assert run.events.columns


def test_a_rank_that_survivors_report_before_its_exit_code_comes_is_in_the_record() -> None:
    with started() as run:
        training(run)
        parent = warm_pool().pid
        os.kill(parent, signal.SIGSTOP)  # it waits for its children, and passes on how they ended
        try:
            os.kill(run.pids[1], signal.SIGKILL)
            until(lambda: len(run._supervisor.reports) == 2, what="both survivors have reported")
        finally:
            os.kill(parent, signal.SIGCONT)
        error, _ = failure(run)
    assert isinstance(error, wb.PeerLost) and error.rank == 1
    detected = of(run.events, kind="detect", peer=1)
    assert detected.select("rank", pl.col("name").cast(str)).rows() == [(-1, "killed")]


@pytest.mark.timing
def test_a_rank_killed_while_others_compute_is_named_as_soon() -> None:
    """A rank that sleeps in a long forward cannot see it: it is not waited for."""
    planned = (wb.Kill(rank=2, at_iteration=1),)  # it does not come to it
    with started(pad_compute="60 s", faults=planned) as run:
        training(run, 0)
        until(lambda: of(run.events, kind="load").height == 3, what="all compute")
        run.kill(2)
        error, seconds = failure(run)
    assert isinstance(error, wb.PeerLost) and error.rank == 2 and error.planned == ""
    assert seconds < SOON * crowding() and "ranks 0, 1 and 2: in forward" in str(error)


def test_a_kill_of_the_experiment_happens_at_its_iteration() -> None:
    with started(faults=(wb.Kill(rank=1, at_iteration=4),)) as run:
        error, _ = failure(run)
    assert isinstance(error, wb.PeerLost) and "in iteration 5" in str(error)
    assert error.planned == "Kill(rank=1, at_iteration=4)" and error.planned in str(error)
    events = run.events
    assert of(events, kind="fault", name="kill", rank=1)["iteration"].to_list() == [4]
    assert of(events, rank=1)["iteration"].max() == 4


def test_a_rank_that_waits_for_one_that_dies_has_the_wait_on_record() -> None:
    with started(all_reduce="ring") as run:
        training(run)
        os.kill(run.pids[1], signal.SIGSTOP)
        by_rank_2 = pl.col("kind").cast(str).eq("wait") & pl.col("rank").eq(2)
        until(lambda: 1 in run.store.now.filter(by_rank_2)["peer"], what="2 takes from 1 in a ring")
        killed_ns = time.monotonic_ns()
        os.kill(run.pids[1], signal.SIGKILL)
        failure(run)
    waits = of(run.events, kind="wait", peer=1).filter(pl.col("end_ns") > killed_ns)
    assert of(waits, rank=2).height >= 1


def test_a_rank_that_exits_is_named_with_its_code() -> None:
    def leaves(job: Any, config: Any) -> None:
        for minibatch in job.iterations():
            if (job.rank, minibatch.iteration) == (1, 2):
                os._exit(7)
            dist.barrier()

    with started(strategy=leaves) as run:
        error, _ = failure(run)
    assert isinstance(error, wb.PeerLost) and "rank 1" in str(error)
    assert "exited with code 7" in str(error)


def test_a_loop_without_an_end_is_named_with_its_line() -> None:
    """A rank in a loop does not answer; it is found from outside."""

    def turns(job: Any, config: Any) -> None:
        for minibatch in job.iterations():
            spins(job.rank, minibatch.iteration)
            dist.barrier()

    def spins(rank: int, iteration: int) -> None:
        count = 0
        while (rank, iteration) == (1, 2):
            count += 1

    with started(strategy=turns, timeout="2 s") as run:
        error, _ = failure(run)
    assert isinstance(error, wb.RunTimeout), error
    place = rf"rank 1 \(process {run.pids[1]}\) is at line \d+ of the source of turns, in spins"
    assert re.search(rf"{place}: (while \(rank, iteration\) == \(1, 2\):|count \+= 1)$", str(error))
    # Of the others it is said what they wait for; one without a core has not said it in time.
    places = re.findall(r"rank (\d) .* is at line \d+ of the source of turns, in (\w+)", str(error))
    assert all(function == "turns" for rank, function in places if rank != "1"), error


def test_clocks_go_on_when_a_frozen_worker_dies_that_can_be_spared() -> None:
    with started(strategy="parameter_server", ranks=4) as run:
        training(run)
        run.freeze(3)
        assert run._control.clocks_stand()
        run.kill(3)
        until(lambda: not run._control.clocks_stand(), what="a rank that waits is timed again")
        assert not run.done and run.control_state.frozen == ()


# -- a rank is stopped --


@pytest.mark.timing
def test_a_stopped_rank_is_named_after_a_second_and_an_error_at_timeout() -> None:
    with started(timeout="2 s", all_reduce="ring") as run:
        training(run)
        hold(run)  # so that no rank has waited for rank 1 before
        os.kill(run.pids[1], signal.SIGSTOP)
        begin = time.monotonic_ns()
        run.resume()
        error, _ = failure(run)
        seconds = (time.monotonic_ns() - begin) / 1e9
    assert isinstance(error, wb.RunTimeout) and 1.8 < seconds < 4 * crowding()
    assert f"rank 1 (process {run.pids[1]}) is stopped (SIGSTOP)" in str(error)
    detected = of(run.events, kind="detect", name="stalled: stopped", peer=1)
    assert detected.height >= 1
    after = (detected["start_ns"].min() - begin) / 1e9
    assert 0.8 < after < 1.6 * crowding()
    assert (of(run.events, kind="detect")["rank"] != 1).all()


def test_ranks_that_all_have_to_send_first_time_out_too_where_their_links_are_cut() -> None:
    with started(ranks=2, all_reduce="one_shot", timeout="2 s") as run:
        training(run)
        run.link(0, 1, down=True, both=True)
        error, _ = failure(run)
    assert isinstance(error, wb.RunTimeout) and error.how == "silent"


def test_a_rank_that_is_stopped_in_the_middle_of_its_report_is_named() -> None:
    """The driver has the beginning of it, and watches on instead of waiting for the rest."""

    def stops(job: Any, config: Any) -> None:
        from workbench.common import ipc

        def half(sock: Any, message: Any, payload: Any = b"", fds: Any = ()) -> None:
            head = ipc.frame(message, payload)
            sock.sendall(head[:9])
            if job.rank == 1 and "done" in message:
                os.kill(os.getpid(), signal.SIGSTOP)
            sock.sendall(head[9:] + payload)

        ipc.send = half
        for _ in job.iterations():
            dist.barrier()

    with started(strategy=stops, iterations=2, timeout="2 s") as run:
        error, _ = failure(run)
        assert isinstance(error, wb.RunTimeout)
        assert f"rank 1 (process {run.pids[1]}) is stopped (SIGSTOP)" in str(error)
    with started(strategy=stops, iterations=2) as run:
        until(lambda: process_state(run.pids[1]) == "T", what="it is stopped")
        run._ranks.signal(1, signal.SIGCONT)
        assert run.wait(timeout=60).ok, "the rest of it was read"


LONG_COMPUTING = """
import time
import torch.distributed as dist
from workbench.tasks.lenet_digits import Task as Digits

class Task(Digits):
    many = 0

    def loss(self, model, batch):
        self.many += 1
        if dist.get_rank() == 1 and self.many == 3:
            end = time.thread_time() + 1.5
            while time.thread_time() < end:
                pass
        return super().loss(model, batch)
"""


@pytest.mark.full
def test_a_rank_that_computes_for_long_is_late_and_does_not_stall(tmp_path: Path) -> None:
    """It computes, or on a busy machine waits for a core; the others wait for it, or each other."""
    (tmp_path / "long.py").write_text(LONG_COMPUTING)
    run = wb.run(lenet(ranks=3, task=f"{tmp_path}/long.py:Task"))
    assert run.wait(timeout=60).ok
    notices = of(run.events, kind="detect")["peer", "name"].unique().rows()
    of_it = {str(name) for peer, name in notices if peer == 1}
    assert of_it and of_it <= {"late: computes", "late: waits for a core"}


def test_a_rank_that_the_user_freezes_is_not_an_error() -> None:
    with started(timeout="1 s") as run:
        training(run)
        run.freeze(1)
        time.sleep(2.5)
        assert not run.done
        stood = run.iteration
        run.thaw(1)
        until(lambda: run.iteration > stood + 3, what="training goes on")
        run.stop()
        assert run.wait(timeout=90).ok
    names = of(run.events, kind="fault", rank=-1)["name"].cast(str).to_list()
    assert names == ["freeze", "thaw"]
    assert laws.check_events(run.events) == []


def test_how_long_a_message_is_awaited_is_told() -> None:
    """A wait begins once, however often its rank looks around meanwhile."""
    with started(strategy="gossip", ranks=4) as run:
        training(run)
        run.freeze(2)
        awaited = pl.col("kind").cast(str).eq("wait") & pl.col("peer").eq(2)

        def both_wait_unchanged() -> bool:
            waits = run.store.now.filter(awaited).sort("rank")
            time.sleep(0.5)
            return waits.height == 2 and run.store.now.filter(awaited).sort("rank").equals(waits)

        until(both_wait_unchanged, what="both neighbors wait, each since one moment")
        run.thaw(2)


@pytest.mark.timing
def test_a_freeze_of_the_experiment_lasts_its_seconds_and_is_not_an_error() -> None:
    exp = lenet(
        ranks=3, iterations=8, timeout="1 s", faults=(wb.Freeze(rank=1, at_iteration=3, seconds=2),)
    )
    run = wb.run(exp)
    assert run.wait(timeout=90).ok
    begin = of(run.events, kind="fault", name="freeze")["end_ns"].item()
    after = of(run.events, rank=1, kind="load", iteration=3)["start_ns"].item()
    assert 1.95 < (after - begin) / 1e9 < 2.5 * crowding()


def test_thaw_ends_a_freeze_of_the_experiment() -> None:
    with started(faults=(wb.Freeze(rank=1, at_iteration=3, seconds=60),)) as run:
        until(lambda: of(run.events, kind="fault", name="freeze").height, what="it is frozen")
        run.thaw(1)
        until(lambda: run.iteration > 6, what="training goes on")


# -- a rank is slow --


@pytest.mark.alone
def test_a_slow_rank_of_the_experiment_computes_longer() -> None:
    """Whatever else the machine does makes it longer still, now and then."""
    run = wb.run(lenet(iterations=16, pad_compute="30 ms", faults=(wb.Slow(rank=1, factor=3),)))
    run.wait(timeout=60)
    for rank, factor in ((0, 1), (1, 3)):
        spans = lasting(of(run.events, rank=rank, kind="backward").filter(pl.col("iteration") > 0))
        assert spans.min() == pytest.approx(20 * factor, rel=0.15)
    assert laws.check_events(run.events) == []


@pytest.mark.alone
def test_jitter_slows_its_share_of_iterations_and_the_seed_decides_which() -> None:
    def slow_ones(seed: int) -> list[tuple[int, int]]:
        faults = (wb.Jitter(probability=0.4, factor=4),)
        run = wb.run(lenet(iterations=24, pad_compute="18 ms", faults=faults, seed=seed))
        run.wait(timeout=90)
        rows = of(run.events, kind="backward")
        # Padded to 12 ms, slow ones to 48; waiting for a core, which others may cause, left out.
        own = lasting(rows) - rows["value"] * 1e-6
        rows = rows.with_columns(ms=own).filter(pl.col("ms") > 30, pl.col("iteration") > 0)
        return sorted(rows.select("rank", "iteration").rows())

    first = slow_ones(0)
    assert 8 <= len(first) <= 30  # of 46, 18 expected
    assert {rank for rank, _ in first} == {0, 1}
    assert first == slow_ones(0) != slow_ones(1)


# -- a rank raises, or disagrees --


class RaisesOnOne:
    """A task whose loss raises on rank 1."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def dataset(self, split: str) -> Any:
        return torch.utils.data.TensorDataset(torch.ones(40, 2))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        if dist.get_rank() == 1:
            raise ValueError("my own mistake")
        return model(batch[0]).sum()


def test_a_rank_whose_end_is_seen_before_its_exit_code_is_the_cause() -> None:
    """As of a process that used a GPU: its main thread is gone, another lives one second more."""

    def train(job: Any, config: Any) -> None:
        for _ in job.iterations():
            dist.all_reduce(torch.ones(3))
            if job.rank == 1:
                Thread(target=time.sleep, args=(1000,)).start()
                exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # a system call
                ctypes.CDLL(None).syscall(exit_thread, 0)

    with started(strategy=train, ranks=2) as run:
        until(lambda: [*run._supervisor.reports] == [0], what="the other says what it has seen")
        os.kill(run.pids[1], signal.SIGKILL)
        error, _ = failure(run)
    assert isinstance(error, wb.PeerLost) and (error.rank, error.how) == (1, "killed")
    assert "ended while rank 0 was in" in str(error), "what the other saw is below it"


@pytest.mark.parametrize("strategy", first(1, ["ddp", "data_parallel"]))
def test_a_task_that_raises_on_one_rank_ends_all_with_its_traceback(strategy: str) -> None:
    with started(task=RaisesOnOne, strategy=strategy) as run:
        error, seconds = failure(run)
    assert isinstance(error, wb.RankError) and error.rank == 1
    assert "ValueError: my own mistake" in str(error)
    assert 'raise ValueError("my own mistake")' in str(error)
    assert seconds < 5 * crowding()


def test_a_users_all_reduce_that_sends_too_much_is_a_collective_error() -> None:
    def all_reduce(comm: Any, x: torch.Tensor) -> torch.Tensor:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        other = torch.empty_like(x)
        give = torch.cat([x, x[:1]]) if comm.rank == 1 else x
        comm.exchange(give, to=right, into=other, frm=left)
        return x + other

    with started(all_reduce=all_reduce, ranks=2) as run:
        error, seconds = failure(run)
    assert isinstance(error, wb.CollectiveError) and seconds < 5 * crowding()
    assert "rank 0 expected 600 bytes from rank 1" in str(error) and "got 604" in str(error)


def test_ranks_that_call_different_collectives_are_told_which_called_what() -> None:
    def disagree(job: Any, config: Any) -> None:
        for _ in job.iterations():
            dist.all_reduce(torch.ones(3 + job.rank))

    with started(strategy=disagree, ranks=2) as run:
        error, seconds = failure(run)
    assert isinstance(error, wb.CollectiveError) and seconds < 5 * crowding()
    assert "rank 0" in str(error) and "rank 1" in str(error)
