"""A web page that watches a thousand ranks: 125 copies of a recorded run of eight, again and again.

Each copy is a group of its own, as replicas of a model are. Rows come as the collector hands them
over, as many a second as asked for. ``tests/benchmarks/scale.py`` runs this file.

    python -m tests.benchmarks.scale_server PORT RECORDED ROWS_PER_SECOND
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import panel as pn
from tornado.ioloop import IOLoop

import workbench as wb
from workbench.interface.app.gate import open_server
from workbench.interface.app.login import Door
from workbench.interface.app.page import Stage
from workbench.interface.app.serving import Options, listening
from workbench.store.event_store import Store
from workbench.store.table import from_frame

OF_ONE, COPIES, TICK_S = 8, 125, 0.04


class Ranks(threading.Thread):
    """Plays the recorded run over and over, in every copy."""

    def __init__(self, recorded: str, rate: int) -> None:
        super().__init__(daemon=True)
        ranks = OF_ONE * COPIES
        self.store = Store({"experiment": f"strategy: data_parallel\nranks: {ranks}\n"})
        frame = wb.load(recorded).events.filter(group="default").sort("rank", "lane", "seq")
        self.batches = from_frame(frame, self.store.number)
        self.first = min(int(one.rows["start_ns"].min()) for one in self.batches)
        self.rows = sum(len(one.rows) for one in self.batches) * COPIES
        self.period = self.rows / rate  # seconds that the run takes when it is played
        last = max(int(one.rows["end_ns"].max()) for one in self.batches)
        self.slower = self.period * 1e9 / (last - self.first)
        self.groups = [self.store.number(f"replica {copy}") for copy in range(COPIES)]
        self.done, self.late_s = False, 0.0
        self.result = SimpleNamespace(error=None)

    def run(self) -> None:
        begin = time.monotonic()
        for turn in range(1 << 30):
            for copy in range(COPIES):
                due = begin + (turn + copy / COPIES) * self.period
                self.late_s = time.monotonic() - due
                time.sleep(max(0.0, -self.late_s))
                self.append(turn, copy)

    def append(self, turn: int, copy: int) -> None:
        start = time.monotonic_ns() - int(self.period * 1e9 / COPIES)
        for one in self.batches:
            rows, contexts = one.rows.copy(), one.contexts.copy()
            for name in ("start_ns", "end_ns"):
                past = (rows[name] - self.first) * (self.slower / COPIES)
                rows[name] = start + past.astype(np.int64)
            rows["peer"] += np.where(rows["peer"] >= 0, copy * OF_ONE, 0).astype(np.int16)
            rows["seq"] += turn * len(rows)
            contexts["group"] = self.groups[copy]
            contexts["op"] += turn * 1_000
            contexts["iteration"] += turn * 1_000
            self.store.append(one.rank + copy * OF_ONE, one.lane, rows, contexts)


def memory_mb() -> float:
    """Return what this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def report(ranks: Ranks) -> None:
    while True:
        time.sleep(1)
        print(f"at {len(ranks.store)} {memory_mb():.0f} {ranks.late_s:.3f}", flush=True)


if __name__ == "__main__":
    ranks = Ranks(sys.argv[2], int(sys.argv[3]))

    def page() -> pn.Column:
        if not ranks.is_alive():
            ranks.start()
            threading.Thread(target=report, args=(ranks,), daemon=True).start()
        shown = Stage(sizing_mode="stretch_width")
        shown.watch(ranks, scene="overview", readonly=True)
        return pn.Column(shown, width=1000)

    pn.extension()
    at = listening(Options(int(sys.argv[1]), "127.0.0.1"))
    open_server({"/": page}, at, Door(None, at.port), "a thousand ranks").start()
    IOLoop.current().start()
