"""A run as a Chrome JSON trace for https://ui.perfetto.dev: a process a rank, a thread a lane.

    {"traceEvents": [ M  names of ranks and lanes
                      X  a span or an instant: its columns are its arguments; a send and its recv
                         have one bind_id, flow_out and flow_in: an arrow
                      C  a metric's number ], ...}

An arrow is bound to spans, not to moments: spans that begin together, as a send and the recv whose
sum it passes on, would take each other's.

Times are microseconds with three decimals, so whole nanoseconds, counted from the first event; its
CLOCK_MONOTONIC time is in ``otherData``. The text is put together by polars, piece by piece.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import polars as pl

from workbench.common.output_files import atomically

# What a send and its recv have in common, besides their ranks, which are crossed.
MATCH = ("generation", "group", "collective", "op", "step", "chunk", "slot")
# What a row says beyond its place, kind and times.
_NUMBERS = (
    "generation",
    "op",
    "peer",
    "step",
    "chunk",
    "slot",
    "nbytes",
    "iteration",
    "microbatch",
    "stage",
    "version",
    "seq",
)
_STRINGS = ("collective", "algorithm", "phase", "group")
_COUNTED = ("metric", "memory")  # kinds of rows that are numbers, and no spans
_LANE_ORDER = ("compute", "comm", "send", "recv", "server")


class Recorded(Protocol):
    """The input of an export: a store's rows, and the facts about them."""

    metadata: dict[str, str]
    dropped: int

    def scan(self) -> pl.LazyFrame: ...
    def pieces(self) -> Iterator[pl.DataFrame]: ...


def write(store: Recorded, path: Path) -> None:
    """Write ``store`` to ``path``, whole or not at all."""
    events = store.scan()
    origin = events.select(pl.col("start_ns").min()).collect().item() or 0
    tracks = _tracks(events.select("rank", "lane").unique().collect())
    other = {"origin_ns": str(origin), "dropped": str(store.dropped), **store.metadata}
    head = '{"displayTimeUnit":"ns","otherData":' + json.dumps(other) + ',"traceEvents":[\n'
    with atomically(path, "a Perfetto trace") as beside, beside.open("w", encoding="utf-8") as file:
        file.write(head)
        file.write(",\n".join(_names(tracks)) or "{}")
        for lines in _texts(store, tracks, origin):
            if len(lines):
                file.write(",\n")
                file.write(",\n".join(lines))
        file.write("\n]}\n")


def match_messages(events: pl.LazyFrame) -> pl.LazyFrame:
    """Match every recv with its send: the key, ``sender``, ``receiver``, the lanes and times of
    both.
    """
    key = [*MATCH, "sender", "receiver"]

    def side(kind: str, me: str, peer: str) -> pl.LazyFrame:
        columns = pl.col("lane", "seq", "start_ns", "end_ns").name.prefix(f"{kind}_")
        rows = events.filter(pl.col("kind") == kind)
        rows = rows.select(*MATCH, pl.col("rank").alias(me), pl.col("peer").alias(peer), columns)
        return rows.unique(key, keep="first")

    return side("send", "sender", "receiver").join(side("recv", "receiver", "sender"), on=key)


def _texts(store: Recorded, tracks: pl.DataFrame, origin: int) -> Iterator[pl.Series]:
    arrows = _arrows(store)
    for piece in store.pieces():
        # Outer spans first where spans begin together: Perfetto nests in the order of the file.
        rows = piece.join(tracks, on=["rank", "lane"]).sort("start_ns", -pl.col("end_ns"))
        rows = rows.join(arrows, on=["rank", "lane", "seq"], how="left", maintain_order="left")
        counted = pl.col("kind").cast(pl.String).is_in(_COUNTED)
        yield _fill(_SPAN, rows.filter(~counted), origin)
        numbers = rows.filter(counted & pl.col("value").is_finite())
        yield _fill(_COUNTER, numbers, origin)


def _arrows(store: Recorded) -> pl.DataFrame:
    """Return for each end of each message (rank, lane, seq) its ``flow``, and what its span shows
    of it.
    """
    pairs = match_messages(store.scan()).drop(MATCH).collect().with_row_index("id", offset=1)
    ends = [
        pairs.select(
            rank=rank,
            lane=f"{end}_lane",
            seq=f"{end}_seq",
            flow=pl.format(',"bind_id":"{}","{}":true', pl.col("id"), pl.lit(flow)),
        )
        for end, rank, flow in (("send", "sender", "flow_out"), ("recv", "receiver", "flow_in"))
    ]
    return pl.concat(ends).unique(["rank", "lane", "seq"], keep="first")


