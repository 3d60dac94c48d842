"""A ring all-reduce of two hosts of two ranks: chunks between hosts over MPI, and over Gloo.

Both in the same processes and turn by turn, recording on. The hosts are this machine under two
names, with TCP between them for both; within them chunks go through shared memory.
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
from pathlib import Path

import torch
import torch.distributed as dist

from tests.benchmarks.figures import Figure
from tests.launchers.two_hosts import APART, on_two_hosts
from tests.processes import ROOT

KB, MB = 1 << 10, 1 << 20
ROUNDS = {64 * KB: 41, 1 * MB: 31, 25 * MB: 11}
TRANSPORTS = ("mpi", "gloo")
FASTER = {64 * KB: 1.5, 1 * MB: 0.9, 25 * MB: 0.9}  # times as fast as Gloo
DEADLINE = 300.0  # seconds


def work() -> None:
    """Run on every rank that mpiexec starts; rank 0 prints [bytes, seconds over MPI, over Gloo]."""
    torch.set_num_threads(1)
    os.environ["WORKBENCH_ALL_REDUCE"] = "ring"
    dist.init_process_group("workbench")
    ranks, groups = [*range(dist.get_world_size())], {}
    for name in TRANSPORTS:
        os.environ["WORKBENCH_BETWEEN_HOSTS"] = name
        groups[name] = dist.new_group(ranks)
    table = []
    for nbytes, rounds in ROUNDS.items():
        x = torch.zeros(nbytes // 4)
        seconds: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
        for number in range(rounds):
            for name in TRANSPORTS[:: 1 if number % 2 else -1]:
                dist.barrier()
                start = time.perf_counter()
                dist.all_reduce(x, group=groups[name])
                seconds[name].append(time.perf_counter() - start)
        medians = torch.tensor([statistics.median(seconds[name]) for name in TRANSPORTS])
        dist.all_reduce(medians, dist.ReduceOp.MAX)
        table.append([nbytes, *medians.tolist()])
    if dist.get_rank() == 0:
        print(json.dumps(table))
    dist.destroy_process_group()


def measure() -> list[Figure]:
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if mpiexec is None:
        print("MPICH is not there: pip install -e .[bench]")
        return []
    with tempfile.TemporaryDirectory() as trace:
        done = subprocess.run(
            on_two_hosts([mpiexec, "-n", "4", sys.executable, "-m", __name__]),
            cwd=ROOT,
            env={**os.environ, **APART, "WORKBENCH_TRACE": trace, "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
    figures = []
    for nbytes, mpi, gloo in json.loads(done.stdout):
        size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
        detail = f"MPI {mpi * 1e3:.2f} ms, Gloo {gloo * 1e3:.2f} ms"
        figures.append(
            Figure(f"2×2 ranks, {size}", gloo / mpi, FASTER[nbytes], "× Gloo", True, detail)
        )
    return figures


if __name__ == "__main__":
    work()
