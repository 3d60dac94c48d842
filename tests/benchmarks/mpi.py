"""All-reduce, broadcast and all-gather of float32 against MPICH, in the same processes and turn by
turn; recording on.
"""

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

from tests.benchmarks.figures import Figure
from tests.processes import ROOT

KB, MB = 1 << 10, 1 << 20
SIZES = (64 * KB, 1 * MB, 16 * MB, 64 * MB)  # of the operation's whole
SMALL = 4 * KB
FASTER, SMALL_FACTOR = 1.0, 2.0  # times as fast as MPICH; times its time, through the communicator
ROUNDS = 11
BYTES_A_ROUND = 64 * MB
DEADLINE = 300.0  # seconds for all of a number of ranks
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
Call = Callable[[], Any]


def pairs(rank: int, n: int, nbytes: int) -> dict[str, tuple[Call, Call]]:
    """By operation: what is called of ours, and of MPICH's."""
    from mpi4py import MPI

    world, whole = MPI.COMM_WORLD, torch.zeros(nbytes // 4)
    part, other = torch.zeros(len(whole) // n), torch.zeros(len(whole) // n * n)
    a, b, c = whole.numpy(), part.numpy(), other.numpy()
    return {
        "all_reduce": (
            lambda: dist.all_reduce(whole),
            lambda: world.Allreduce(MPI.IN_PLACE, a, MPI.SUM),
        ),
        "broadcast": (lambda: dist.broadcast(whole, 0), lambda: world.Bcast(a, 0)),
        "all_gather": (lambda: ALL_GATHER(other, part), lambda: world.Allgather(b, c)),
    }


def through_communicator(nbytes: int) -> dict[str, Call]:
    """The same operations as an algorithm's file is called, without torch.distributed around."""
    from workbench.process_group.session import session
    from workbench.recording.events import NOWHERE

    group: Any = dist.distributed_c10d._get_default_group()
    comm, here = group.comm, session()
    x = torch.zeros(nbytes // 4).numpy()
    part = x[: len(x) // comm.size].copy()

    def calling(operation: str, *arguments: Any) -> Call:
        plan = group._plan(operation, torch.float32, len(x), "SUM")
        function = here.algorithm(operation, plan.algorithm)

        def call() -> None:
            op, start = next(group._numbers), time.monotonic_ns()
            comm.begin(operation, plan.algorithm, op, plan.number, NOWHERE, x.shape, "float32")
            function(comm, *arguments)
            comm.end(start, x.nbytes)

        return call

    return {
        "all_reduce": calling("all_reduce", x),
        "broadcast": calling("broadcast", x, 0),
        "all_gather": calling("all_gather", part, x),
    }


def time_both(ours: Call, theirs: Call, calls: int) -> tuple[float, float]:
    """Seconds a call, (ours, MPICH's): the median over rounds of a round's mean; worst rank."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, found in zip((ours, theirs), seconds, strict=True):
            call()
            world.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            found.append((time.perf_counter() - start) / calls)
    mine = (statistics.median(found) for found in seconds)
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
    found = []
    for nbytes in (SMALL, *SIZES):
        calls = max(2, min(200, BYTES_A_ROUND // nbytes))
        direct = through_communicator(nbytes) if nbytes == SMALL else {}
        for name, (ours, theirs) in pairs(rank, n, nbytes).items():
            found.append([name, nbytes, *time_both(direct.get(name, ours), theirs, calls)])
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(found))


def measure() -> list[Figure]:
    if shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None:
        print("MPICH is not there: pip install -e .[bench]")
        return []
    figures = []
    for n in (2, 4):
        for name, nbytes, ours, theirs in _on_ranks(n):
            size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
            detail = f"{ours * 1e6:,.0f} µs, MPICH {theirs * 1e6:,.0f} µs"
            if nbytes == SMALL:
                what, unit = f"{name}, n={n}, {size}, through the communicator", "× MPICH's time"
                figures.append(Figure(what, ours / theirs, SMALL_FACTOR, unit, False, detail))
            else:
                what = f"{name}, n={n}, {size}"
                figures.append(Figure(what, theirs / ours, FASTER, "× MPICH", True, detail))
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
    found: list[tuple[str, int, float, float]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    work(int(sys.argv[1]))
