"""Recovery: from a kill to the first iteration that is done after it, against torchrun over Gloo.

The same LeNet on the same digits, four ranks, rank 2 killed in iteration 10. torchrun ends the
others, starts all again, and they load the checkpoint of iteration 10.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

import workbench as wb
from tools.benchmarks.figures import Figure

ROUNDS, RANKS, VICTIM, AT, ITERATIONS = 5, 4, 2, 10, 20
TARGETS_MS = {"shrink": 100.0, "replace": 500.0}
JOB = """
import os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from workbench.tasks.lenet_digits import Task

folder, victim, at, iterations = Path(sys.argv[1]), *map(int, sys.argv[2:])
torch.set_num_threads(1)
# Keys of its own for each attempt: Gloo would meet addresses of the attempt before.
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], int(os.environ["RANK"])
at_agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
store = dist.PrefixStore("attempt " + attempt, at_agent)
dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
first = 0
torch.manual_seed(0)
task = Task()
data, model = task.dataset("train"), task.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if (folder / "snapshot").exists():
    kept = torch.load(folder / "snapshot", weights_only=True)
    model.load_state_dict(kept["model"])
    first = kept["iteration"]
model = DistributedDataParallel(model)
for iteration in range(first, iterations):
    if iteration == at and first == 0:
        if rank == 0:
            kept = {"model": model.module.state_dict(), "iteration": at}
            torch.save(kept, folder / "snapshot")
        dist.barrier()
        if rank == victim:
            (folder / "killed").write_text(str(time.monotonic_ns()))
            os.kill(os.getpid(), signal.SIGKILL)
    ids = range(64 * iteration + rank, 64 * (iteration + 1), dist.get_world_size())
    batch = torch.utils.data.default_collate([data[i % len(data)] for i in ids])
    optimizer.zero_grad()
    task.loss(model, batch).backward()
    optimizer.step()
    if first and iteration == first:
        (folder / f"first {rank}").write_text(str(time.monotonic_ns()))
dist.destroy_process_group()
"""


def ours(policy: str) -> tuple[float, float, float]:
    """Return milliseconds from the kill to its detection, from there to the first iteration that
    all members have done, and from the kill to that.
    """
    kill = wb.Kill(rank=VICTIM, at_iteration=AT)
    exp = wb.Experiment(
        strategy="ddp",
        ranks=RANKS,
        iterations=ITERATIONS,
        batch_size=64,
        threads=1,
        recovery=policy,
        faults=kill,
    )
    run = wb.run(exp)
    run.wait(timeout=120)
    rows = run.events.with_columns(pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String))
    fault = rows.filter(pl.col("kind") == "fault")["start_ns"].min()
    detect = rows.filter((pl.col("kind") == "detect") & (pl.col("rank") < 0))["start_ns"].min()
    done = rows.filter((pl.col("kind") == "optimizer") & (pl.col("iteration") == AT))
    first = done.filter(pl.col("generation") == 1)["end_ns"].max()
    assert fault is not None and detect is not None and first is not None
    first_detect = rows.filter(pl.col("kind") == "detect")[
        "start_ns"
    ].min()  # by a rank or the driver
    assert first_detect is not None
    return (first_detect - fault) / 1e6, (first - first_detect) / 1e6, (first - fault) / 1e6  # type: ignore[operator]


def torchruns() -> float:
    """Return milliseconds from the kill to the first iteration that all ranks have done."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "job.py").write_text(JOB)
        words = ["--standalone", "--max-restarts=5"]
        subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", *words),
                *(f"--nproc-per-node={RANKS}", str(folder / "job.py"), place),
                *map(str, (VICTIM, AT, ITERATIONS)),
            ],
            check=True,
            capture_output=True,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        last = max(int((folder / f"first {rank}").read_text()) for rank in range(RANKS))
        return (last - int((folder / "killed").read_text())) / 1e6


def measure() -> list[Figure]:
    """Measure both, turn about."""
    mine: dict[str, list[tuple[float, float, float]]] = {"shrink": [], "replace": []}
    theirs = []
    ours("replace")  # the pool learns what its processes can inherit
    for _ in range(ROUNDS):
        for policy, times in mine.items():
            times.append(ours(policy))
        theirs.append(torchruns())
    wb.shutdown()
    peer, figures = statistics.median(theirs), []
    for policy, times in mine.items():
        detect, after, whole = (statistics.median(column) for column in zip(*times, strict=True))
        each = ", ".join(f"{one[1]:.0f}" for one in times)
        detail = f"{whole:.0f} ms from the kill; torchrun {peer:,.0f} ms"
        target = TARGETS_MS[policy]
        figures += [
            Figure(f"{policy}: kill to detection", detect, 50.0, "ms", False),
            Figure(f"{policy}: to the first iteration", after, target, "ms", False, each),
            Figure(f"{policy}: torchrun / ours", peer / whole, 20.0, "×", True, detail),
        ]
    return figures
