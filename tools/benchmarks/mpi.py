"""Collectives of float32 against MPICH, in the same processes and turn by turn; recording on."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.processes import ROOT
from tools.benchmarks.figures import Figure
from workbench.common.torch_names import all_gather_single, reduce_scatter_single

KB, MB = 1 << 10, 1 << 20
SIZES = (4 * KB, 64 * KB, 256 * KB, 1 * MB, 4 * MB, 16 * MB, 64 * MB)  # of the operation's whole
FASTER = {  # times as fast as MPICH: an all-reduce, by ranks
    2: {4 * KB: 0.45, 64 * KB: 1.05, 1 * MB: 1.2, 16 * MB: 1.4},
    4: {4 * KB: 0.8, 64 * KB: 1.3, 1 * MB: 1.3, 16 * MB: 1.8},
}
OTHERS, FROM = 0.9, 64 * KB  # the other operations, from this size on
ROUNDS = 11
BYTES_A_ROUND = 64 * MB
DEADLINE = 300.0  # seconds for all of a number of ranks
Call = Callable[[], Any]


def pairs(rank: int, n: int, nbytes: int) -> dict[str, tuple[Call, Call]]:
    """By operation: what is called of ours, and of MPICH's."""
    from mpi4py import MPI

    world, whole = MPI.COMM_WORLD, torch.zeros(nbytes // 4)
    part, other = torch.zeros(len(whole) // n), torch.zeros(len(whole) // n * n)
    a, b, c = whole.numpy(), part.numpy(), other.numpy()
    received = torch.zeros_like(whole)
    d = received.numpy()
    return {
        "all_reduce": (
            lambda: dist.all_reduce(whole),
            lambda: world.Allreduce(MPI.IN_PLACE, a, MPI.SUM),
        ),
        "broadcast": (lambda: dist.broadcast(whole, 0), lambda: world.Bcast(a, 0)),
        "all_gather": (lambda: all_gather_single(other, part), lambda: world.Allgather(b, c)),
        "reduce_scatter": (
            lambda: reduce_scatter_single(part, other),
            lambda: world.Reduce_scatter_block(c, b, MPI.SUM),
        ),
        "all_to_all": (
            lambda: dist.all_to_all_single(received, whole),
            lambda: world.Alltoall(a, d),
        ),
    }


def time_both(ours: Call, theirs: Call, calls: int) -> tuple[float, float]:
    """Seconds a call, (ours, MPICH's): the median over rounds of a round's mean; worst rank."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, times in zip((ours, theirs), seconds, strict=True):
            call()
            world.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - start) / calls)
    mine = (statistics.median(times) for times in seconds)
    a, b = (world.allreduce(value, MPI.MAX) for value in mine)
    return a, b


def work(port: int) -> None:
    """On every rank that mpiexec starts; rank 0 prints what was found."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, n = world.Get_rank(), world.Get_size()
    torch.set_num_threads(1)
    import workbench  # noqa: F401

    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("workbench", store=store, rank=rank, world_size=n)
    table = []
    for nbytes in SIZES:
        calls = max(2, min(200, BYTES_A_ROUND // nbytes))
        for name, (ours, theirs) in pairs(rank, n, nbytes).items():
            table.append([name, nbytes, *time_both(ours, theirs, calls)])
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(table))


def measure() -> list[Figure]:
    if shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None:
        print("MPICH is not there: pip install -e .[bench]")
        return []
    figures = []
    for n in (2, 4):
        for name, nbytes, ours, theirs in _on_ranks(n):
            size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
            detail = f"{ours * 1e6:,.0f} µs, MPICH {theirs * 1e6:,.0f} µs"
            target = OTHERS if nbytes >= FROM else None
            if name == "all_reduce":
                target = FASTER[n].get(nbytes)
            what = f"{name}, n={n}, {size}"
            figures.append(Figure(what, theirs / ours, target, "× MPICH", True, detail))
    return figures


def _on_ranks(n: int) -> list[tuple[str, int, float, float]]:
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as trace:
        environment = {**os.environ, "WORKBENCH_TRACE": trace, "GLOO_SOCKET_IFNAME": "lo"}
        words = [mpiexec, "-n", str(n), sys.executable, "-m", __name__, str(store.port)]
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
    table: list[tuple[str, int, float, float]] = json.loads(done.stdout)
    return table


if __name__ == "__main__":
    work(int(sys.argv[1]))