def _tracks(lanes: pl.DataFrame) -> pl.DataFrame:
    """Return a thread number for each lane of each rank, in the order in which lanes are drawn."""
    names = sorted(lanes["lane"].unique().to_list(), key=lambda lane: (_place(lane), lane))
    tids = pl.Series("tid", range(1, len(names) + 1), dtype=pl.Int32)
    order = pl.DataFrame([pl.Series("lane", names, dtype=pl.Categorical), tids])
    return lanes.join(order, on="lane").sort("rank", "tid")


def _place(lane: str) -> int:
    kind = lane.partition(":")[0]  # "comm:metrics" is a comm lane
    return _LANE_ORDER.index(kind) if kind in _LANE_ORDER else len(_LANE_ORDER)


def _names(tracks: pl.DataFrame) -> Iterator[str]:
    def metadata_line(what: str, where: dict[str, int], **args: object) -> str:
        return json.dumps({"ph": "M", "name": what, **where, "args": args})

    for rank in tracks["rank"].unique().sort():
        yield metadata_line("process_name", {"pid": rank}, name=f"rank {rank}")
        yield metadata_line("process_sort_index", {"pid": rank}, sort_index=rank)
    for rank, lane, tid in tracks.select("rank", "lane", "tid").iter_rows():
        yield metadata_line("thread_name", {"pid": rank, "tid": tid}, name=lane)
        yield metadata_line("thread_sort_index", {"pid": rank, "tid": tid}, sort_index=tid)


# ---- the text of events: templates whose {column} is filled in for all rows at once

_SPAN = (
    '{{"ph":"X","pid":{rank},"tid":{tid},"cat":{kind},"name":{label},'
    '"ts":{ts},"dur":{duration}{flow},"args":{{{arguments}}}}}'
)
_COUNTER = '{{"ph":"C","pid":{rank},"name":{name},"ts":{ts},"args":{{"value":{value}}}}}'


def _fill(template: str, rows: pl.DataFrame, origin: int) -> pl.Series:
    """Fill in the template's text for each row."""
    columns = re.findall(r"{([a-z_]+)}", template)
    blanks = re.sub(r"{[a-z_]+}", "{}", template)
    filled = pl.format(blanks, *[_expression(name, rows, origin) for name in columns])
    return rows.select(filled).to_series()


def _expression(name: str, rows: pl.DataFrame, origin: int) -> pl.Expr:
    match name:
        case "ts":
            return _microseconds(pl.col("start_ns") - origin)
        case "duration":
            return _microseconds(pl.col("end_ns") - pl.col("start_ns"))
        case "arguments":
            return pl.concat_str(_arguments(rows), separator=",", ignore_nulls=True)
        case "flow":
            return pl.col("flow").fill_null("")
        case "label":
            return _json(_label(), rows)
    is_text = rows.schema[name] == pl.Categorical
    return _json(pl.col(name).cast(pl.String), rows) if is_text else pl.col(name)


def _label() -> pl.Expr:
    """Name a span: "all_reduce bucket 0", "p2p send", "send" (of a collective's chunk),
    "forward".
    """
    kind, collective, name = (pl.col(one).cast(pl.String) for one in ("kind", "collective", "name"))
    operation = pl.when(collective == "").then(pl.lit("collective")).otherwise(collective)
    what = (
        pl.when(kind == "collective")
        .then(operation)
        .when(collective == "p2p")
        .then(pl.lit("p2p ") + kind)
        .otherwise(kind)
    )
    return (what + " " + name).str.strip_chars_end(" ")


def _arguments(rows: pl.DataFrame) -> Iterator[pl.Expr]:
    """Write each column as an argument; values without a meaning (-1, "", NaN) are left out."""
    for name in _NUMBERS:
        yield pl.when(pl.col(name) != -1).then(pl.format(f'"{name}":{{}}', pl.col(name)))
    for name in _STRINGS:
        text = _json(pl.col(name).cast(pl.String), rows)
        yield pl.when(pl.col(name) != "").then(pl.format(f'"{name}":{{}}', text))
    value = pl.col("value")
    yield pl.when(value.is_finite()).then(pl.format('"value":{}', value))


def _json(text: pl.Expr, rows: pl.DataFrame) -> pl.Expr:
    """Encode strings as JSON; each different one is encoded once."""
    different = rows.select(text.unique()).to_series().to_list()
    encoded = [json.dumps(one) for one in different]
    return text.replace_strict(different, encoded, return_dtype=pl.String)


def _microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    decimals = (nanoseconds % 1000).cast(pl.String).str.zfill(3)
    return pl.format("{}.{}", nanoseconds // 1000, decimals)
