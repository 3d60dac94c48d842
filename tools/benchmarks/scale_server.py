"""A web page that watches a thousand ranks: 125 copies of a recorded run of eight, again and again.

Each copy is a group of its own, as replicas of a model are. Rows come as the collector hands them
over, a lane's rows of a fifth of a second at a time, as many a second as asked for.
``tools/benchmarks/scale.py`` runs this file.

    python -m tools.benchmarks.scale_server PORT RECORDED ROWS_PER_SECOND
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import panel as pn
import polars as pl
from tornado.ioloop import IOLoop

import workbench as wb
from workbench.interface.app.gate import open_server
from workbench.interface.app.login import Door
from workbench.interface.app.page import Stage
from workbench.interface.app.serving import Options, listening
from workbench.store.event_store import Store
from workbench.store.table import Batch, from_frame

OF_ONE, COPIES, TICK_S, TURNS = 8, 125, 0.04, 5  # a copy has its turn every fifth tick


class Ranks(threading.Thread):
    """Plays the recorded run over and over, in every copy."""

    def __init__(self, recorded: str, rate: int) -> None:
        super().__init__(daemon=True)
        ranks = OF_ONE * COPIES
        self.store = Store({"experiment": f"strategy: data_parallel\nranks: {ranks}\n"})
        frame = wb.load(recorded).events.filter(pl.col("rank") >= 0).sort("rank", "lane", "seq")
        self.batches = from_frame(frame, self.store.number)
        self.first = min(int(one.rows["start_ns"].min()) for one in self.batches)
        last = max(int(one.rows["end_ns"].max()) for one in self.batches)
        rows = sum(len(one.rows) for one in self.batches) * COPIES
        self.period = rows / rate  # seconds that the run takes when it is played
        self.slower = self.period * 1e9 / (last - self.first)
        self.iterations = 1 + max(int(one.contexts["iteration"].max()) for one in self.batches)
        self.ops = 1 + max(int(one.contexts["op"].max()) for one in self.batches)
        self.groups = [self.store.number(f"replica {copy}") for copy in range(COPIES)]
        self.default = self.store.number("default")
        self.done, self.late_s = False, 0.0
        self.result = SimpleNamespace(error=None)

    def run(self) -> None:
        begin = time.monotonic_ns()
        known = [0.0] * TURNS  # seconds that a copy of this turn has been played
        for tick in range(1 << 30):
            due = begin * 1e-9 + (tick + 1) * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            self.late_s = time.monotonic() - due
            turn = tick % TURNS
            upto = (tick + 1) * TICK_S
            while known[turn] < upto:  # up to where the run ends and begins again
                again = int(known[turn] / self.period + 1e-9)
                stop = min(upto, (again + 1) * self.period)
                self.play(begin, again, known[turn], stop, range(turn, COPIES, TURNS))
                known[turn] = stop

    def play(self, begin: int, again: int, after: float, stop: float, copies: range) -> None:
        """Append the rows that end between these seconds, in each of these copies."""
        origin = begin + int(again * self.period * 1e9)
        moments = [
            (t - again * self.period) * 1e9 / self.slower + self.first for t in (after, stop)
        ]
        for one in self.batches:
            at, end = np.searchsorted(one.rows["end_ns"], moments, "right")
            if at < end:
                self._append(one, again, origin, slice(at, end), copies)

    def _append(self, one: Batch, again: int, origin: int, part: slice, copies: range) -> None:
        rows = one.rows[part].copy()
        for name in ("start_ns", "end_ns"):
            rows[name] = origin + ((rows[name] - self.first) * self.slower).astype(np.int64)
        rows["seq"] += again * len(one.rows)
        first = int(rows["context"].min())
        contexts = one.contexts[first : int(rows["context"].max()) + 1].copy()
        rows["context"] -= first
        contexts["op"] += np.where(contexts["op"] >= 0, again * self.ops, 0)
        trains = contexts["iteration"] >= 0
        contexts["iteration"] += np.where(trains, again * self.iterations, 0)
        ours, peers = contexts["group"] == self.default, rows["peer"] >= 0
        for copy in copies:
            mine, named = rows.copy(), contexts.copy()
            mine["peer"][peers] += copy * OF_ONE
            named["group"][ours] = self.groups[copy]
            self.store.append(one.rank + copy * OF_ONE, one.lane, mine, named)


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
        return pn.Column(shown, sizing_mode="stretch_width")

    pn.extension()
    at = listening(Options(int(sys.argv[1]), "127.0.0.1"))
    open_server({"/": page}, at, Door(None, at.port), "a thousand ranks").start()
    IOLoop.current().start()
