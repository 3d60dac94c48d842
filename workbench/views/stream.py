"""What a page is told of a run: batches of complete calls and counters, for any host.

The page plays one call in about four seconds, so it is sent the newest complete one twice a second
and never the millions of rows between. ``Stream`` reads the store, keeps no more than what is still
incomplete, and answers a page that says hello with the calls that it sampled so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from workbench.views import Message, pack
from workbench.views.facts import NO_COUNTERS, Watched, add_faults, count, facts, largest, state_of
from workbench.views.ring import KEY, calls, collective_rows, select

TICK_SECONDS = 0.04  # how often the store is looked at until a first call is complete
READ_SECONDS = 0.2  # and from then on
SAMPLE_SECONDS = 0.5  # between two calls that are sent
HEARTBEAT_SECONDS = 1.0  # so that a page knows the driver's clock and that it lives
HISTORY = 24  # sampled calls that are kept for a page that comes later
IN_FLIGHT = 64  # calls; one this much older than a complete one of its group has lost rows
LOOKED_AT = 500_000  # rows of calls that are not complete yet; beyond it the oldest are let go


class Stream:
    """One run, told in messages. ``poll`` gives what is new, ``history`` what a new page needs."""

    def __init__(self, run: Watched, name: str) -> None:
        self._run, self._lock = run, threading.Lock()
        self._facts = {"id": name, **facts(run.store.metadata)}
        self._position, self._origin, self._seq = 0, -1, 0
        self._open: list[pl.DataFrame] = []  # rows of calls that are not complete
        self._waiting: pl.DataFrame | None = None  # newest complete call, not yet sent
        self._waiting_rows = pl.DataFrame()
        self._kept: list[tuple[dict[str, Any], pl.DataFrame]] = []
        self._counters = dict(NO_COUNTERS)
        self._sampled_at = self._said_at = -1e9
        self.ended = False  # the page knows that the run is over
        self.quick = True  # no call is complete yet

    def poll(self) -> Message | None:
        """What a page should hear now, or None. Costs what the store has new."""
        with self._lock:
            over = self._run.done  # before the rows: what is read afterwards is all there is
            events, self._position = self._run.store.since(self._position)
            self._take(events)
            now = time.monotonic()
            sampled = self._sample(now) if over or now - self._sampled_at >= SAMPLE_SECONDS else []
            news = bool(sampled) or bool(events.height) or over != self.ended
            if not news and now - self._said_at < HEARTBEAT_SECONDS:
                return None
            self.ended, self._said_at = over, now
            self._seq += 1
            return self._message(sampled)

    def history(self) -> Message:
        """For a page that says hello: the run as it stands, and the calls sampled so far."""
        with self._lock:
            return self._message(self._kept)

    def _take(self, events: pl.DataFrame) -> None:
        counters = self._counters
        counters["events"] += events.height
        counters["dropped"] = self._run.store.dropped
        if not events.height:
            return
        if self._origin < 0:
            self._origin = -largest(-events["start_ns"])
        count(counters, events)
        add_faults(self._facts, events)
        rows = pl.concat([*self._open, collective_rows(events)])
        table = calls(rows)
        complete = table.filter("complete")
        if complete.height:
            self._waiting = complete.tail(1)
            self._waiting_rows = rows.join(self._waiting, on=KEY, how="semi")
            counters["calls"] = max(counters["calls"], largest(complete["op"]) + 1)
            rows = _still_open(rows, complete)
        self._open = [rows.tail(LOOKED_AT)]

    def _sample(self, now: float) -> list[tuple[dict[str, Any], pl.DataFrame]]:
        if self._waiting is None:
            return []
        rows = select(self._waiting_rows, self._waiting, self._origin)
        sampled = [(describe(self._waiting.row(0, named=True), rows, self._origin), rows)]
        self._waiting, self._sampled_at, self.quick = None, now, False
        if len(self._kept) >= HISTORY:
            self._kept = self._kept[::2]  # evenly thinner, the first one stays
        self._kept += sampled
        return sampled

    def _message(self, sampled: Sequence[tuple[dict[str, Any], pl.DataFrame]]) -> Message:
        state, words = state_of(self._run, self.ended, self._counters["events"])
        now = None if self.ended or self._origin < 0 else time.monotonic_ns() - self._origin
        told = {"now": now, "state": state, "words": words, "counters": dict(self._counters)}
        return message(self._facts, sampled, seq=self._seq, **told)


def _still_open(rows: pl.DataFrame, complete: pl.DataFrame) -> pl.DataFrame:
    """Rows of calls that may yet be completed: not those that are, nor those that lost a row."""
    group = ["generation", "group"]
    newest = complete.group_by(group).agg(pl.col("op").max().alias("newest"))
    rest = rows.join(complete, on=KEY, how="anti").join(newest, on=group, how="left")
    late = pl.col("op") + IN_FLIGHT < pl.col("newest").fill_null(-1)
    return rest.filter(~late).drop("newest")


def describe(call: Mapping[str, Any], rows: pl.DataFrame, origin: int) -> dict[str, Any]:
    """The header's entry for one call: who it is and what its rows add up to."""
    names = ("generation", "group", "op", "collective", "algorithm", "iteration")
    ranks = max(largest(rows["rank"]), largest(rows["peer"])) + 1
    slots, last = rows.select("slots", "last_slot").row(0)
    return {name: call[name] for name in names} | {
        "number": call["op"] + 1,
        "name": call["name"] or "",
        "start": call["start_ns"] - origin,
        "end": call["end_ns"] - origin,
        "nbytes": call["nbytes"] if call["nbytes"] is not None else -1,
        "ranks": ranks,
        "left_out": f"first {slots} of {last + 1} pieces a chunk" if slots <= last else "",
    }


def message(
    facts: Mapping[str, Any],
    sampled: Sequence[tuple[dict[str, Any], pl.DataFrame]],
    **rest: Any,
) -> Message:
    """A batch, which stands on its own: the run's facts, and these calls with all their rows."""
    header: dict[str, Any] = {"type": "batch", "run": dict(facts), **rest, "rows": 0, "calls": []}
    if not sampled:
        return Message(header)
    at = 0
    for call, rows in sampled:
        header["calls"].append({**call, "rows": [at, at + rows.height]})
        at += rows.height
    layout, strings, payload = pack(pl.concat([rows for _, rows in sampled]))
    return Message(header | {"rows": at, "layout": layout, "strings": strings}, payload)


class Pump(threading.Thread):
    """Sends what is new to a page until the run is over. One thread a page, which ends with it."""

    def __init__(self, stream: Stream, send: Callable[[Message], None]) -> None:
        super().__init__(name="workbench page", daemon=True)
        self.stream, self.send, self.stopped = stream, send, threading.Event()

    def run(self) -> None:
        """Poll and send. An error of the connection ends the thread: the page has gone."""
        while not self.stopped.is_set() and not self.stream.ended:
            if message := self.stream.poll():
                self.send(message)
            self.stopped.wait(TICK_SECONDS if self.stream.quick else READ_SECONDS)

    def stop(self) -> None:
        self.stopped.set()
