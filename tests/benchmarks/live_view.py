"""Measure what a live view costs training: 4 ranks of LeNet, with a page that listens and without.

The page receives and discards; a browser that draws on the same cores is not counted. Runs come in
pairs, one right after the other, in turns which of the two is first.
"""

from __future__ import annotations

import json
import statistics

import workbench as wb
from tests.benchmarks.figures import Figure
from workbench.views.packing import Message
from workbench.views.pages.feed import feed

PAIRS = 15
EXPERIMENT = wb.Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=150, batch_size=64
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


def step_ms(page: Page | None) -> float:
    """An iteration's time in a run, shown to ``page`` if there is one."""
    run = wb.run(EXPERIMENT)
    shown = feed(run).join(page.take) if page else None
    if shown:
        shown.hear({"type": "hello"})
    seconds = run.wait(120, progress=False).wall_seconds
    if shown:
        shown.leave()
    return seconds / EXPERIMENT.iterations * 1e3


def measure() -> list[Figure]:
    page, ratios = Page(), []
    times: dict[bool, list[float]] = {True: [], False: []}
    step_ms(None)  # the pool gets warm
    for pair in range(PAIRS):
        for open_ in (True, False) if pair % 2 else (False, True):
            times[open_].append(step_ms(page if open_ else None))
        ratios.append(times[True][-1] / times[False][-1])
    on, off = statistics.median(times[True]), statistics.median(times[False])
    low, _, high = statistics.quantiles(ratios, n=4)
    detail = (
        f"{on:.2f} ms with, {off:.2f} ms without; half of the pairs between "
        f"{(low - 1) * 100:+.1f} % and {(high - 1) * 100:+.1f} %; "
        f"{page.rows / PAIRS:,.0f} rows in {page.messages / PAIRS:,.0f} messages a run"
    )
    added = (statistics.median(ratios) - 1) * 100
    return [Figure("a live view adds to a step, n=4", added, 3, "%", False, detail)]
