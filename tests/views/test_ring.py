"""The collectives view: which calls are complete, their rows; and what a page is told."""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, field

import polars as pl
import pytest

from tests.synthetic import loss_row, ring_call, table, training
from workbench.store import Store
from workbench.views import WIRE, pack
from workbench.views.facts import facts, in_a_line
from workbench.views.ring import MAX_ROWS, calls, select
from workbench.views.stream import HISTORY, Pump, Stream

SPEC = "strategy: data_parallel\nranks: 4\niterations: 9\n"


def test_a_call_is_complete_when_all_that_take_part_are_through() -> None:
    events = training(3)
    assert calls(events)["complete"].to_list() == [True] * 3
    for rank in range(4):
        gone = (pl.col("kind") == "collective") & (pl.col("rank") == rank) & (pl.col("op") == 1)
        assert calls(events.filter(~gone)).sort("op")["complete"].to_list() == [True, False, True]
    nothing_of_3 = events.filter(
        (pl.col("rank") != 3) | (pl.col("op") != 2)
    )  # only named as a peer
    assert calls(nothing_of_3).sort("op")["complete"].to_list() == [True, True, False]


def test_a_call_says_what_its_rows_say() -> None:
    events = training(2)
    call = calls(events).row(1, named=True)
    rows = events.filter(pl.col("op") == 1)
    assert (call["start_ns"], call["end_ns"]) == (rows["start_ns"].min(), rows["end_ns"].max())
    assert (call["rows"], call["sends"], call["nbytes"]) == (rows.height, 24, 246_824)


def test_messages_metrics_and_calls_without_chunks_are_none() -> None:
    rows = ring_call(0, 1000)
    assert calls(table([row | {"group": "metrics"} for row in rows])).height == 0
    assert calls(table([row | {"collective": "p2p"} for row in rows])).height == 0
    assert calls(table([row for row in rows if row["kind"] == "collective"])).height == 0
    assert calls(table([loss_row(0, 5, 1.0)])).height == 0


def test_the_rows_of_a_call_are_all_its_rows_counted_from_the_origin() -> None:
    events = training(3)
    chosen = calls(events).filter(pl.col("op") != 1)
    rows = select(events, chosen, origin=1000)
    theirs = events.filter(pl.col("op").is_in([0, 2]))
    assert rows.height == theirs.height
    assert rows["call"].is_sorted() and set(rows["op"]) == {0, 2}
    assert rows["start"].min() == theirs["start_ns"].min() - 1000
    assert (rows["slots"] == 1).all() and (rows["last_slot"] == 0).all()


def test_of_a_large_call_the_first_pieces_of_every_chunk_are_kept() -> None:
    slots = 100
    rows = [row | {"slot": s} for s in range(slots) for row in ring_call(0, 10**9, ranks=16)]
    events = table([row for row in rows if row["kind"] != "collective" or row["slot"] == 0])
    chosen = calls(events)
    kept = select(events, chosen)
    assert events.height > MAX_ROWS and kept.height <= MAX_ROWS
    first = kept["slots"][0]
    assert 1 <= first < slots and kept["slot"].max() == first - 1
    sent = kept.filter(pl.col("kind") == "send").group_by("step", "chunk", "rank").len()
    assert (sent["len"] == first).all()


