"""Rows that follow from their number, written and read, so that a torn one shows."""

from __future__ import annotations

import polars as pl

from workbench.recording.events import SEND
from workbench.recording.lane import Lane
from workbench.shared_memory.segments import Segment
from workbench.store.collector import Collector
from workbench.store.event_store import Store


def reading(*segments: Segment) -> tuple[Store, Collector]:
    store = Store()
    return store, Collector(store, {rank: one.memory for rank, one in enumerate(segments)})


def write(lane: Lane, first: int, count: int) -> None:
    """Rows whose fields all follow from their number, so that a torn one shows."""
    for i in range(first, first + count):
        lane.write(SEND, i, 2 * i, i % 7, i % 11, i % 13, i % 17, 3 * i, value=float(i))


def assert_whole(table: pl.DataFrame) -> None:
    """Every row is the one that ``write`` wrote under its number, in order."""
    i = pl.col("seq")
    fields = {"start_ns": i, "end_ns": 2 * i, "peer": i % 7, "step": i % 11, "chunk": i % 13}
    fields |= {"slot": i % 17, "nbytes": 3 * i, "value": i.cast(pl.Float64)}
    wrong = table.filter(~pl.all_horizontal(pl.col(name) == due for name, due in fields.items()))
    assert wrong.is_empty(), wrong
    for _, own in table.group_by("rank", "lane"):
        assert own["seq"].is_sorted()
        assert own["seq"].is_unique().all()
