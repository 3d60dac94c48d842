"""Elephas under Spark and on local ranks: loss, wall time, bytes; what a Spark job per round costs.

The same rows in the same partitions. Were each round a Spark job, as the synchronous mode of
Elephas is one for all epochs, it would broadcast the parameters and collect what each partition
returns. Such a job is timed here without any training: Spark's scheduling and the
transfers are left.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.tasks.lenet_digits import Task

WORKERS = 3
SAMPLES = 3
ROUNDS = 10
MODES = "synchronous", "asynchronous", "hogwild"


def rows(spark: Any) -> Any:
    """Return the digits in three partitions: an RDD, or lists."""
    samples = [(image.numpy(), int(label)) for image, label in Task().dataset("train")]  # type: ignore[attr-defined]
    edges = [number * len(samples) // WORKERS for number in range(WORKERS + 1)]
    parts = [samples[begin:end] for begin, end in pairwise(edges)]
    if spark is None:
        return parts

    def of(number: int, _: Iterator[Any]) -> Iterator[Any]:
        return iter(parts[number])

    numbers = spark.sparkContext.parallelize(range(WORKERS), WORKERS)
    return numbers.mapPartitionsWithIndex(of)


def measure() -> list[Figure]:
    """Return a figure per mode, frequency and launcher, and one of a job per round."""
    if not find_spec("pyspark") or not shutil.which("java"):
        return []
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    figures = [
        figure
        for mode in MODES
        for frequency in ("epoch", "batch")
        for figure in _both(mode, frequency)
    ]
    figures.append(_jobs(session))
    session.stop()
    return figures


def _both(mode: str, frequency: str) -> list[Figure]:
    """Run an experiment under Spark and on local ranks in turn."""
    results: dict[str, list[wb.Result]] = {"spark": [], "local": []}
    loads = []
    for _ in range(SAMPLES):
        for launcher, those in results.items():
            exp = wb.Experiment(
                strategy="elephas",
                ranks=1 + WORKERS,
                iterations=90,
                batch_size=48,
                pad_compute="10 ms",
                launcher=launcher,
                options={"mode": mode, "frequency": frequency, "rows": f"{__file__}:rows"},
            )
            those.append(wb.run(exp).wait(240, progress=False))
            loads.append(os.getloadavg()[0])
    figures = []
    for launcher, those in results.items():
        seconds = statistics.median(one.wall_seconds for one in those)
        losses = statistics.median(float(np.mean(one.losses[-9:])) for one in those)
        sent = sum(those[0].bytes_sent.values())
        detail = (
            f"loss {losses:.3f} (mean of the last tenth), {sent / 1e6:.2f} MB sent, "
            f"load {min(loads):.0f} to {max(loads):.0f}"
        )
        name = f"{mode}, {frequency}, {launcher}"
        figures.append(Figure(name, seconds, None, "s", False, detail))
    return figures


def _jobs(session: Any) -> Figure:
    """Time Spark jobs that train nothing: parameters to each partition, as many bytes back."""
    context = session.sparkContext
    data = rows(session).cache()
    data.count()
    values = np.zeros(sum(one.numel() for one in Task().model().parameters()), np.float32)
    seconds = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        sent = context.broadcast(values)

        def train(part: Iterator[Any], sent: Any = sent) -> Iterator[Any]:
            len(list(part))
            yield sent.value

        data.mapPartitions(train).collect()
        seconds.append(time.monotonic() - begin)
        sent.unpersist()
    detail = f"{min(seconds):.2f} to {max(seconds):.2f} s, load {os.getloadavg()[0]:.0f}"
    return Figure("a Spark job per round", statistics.median(seconds), None, "s", False, detail)
