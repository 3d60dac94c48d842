"""A ring all-reduce of two hosts of two ranks: chunks between hosts over MPI, and over Gloo.

Both in the same processes and turn by turn, recording on; within hosts chunks go through shared
memory. First the hosts are this machine under two names, with TCP between them; then two network
namespaces with a cable of 100 Mbit/s and 2 ms (hosts.py).
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

from tests.launchers.two_hosts import APART, on_two_hosts
from tests.processes import ROOT
from tools.benchmarks import hosts
from tools.benchmarks.figures import Figure

KB, MB = 1 << 10, 1 << 20
ROUNDS = {64 * KB: 41, 1 * MB: 31, 25 * MB: 11}
ROUNDS_OVER_CABLE = {64 * KB: 21, 1 * MB: 11, 25 * MB: 3}
TRANSPORTS = ("mpi", "gloo")
FASTER = {64 * KB: 1.5, 1 * MB: 0.9, 25 * MB: 0.9}  # times as fast as Gloo
# Instead of ssh, by which MPICH's mpiexec starts processes on other hosts.
REMOTE = """#!/bin/sh
while [ "$1" != "${1#-}" ]; do shift; done
place=$((${1##*.} - 1))
shift
export WORKBENCH_HOST="host $place" GLOO_SOCKET_IFNAME=wbc$place FI_TCP_IFACE=wbc$place
exec ip netns exec wb-host-$place sh -c "$*"
"""
DEADLINE = 300.0  # seconds


def work(over_cable: bool) -> None:
    """Run on every rank that mpiexec starts; rank 0 prints [bytes, seconds over MPI, over Gloo]."""
    torch.set_num_threads(1)
    os.environ["WORKBENCH_ALL_REDUCE"] = "ring"
    dist.init_process_group("workbench")
    ranks, groups = [*range(dist.get_world_size())], {}
    for name in TRANSPORTS:
        os.environ["WORKBENCH_BETWEEN_HOSTS"] = name
        groups[name] = dist.new_group(ranks)
    table = []
    for nbytes, rounds in (ROUNDS_OVER_CABLE if over_cable else ROUNDS).items():
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
    on_one = [mpiexec, "-n", "4", sys.executable, "-m", __name__]
    figures = [
        _figure(nbytes, mpi, gloo, "")
        for nbytes, mpi, gloo in _table(on_two_hosts(on_one), **APART, GLOO_SOCKET_IFNAME="lo")
    ]
    if why := hosts.missing():
        print(f"not measured over a cable: {why}")
        return figures
    with hosts.namespaces(), tempfile.TemporaryDirectory() as folder:
        remote = Path(folder, "remote")
        remote.write_text(REMOTE)
        remote.chmod(0o755)
        words = [mpiexec, "-launcher", "ssh", "-launcher-exec", str(remote)]
        words += ["-localhost", f"{hosts.NET}.254", "-n", "4"]
        words += ["-hosts", ",".join(f"{hosts.NET}.{place + 1}:2" for place in range(hosts.HOSTS))]
        words += [sys.executable, "-m", __name__, "cable"]
        for nbytes, mpi, gloo in _table(words, **APART):
            theory = hosts.by_theory("ring", "in blocks", nbytes)
            figures.append(
                _figure(nbytes, mpi, gloo, f"cable of 100 Mbit/s, theory {theory:.3f} s")
            )
    return figures


def _table(words: list[str], **environment: str) -> list[tuple[int, float, float]]:
    """Return what rank 0 of the ranks that mpiexec starts has printed."""
    with tempfile.TemporaryDirectory() as trace:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, **environment, "WORKBENCH_TRACE": trace},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
    table: list[tuple[int, float, float]] = json.loads(done.stdout)
    return table


def _figure(nbytes: int, mpi: float, gloo: float, where: str) -> Figure:
    size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
    detail = f"MPI {mpi * 1e3:.2f} ms, Gloo {gloo * 1e3:.2f} ms{', ' * bool(where)}{where}"
    what = f"2×2 ranks, {size}{', cable' * bool(where)}"
    return Figure(what, gloo / mpi, 0.9 if where else FASTER[nbytes], "× Gloo", True, detail)


if __name__ == "__main__":
    work(sys.argv[1:] == ["cable"])
