"""Checkpoints written beside training: 25 MB per rank, an iteration of 100 ms.

Each of two ranks has parameters of its own (local SGD, without an average in between), so that each
writes all of them. Exposed is what training waits for at a checkpoint: the copy, and the checkpoint
before if it is still being written. What the writer does beside training is hidden.
"""

from __future__ import annotations

import tempfile
from statistics import median

import polars as pl

import workbench as wb
from tools.benchmarks.figures import Figure

RANKS, EVERY, ITERATIONS, ITERATION_MS = 2, 10, 41, 100.0
EXPOSED = ("copy", "wait")


def exposed(*, background: bool) -> tuple[list[float], float, float]:
    """Return milliseconds that training waited at each checkpoint, milliseconds of an iteration in
    between, and the megabytes that a rank writes.
    """
    with tempfile.TemporaryDirectory() as folder:
        exp = wb.Experiment(
            strategy="local_sgd",
            options={"every": 10 * ITERATIONS},
            ranks=RANKS,
            iterations=ITERATIONS,
            batch_size=2 * RANKS,
            threads=1,
            task="mlp_layers",  # six layers of width 1024: 25 MB
            pad_compute=f"{ITERATION_MS:.0f} ms",
            checkpoint=wb.Checkpoint(folder=folder, every=EVERY, background=background),
        )
        run = wb.run(exp)
        run.wait(timeout=110)
    rows = run.events.with_columns(
        pl.col("kind", "name").cast(pl.String),
        ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6,
    )
    done = rows.filter(pl.col("kind") == "checkpoint")
    waited = done.filter(pl.col("name").is_in(EXPOSED))
    each = waited.group_by("rank", "iteration").agg(pl.col("ms").sum())["ms"].to_list()
    ends = rows.filter(pl.col("kind") == "optimizer", pl.col("rank") == 0)
    gaps = ends.sort("iteration")["end_ns"].diff().drop_nulls().to_list()
    size = done.filter(pl.col("name") == "write")["nbytes"].max()
    return each, median(gaps) / 1e6, size / 1e6  # type: ignore[operator,return-value]


def measure() -> list[Figure]:
    """Measure both ways of writing, in the background first."""
    each, iteration, size = exposed(background=True)
    waited, *_ = exposed(background=False)
    wb.shutdown()
    copies = f"{len(each)} copies, the shortest {min(each):.1f} ms"
    detail = f"{size:.1f} MB per rank, {copies}, an iteration of {iteration:.0f} ms"
    share = 100 * median(each) / ITERATION_MS
    return [
        Figure("exposed, of 100 ms", share, 5.0, "%", False, detail),
        Figure("not in the background", 100 * median(waited) / ITERATION_MS, None, "%", False),
    ]