def test_pack_lays_columns_one_after_the_other() -> None:
    events = training(1)
    rows = select(events, calls(events))
    layout, strings, data = pack(rows)
    assert dict(layout) == WIRE and strings[0] == ""
    at = 0
    for name, code in layout:
        form = {"f8": "d", "i4": "i", "i2": "h", "u2": "H"}[code]
        values = struct.unpack_from(f"<{rows.height}{form}", data, at)
        at += -(-rows.height * int(code[1]) // 8) * 8
        told = [strings[v] for v in values] if code == "u2" else list(values)
        assert told == rows[name].to_list(), name
    assert at == len(data)


# ---- the stream


@dataclass
class Run:
    """As much of a Run as a page needs; ``tell`` is what the collector does."""

    store: Store = field(default_factory=lambda: Store({"experiment": SPEC}))
    done: bool = False
    result: object = None
    told: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.since = self.since  # type: ignore[method-assign]

    def tell(self, events: pl.DataFrame) -> None:
        self.told.append(events)

    def since(self, position: int = 0) -> tuple[pl.DataFrame, int]:
        new = self.told[position:]
        return (pl.concat(new) if new else Store().events), len(self.told)


def test_the_newest_complete_call_is_sent_and_a_late_page_hears_of_all_sampled() -> None:
    run, events = Run(), training(9)
    stream = Stream(run, "a")
    first = stream.poll()
    assert first and first.header["state"] == "starting" and first.header["now"] is None
    assert stream.poll() is None  # nothing new
    run.tell(events.filter((pl.col("op") < 5) | (pl.col("rank") != 2)))  # rank 2's rows come later
    second = stream.poll()
    assert second and second.header["state"] == "running"
    assert [call["op"] for call in second.header["calls"]] == [4]
    assert second.header["counters"] | {"loss": None} == {
        "events": run.told[0].height, "dropped": 0, "calls": 5, "iteration": 8, "loss": None,
    }  # fmt: skip
    assert second.header["seq"] == first.header["seq"] + 1
    run.tell(events.filter((pl.col("op") >= 5) & (pl.col("rank") == 2)))
    run.done = True
    last = stream.poll()
    assert last and last.header["state"] == "finished" and stream.ended
    assert [call["op"] for call in last.header["calls"]] == [8]
    assert last.header["rows"] == events.filter(pl.col("op") == 8).height
    assert [call["op"] for call in stream.history().header["calls"]] == [4, 8]


def test_a_call_that_lost_rows_is_not_looked_at_for_ever() -> None:
    run, events = Run(), training(100)
    lost = (pl.col("op") == 3) & (pl.col("rank") == 1) & (pl.col("kind") == "collective")
    run.tell(events.filter(~lost))
    stream = Stream(run, "a")
    stream.poll()
    assert sum(rows.height for rows in stream._open) == 0


def test_history_is_bounded_and_keeps_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.views.stream.SAMPLE_SECONDS", 0)
    run, stream = Run(), None
    stream = Stream(run, "a")
    events = training(3 * HISTORY)
    for part in events.filter(pl.col("op") >= 0).partition_by("op", maintain_order=True):
        run.tell(part)
        stream.poll()
    ops = [call["op"] for call in stream.history().header["calls"]]
    assert len(ops) <= HISTORY and ops == sorted(set(ops))
    assert (ops[0], ops[-1]) == (0, 3 * HISTORY - 1)


def test_the_pump_ends_with_the_run_and_with_stop() -> None:
    run, heard = Run(), []
    run.tell(training(2))
    pump = Pump(Stream(run, "a"), heard.append)
    pump.start()
    deadline = time.monotonic() + 5
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard and pump.is_alive()
    run.done = True
    pump.join(5)
    assert not pump.is_alive() and heard[-1].header["state"] == "finished"
    other = Pump(Stream(Run(), "b"), heard.append)
    other.start()
    other.stop()
    other.join(5)
    assert not any(thread.name == "workbench page" for thread in threading.enumerate())


def test_what_is_our_own_making_is_said() -> None:
    spec = (
        SPEC + "pad_compute: 20 ms\nnetwork: {links: {0->1: {latency: 5 ms, bandwidth: 1 Mbit/s}}}"
    )
    told = facts({"experiment": spec})
    assert (told["title"], told["ranks"], told["iterations"]) == ("Data parallel", 4, 9)
    words = "link 0 → 1 emulated: 5 ms, 1 Mbit/s"
    assert told["emulated"] == [{"from": 0, "to": 1, "words": words}]
    assert told["notes"] == ["compute padded to 20 ms"]
    assert facts({})["emulated"] == []
    run = Run()
    fault = loss_row(0, 5, 0.0) | {"kind": "fault", "rank": -1, "lane": "driver"}
    run.tell(table([fault | {"name": "link 2->3", "peer": 3}, fault | {"name": "kill", "peer": 2}]))
    message = Stream(run, "a").poll()
    assert message is not None
    assert [e["words"] for e in message.header["run"]["emulated"]] == [
        "link 2 → 3 emulated: changed by hand"
    ]
    assert message.header["run"]["notes"] == ["fault: kill rank 2"]


def test_an_error_in_a_line() -> None:
    assert in_a_line("rank 2 was killed.\nmore") == "rank 2 was killed."
    trace = "rank 1 raised:\nTraceback ...\n  ValueError: no"
    assert in_a_line(trace) == "rank 1 raised: ValueError: no"
