"""A web page that watches sixteen ranks at 200,000 events per second, a million events behind it.

The rows are made here, as the collector hands them over: 25 times per second, of the last 40 ms.
What is measured is everything after it: store, feed, web socket, page.
``tools/benchmarks/stage.py`` runs this file and looks at the page.
"""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import panel as pn

from tests.synthetic import training
from workbench.interface.app.page import Stage
from workbench.store.event_store import Store
from workbench.store.table import from_frame

RANKS, TICK_S, HISTORY, RATE = 16, 0.04, 1_000_000, 200_000


class Ranks(threading.Thread):
    """One all-reduce after the other, for as long as a page is open."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.store = Store({"experiment": f"strategy: data_parallel\nranks: {RANKS}\n"})
        frame = training(1, ranks=RANKS).filter(group="default").sort("rank", "lane", "seq")
        self.call = from_frame(frame, self.store.number)
        self.rows_a_call = frame.height
        first = min(int(batch.rows["start_ns"].min()) for batch in self.call)
        last = max(int(batch.rows["end_ns"].max()) for batch in self.call)
        self.span = int(1e9 * self.rows_a_call / RATE)  # of a call, so that the rate is RATE
        for batch in self.call:
            for name in ("start_ns", "end_ns"):
                batch.rows[name] = (batch.rows[name] - first) * (self.span / (last - first))
        self.op = 0
        self.done = False
        self.result = SimpleNamespace(error=None)
        self.append(HISTORY // self.rows_a_call, time.monotonic_ns())

    def append(self, calls: int, until: int) -> None:
        """``calls`` calls, the last of which ends at ``until``."""
        ops = np.arange(self.op, self.op + calls)
        starts = until - (calls - np.arange(calls)) * self.span
        for one in self.call:
            n, m = len(one.rows), len(one.contexts)
            rows, contexts = np.tile(one.rows, calls), np.tile(one.contexts, calls)
            for name in ("start_ns", "end_ns"):
                rows[name] += np.repeat(starts, n)
            rows["context"] += np.repeat(np.arange(calls) * m, n).astype(np.uint32)
            rows["seq"] += np.repeat(ops * n, n)
            contexts["op"] = contexts["iteration"] = np.repeat(ops, m)
            self.store.append(one.rank, one.lane, rows, contexts)
        self.op += calls

    def run(self) -> None:
        due = last = time.monotonic_ns()
        while True:
            due += int(TICK_S * 1e9)
            time.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
            now = time.monotonic_ns()
            if calls := (now - last) // self.span:
                self.append(int(calls), last + int(calls) * self.span)
                last += int(calls) * self.span


ranks = Ranks()


def page() -> pn.Column:
    if not ranks.is_alive():
        ranks.start()
    shown = Stage(sizing_mode="stretch_width")
    shown.watch(ranks, scene="collectives", readonly=True)
    return pn.Column(shown, width=1000)


if __name__ == "__main__":
    pn.serve({"/": page}, port=int(sys.argv[1]), address="127.0.0.1", show=False)
