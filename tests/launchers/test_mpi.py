"""Chunks between hosts over MPI: the laws, the losses and the errors of the other transports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch.distributed as dist

import workbench as wb
from tests.launchers.test_other_launchers import BIN, EVER, left_over, parent_of, wait_for
from tests.launchers.test_other_launchers import mark as mark
from tests.launchers.two_hosts import APART, on_two_hosts
from tests.processes import command, values
from workbench import laws
from workbench.common.errors import PeerLost, RunTimeout, SpecError
from workbench.launchers import mpiexec

LAUNCHER = f"{Path(__file__).parent}/two_hosts.py:Launcher"
SMALL: dict[str, Any] = {
    "task": "mlp_layers",
    "task_options": {"width": 64, "layers": 4},
    "ranks": 4,
    "iterations": 4,
    "batch_size": 12,
    "seed": 5,
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "data parallel": {},
    "hierarchical": {"all_reduce": "hierarchical", "dtype": "float64"},
    "parameter server": {"strategy": "parameter_server", "dtype": "float64"},
    "pipeline": {"strategy": "pipeline", "options": {"microbatches": 3, "split": "layers"}},
}
WITHIN = 1e-12  # of float64, where the order of additions follows from the hosts

TRAFFIC = """
import json, os, sys
import torch.distributed as dist
from tests.transports.test_transports import _kinds, _traffic
dist.init_process_group("workbench")
rank, n = dist.get_rank(), dist.get_world_size()
result = {"kinds": _kinds(rank, n), **_traffic(rank, n)}
group = dist.new_group([0, 2])  # in which MPI has begun already
if rank in (0, 2):
    dist.barrier(group)
    result["kind"] = type(group.members.outbox(1 - rank // 2)).__name__
    dist.destroy_process_group(group)
dist.barrier()
dist.destroy_process_group()
os.write(1, f"{rank} {json.dumps(result)}\\n".encode())
"""


def on_two(code: str, ranks: int, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the code on ranks that mpiexec starts, half of them on each host."""
    words = [str(BIN / "mpiexec"), "-n", str(ranks), sys.executable, "-c", code]
    return command(on_two_hosts(words), GLOO_SOCKET_IFNAME="lo", **env, **APART)


@pytest.mark.full
def test_the_laws_hold_between_hosts_over_mpi(tmp_path: Path) -> None:
    """A script that mpiexec starts on two hosts, and that says nothing of MPI."""
    done = on_two(TRAFFIC, 4, WORKBENCH_TRACE=str(tmp_path), WORKBENCH_CHUNK="1024")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    totals = {int(rank): json.loads(text) for rank, text in lines}
    assert [*sorted(totals)] == [0, 1, 2, 3] and done.returncode == 0, done
    for rank, total in totals.items():
        near = {str(rank ^ 1): "Shared"}
        assert total["kinds"] == {str(peer): "Mpi" for peer in range(4) if peer != rank} | near
    assert {totals[rank]["kind"] for rank in (0, 2)} == {"MpiOutbox"}
    events = wb.load(tmp_path).events
    assert laws.check_events(events) == []
    sent = events.filter(kind="send").group_by("rank").agg(pl.col("nbytes").sum())
    for rank, nbytes in sent.rows():
        assert (totals[rank]["moved"], totals[rank]["sent"]) == (nbytes, nbytes)
    assert len(sent) == 4


MANY = """
import time
import torch
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("workbench", timeout=timedelta(seconds=10))
x, other = torch.zeros(8), 1 - dist.get_rank()
for number in range(6000):
    if dist.get_rank():
        dist.recv(x, other)
    dist.send(x, other)
    if not dist.get_rank():
        dist.recv(x, other)
    if number % 50 == 0:
        time.sleep(0.004 * (number % 7))
dist.destroy_process_group()
"""


@pytest.mark.cluster
def test_of_many_short_waits_none_lasts() -> None:
    done = on_two(MANY, 2)
    assert done.returncode == 0, done


LAST = """
import time
import torch
import torch.distributed as dist
from workbench.transports.mpi import MpiInbox
ended = MpiInbox._ended
def slowly(box):
    if done := ended(box):
        time.sleep(0.5)  # as on busy cores: received, and not handed on
    return done
MpiInbox._ended = slowly
dist.init_process_group("workbench")
x = torch.full((8,), float(dist.get_rank()))
if dist.get_rank():
    dist.send(x, 0)
else:
    dist.recv(x, 1)
    assert x.tolist() == [1.0] * 8
dist.destroy_process_group()
"""


@pytest.mark.cluster
def test_what_a_rank_sends_last_arrives_before_its_farewell() -> None:
    done = on_two(LAST, 2)
    assert done.returncode == 0, done


@pytest.mark.cluster
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_losses_are_those_of_local_ranks(strategy: str, mark: str) -> None:
    exp = wb.Experiment(**SMALL | STRATEGIES[strategy])
    options = {"between_hosts": "mpi"}  # an error where there is none
    run = wb.run(exp.replace(launcher=LAUNCHER, launcher_options=options))
    result = run.wait(300)
    assert not left_over(mark)
    assert run.store.metadata["between hosts"] == "MPI"
    here = wb.run(exp).wait(120)
    if exp.dtype == "float64":
        assert result.losses == pytest.approx(here.losses, rel=WITHIN)
    else:
        assert result.losses == here.losses, "to the bit"
    if strategy != "hierarchical":  # which goes by the hosts
        assert result.bytes_sent == here.bytes_sent
    assert run.dropped == 0 and laws.check_events(run.events) == []
    crossed = run.events.filter(pl.col("rank") // 2 != pl.col("peer") // 2)
    assert {"send", "recv"} <= {*crossed["kind"].unique().to_list()}


@pytest.mark.cluster
def test_a_killed_rank_is_named_and_nothing_is_left(mark: str) -> None:
    exp = wb.Experiment(**SMALL | {"iterations": EVER, "launcher": LAUNCHER})
    run = wb.run(exp.replace(launcher_options={"between_hosts": "mpi"}))
    wait_for(lambda: run.iteration > 2 or run.done)
    run.kill(1)
    result = run.wait(120, check=False)
    assert isinstance(result.error, PeerLost), result.error
    words = str(result.error)
    assert "rank 1" in words and "SIGKILL" in words
    # Its peer on the other host has seen it by itself, and has lived to say so.
    assert result.error.rank == 1 and "ended while rank 2 was in all_reduce" in words
    assert not left_over(mark)


@pytest.mark.cluster
def test_a_rank_that_stops_is_named_in_time(mark: str) -> None:
    exp = wb.Experiment(**SMALL | {"iterations": EVER, "launcher": LAUNCHER, "timeout": "3 s"})
    run = wb.run(exp.replace(launcher_options={"between_hosts": "mpi"}))
    wait_for(lambda: run.iteration > 2 or run.done)
    os.kill(run.pids[1], signal.SIGSTOP)
    error = run.wait(120, check=False).error
    assert isinstance(error, RunTimeout), error
    assert "rank 1" in str(error) and "stopped (SIGSTOP)" in str(error)
    assert not left_over(mark)


@pytest.mark.cluster
def test_an_agent_stays_until_the_run_is_over(mark: str) -> None:
    """Of a rank that has begun MPI, mpiexec would end the other ranks with its agent."""
    launcher = mpiexec.Launcher()
    launcher.configure(mpiexec.Config(), 1)
    first, second = launcher.take(range(2))
    agent = parent_of(first.pid)
    first.close()
    wait_for(lambda: first.code is not None)
    time.sleep(1)
    assert parent_of(agent) and second.code is None
    second.close()
    wait_for(lambda: second.code is not None)
    launcher.close(2)
    assert not left_over(mark)


def _asks(rank: int, n: int) -> str:
    try:
        dist.init_process_group("workbench")
    except wb.WorkbenchError as error:
        return str(error)
    return "nothing"


def test_mpi_is_refused_where_no_mpiexec_has_started_the_ranks() -> None:
    def env(rank: int) -> dict[str, str]:
        return {"WORKBENCH_HOST": str(rank), "WORKBENCH_BETWEEN_HOSTS": "mpi"}

    words = "to go over MPI, and rank 0 cannot: no mpiexec has started it"
    assert all(words in one for one in values(_asks, 2, env=env, backend=""))


def test_mpi_without_its_package_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr(mpiexec, "find_spec", lambda name: None)
    options = {"between_hosts": "mpi"}
    with pytest.raises(SpecError, match=r"between_hosts.*needs the package mpi4py.*pip install"):
        wb.run(wb.Experiment(**SMALL | {"launcher": "mpiexec", "launcher_options": options}))
    assert not left_over(mark)
