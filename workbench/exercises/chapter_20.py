"""Exercises of chapter 20: your own job, under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from workbench.exercises.answers import choice, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.verdict import Finding, equal, timed
from workbench.runs.loaded import load

SCRIPT = """
import gc
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
for step in range(12 - {leaves_early} * (rank == 1)):
    x = torch.randn(32, 64)
    time.sleep({sleep_s} * rank)
    model(x).square().mean().backward()
del model
gc.collect()
dist.destroy_process_group()
"""


def torchrun(folder: Path, ranks: int, **values: float) -> subprocess.CompletedProcess[str]:
    """Start the script on so many ranks, over the workbench's backend, with a trace in
    ``folder/trace``; ``values`` stand in the script.
    """
    script = folder / "train.py"
    script.write_text(
        SCRIPT.format(**{"leaves_early": 0, "sleep_s": 0.0, **values}), encoding="utf-8"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    mine = {"WORKBENCH_DEFAULT": "1", "WORKBENCH_TRACE": str(folder / "trace")}
    return subprocess.run(
        [*command, f"--nproc-per-node={ranks}", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **mine},
        capture_output=True,
        text=True,
        timeout=120,
        errors="replace",
    )


def leaves_early(answer: str) -> list[Finding]:
    """Judge by how a job ends whose rank 1 leaves its loop an iteration before rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        ended = torchrun(Path(folder), 2, leaves_early=1)
    outcome = "ends with an error" if ended.returncode else "ends as usual"
    message = next((line for line in ended.stderr.splitlines() if "PeerLost" in line), "")
    why = (
        "Its last all-reduce needs a part of rank 1, which has left the group. With samples that "
        f"end unevenly a loop needs Join, or all ranks agree on its length. {message[:200]}"
    )
    return [equal("rank 0", outcome, answer, why.strip())]


def late_in_turn(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by the script's own delays; show how long each rank was blocked in its calls."""
    with tempfile.TemporaryDirectory() as folder:
        torchrun(Path(folder), 4, sleep_s=0.02).check_returncode()
        calls = load(str(Path(folder) / "trace")).calls(by_rank=True)
    gradients = calls.filter(pl.col("nbytes") == 4 * (64 * 8 + 8), collective="all_reduce")
    waited = gradients.group_by("rank").agg(pl.col("waited_ms").median())
    measured = dict(waited.rows())
    why = (
        "All wait for the last one, which comes 60 ms after the first. It does not wait, so the "
        "rank that waits least is the one to look at."
    )
    return [
        timed("ms that rank 0 waits", 60, measured[0], answer["first"], 0.1),
        timed("ms that rank 3 waits", 0, measured[3], answer["last"], 0.1, why),
    ]


EXERCISES = (
    Exercise(
        name="20.1",
        title="One iteration too few",
        difficulty=1,
        minutes=10,
        takes=choice("waits for ever", "ends with an error", "ends as usual"),
        judge=leaves_early,
        task="""
            In the script, let rank 1 leave its loop an iteration early: `range(20 - (rank == 1))`.
            What happens to rank 0? The grader starts such a job with `torchrun`.
            """,
        hint="Which call of rank 0 has no partner? And what does rank 1 do after its loop?",
        solution="""
            It ends with an error: rank 1 has left the group and its process is over, so the call
            that waits for it learns that its peer is lost. Were rank 1 still alive, and busy with
            something else, rank 0 would wait until the group's timeout.
            """,
    ),
    Exercise(
        name="20.2",
        title="Late, one after the other",
        difficulty=2,
        minutes=10,
        takes=numbers("first", "last"),
        judge=late_in_turn,
        task="""
            Four ranks, and rank $r$ sleeps for $20\\,r$ ms before each backward pass:
            `time.sleep(0.02 * rank)`. How many milliseconds does the first rank (0) wait in each
            all-reduce of the gradient, and how many the last (3)?
            """,
        hint="An all-reduce ends when the last one has given its part. When does each begin?",
        solution="60 ms and 0: the first arrives 60 ms before the last, for which all others wait.",
    ),
)
