"""``python -m tests.native.sanitized LIBRARY WHAT``: run the C code, built with a sanitizer.

``fuzz``: what a peer may write. ``race``: two ranks on two threads, and a reader of their rows.
"""

from __future__ import annotations

import random
import sys
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any

import numpy as np

from tests.native.ends import DONE, LOOK, Box, End, Somewhere, fuzz
from workbench.recording import events
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment

CALLS, SLOT = 60, 1024


def load(path: str) -> Any:
    loader = ExtensionFileLoader("workbench.native._mover", path)
    module = module_from_spec(ModuleSpec(loader.name, loader, origin=path))
    loader.exec_module(module)
    return module


def race(native: Any) -> None:
    """Two ranks exchange, each on its thread; a third thread reads rows that a fourth writes."""
    ends = [End(native, rank, 2, SLOT) for rank in range(2)]
    boxes = [Box(SLOT), Box(SLOT)]
    for rank, end in enumerate(ends):
        end.wire(True, 1 - rank, boxes[rank])
        end.wire(False, 1 - rank, boxes[1 - rank])
    results: list[Any] = [None, None]

    def work(rank: int) -> None:
        mover, chance, peer = ends[rank].mover, random.Random(5), 1 - rank
        x = np.zeros(4000, np.float32)
        for op in range(CALLS):
            n = chance.choice((0, 1, 200, 256, 1000, 4000))
            x[:n] = rank + op
            y = x[:n].copy()
            mover.begin("x", "y", op, 7, Somewhere(), (n,), "float32")
            while (
                code := mover.exchange(y, peer, x[:n], peer, "SUM", 0, 0, 0, 0, "", False)
            ) == LOOK:
                pass
            assert code == DONE, code
            mover.end(0, 4 * n, "", 4.0, -1, "")
            assert (x[:n] == 2 * op + 1).all()
        results[rank] = True

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert results == [True, True]


def read_while_written(native: Any) -> None:
    trace, ended = trace_segment("a test"), 0
    recorder = Recorder.into_segment(trace, 0)
    lane, over = recorder.take_lane("a"), threading.Event()

    def write() -> None:
        for at in range(60_000):
            if at % 50 == 0:
                lane.context(op=at)
            lane.write(6, at, at + 1, 1)
        over.set()

    layout = (events.MAGIC, events.DATA_AT, events.ROWS, events.CONTEXTS, len(events.KINDS))
    reader = native.Reader(trace.memory.cast("B"), np.zeros(1 << 16, np.uint16), *layout)
    thread = threading.Thread(target=write)
    thread.start()
    words, stored, dropped = np.zeros(2, np.int64), 0, 0
    while True:
        last = over.is_set()
        native.watch_rings((reader,), 0.01, words)
        reader.gather()
        more, lost, _, parts = reader.take()
        for _, memory, _ in parts:
            rows = np.frombuffer(memory, events.ROW)
            assert (rows["end_ns"] - rows["start_ns"] == 1).all()
            assert (np.diff(rows["start_ns"]) > 0).all() and rows["start_ns"][0] >= ended
            ended = int(rows["end_ns"][-1])
        stored, dropped = stored + more, dropped + lost
        if last:
            break
    thread.join()
    assert stored + dropped == 60_000 and stored


def main(path: str, what: str) -> None:
    import workbench.native as room

    native = load(path)
    room._chosen = lambda name: room.Extension(native)  # type: ignore[assignment]
    if what == "fuzz":
        counts = fuzz(native, 1, 150)
        assert counts[DONE] > 20, counts
    else:
        race(native)
        read_while_written(native)
    print("done", what)


if __name__ == "__main__":
    main(*sys.argv[1:])
