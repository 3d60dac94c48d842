"""Measure what a live view costs training: 4 ranks of LeNet, with a page that listens and without.

The page receives and discards; a browser that draws on the same cores is not counted. One run, to
which the page comes and goes: without, with, with, without ... So what else the machine does meets
both alike, and the measurement takes as long on a busy machine.
"""

from __future__ import annotations

import json
import statistics
import time

import polars as pl

import workbench as wb
from tests.live import over_in_the_end, training, until
from tools.benchmarks.figures import Figure
from workbench.views.packing import Message
from workbench.views.pages.feed import feed

PAIRS = 8
SETTLES, MEASURED = 0.3, 0.8  # seconds after a page has come or gone, and those that count
EXPERIMENT = wb.Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=100_000, batch_size=64
)


class Page:
    """Receives as a host does, header as JSON and rows as bytes, and keeps nothing."""

    def __init__(self) -> None:
        self.messages = self.rows = self.nbytes = 0

    def take(self, message: Message) -> None:
        text = json.dumps(message.header)
        self.messages += 1
        self.rows += message.header["rows"]
        self.nbytes += len(text) + len(message.payload)


def window(page: Page | None) -> tuple[int, int]:
    """Return from when to when time has passed. ``page``: has begun to listen."""
    if page:
        until(lambda: page.messages, 20, "it has the rows of what was before")
    time.sleep(SETTLES)
    if page:
        page.messages = page.rows = 0
    begin = time.monotonic_ns()
    time.sleep(MEASURED)
    return begin, time.monotonic_ns()


def windows(run: wb.Run) -> tuple[dict[bool, list[tuple[int, int]]], Page]:
    """Return when a page listened to the run (True) and when not, and the last such page."""
    times: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for pair in range(PAIRS):
        for listens in (True, False) if pair % 2 else (False, True):
            if not listens:
                times[False].append(window(None))
                continue
            shown = feed(run).join((page := Page()).take)
            shown.hear({"type": "hello"})
            times[True].append(window(page))
            shown.leave()
    return times, page


def step_ms(ends: pl.Series, window: tuple[int, int]) -> float:
    """Return the mean time from one iteration's end to the next within a window."""
    within = ends.filter(ends.is_between(*window))
    assert len(within) > 1, f"{len(within)} iterations in {MEASURED} s: the machine is too busy"
    return float(within[-1] - within[0]) / (len(within) - 1) / 1e6


def measure() -> list[Figure]:
    with over_in_the_end(wb.run(EXPERIMENT)) as run:
        times, page = windows(training(run))
        run.stop()
        run.wait(60, progress=False)
    of = (pl.col("rank") == 0) & (pl.col("kind").cast(pl.String) == "optimizer")
    ends = run.events.filter(of)["end_ns"].sort()
    on, off = ([step_ms(ends, one) for one in times[listens]] for listens in (True, False))
    ratios = [with_page / without for with_page, without in zip(on, off, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    detail = (
        f"{statistics.median(on):.2f} ms with, {statistics.median(off):.2f} ms without; half of "
        f"{PAIRS} pairs between {(low - 1) * 100:+.1f} % and {(high - 1) * 100:+.1f} %; "
        f"{page.rows:,} rows in {page.messages:,} messages in {MEASURED} s"
    )
    added = (statistics.median(ratios) - 1) * 100
    return [Figure("a live view adds to a step, n=4", added, 3, "%", False, detail)]
