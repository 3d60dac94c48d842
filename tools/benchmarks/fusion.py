"""Fusion: 200 small gradients in one buffer against one all-reduce each."""

from __future__ import annotations

import statistics

import polars as pl

import workbench as wb
from tools.benchmarks.figures import Figure

ROUNDS, ITERATIONS, SKIPPED = 5, 60, 10
WAYS = {"each": "0 MB", "fused": "64 MB"}


def seconds(threshold: str, ranks: int) -> tuple[float, float]:
    """Of an iteration, and of what lies in it between backward and update: medians over rank 0's
    iterations.
    """
    exp = wb.Experiment(
        strategy="fusion",
        task="mlp_layers",
        task_options={"layers": 100, "width": 32},
        ranks=ranks,
        iterations=ITERATIONS,
        batch_size=8 * ranks,
        options={"threshold": threshold},
    )
    run = wb.run(exp)
    run.wait(timeout=120)
    p, kind = pl.col, pl.col("kind").cast(pl.String)
    rows = (
        run.events.filter(p("rank") == 0, p("iteration") >= SKIPPED)
        .group_by("iteration")
        .agg(
            begins=p("start_ns").filter(kind == "load").min(),
            shares=p("end_ns").filter(kind == "backward").max(),
            # What computes last after backward is the update; copies are the cost of fusing.
            updates=p("start_ns").filter(kind == "optimizer").max(),
            ends=p("end_ns").filter(kind == "optimizer").max(),
        )
    )
    spans = rows.select(whole=p("ends") - p("begins"), shared=p("updates") - p("shares"))
    return spans["whole"].median() * 1e-9, spans["shared"].median() * 1e-9  # type: ignore[operator]


def measure() -> list[Figure]:
    """Gradients as they come, turn about, so that the machine's mood hits both."""
    figures = []
    for ranks in (2, 4):
        samples: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, threshold in WAYS.items():
                samples[way].append(seconds(threshold, ranks))
        median = {
            way: [statistics.median(column) for column in zip(*each, strict=True)]
            for way, each in samples.items()
        }
        for at, what in enumerate(("a whole iteration", "sharing the gradients")):
            each, fused = median["each"][at], median["fused"][at]
            detail = f"{each * 1e3:.2f} ms, fused {fused * 1e3:.2f} ms"
            figures.append(
                Figure(f"{what}, n={ranks}, 200 tensors", each / fused, 2.0, "×", True, detail)
            )
    wb.shutdown()
    return figures
