"""The part of a still picture that tells of chunks: the largest collective of the newest iteration,
of cells on ranks their newest messages, of two calls that are compared both; at the moment at which
most is on its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from workbench.views.pages.link_facts import made_links

KEY = ["generation", "group", "op"]  # of a collective
PLAIN_LINKS = {"emulated": (), "levels": (), "link_levels": ({"made": "", "down": False},) * 8}
APART = ("metrics", "control")  # groups that do not train
RECENT_CALLS = 64  # of each group are looked at
MOST_BARS = 600


@dataclass(frozen=True)
class Flight:
    """A chunk on its way: ``share`` of the time between its send and its receive is over."""

    source: int
    target: int
    step: int
    chunk: int
    share: float


@dataclass(frozen=True)
class Side:
    """One of two calls that are compared, at a moment of both. ``seconds``: how long it took."""

    label: str
    ranks: int
    seconds: float
    at: float  # the moment, in seconds from the start of both
    call: str
    links: tuple[tuple[int, int], ...]
    flights: tuple[Flight, ...]
    waiting: tuple[int, ...]
    made_links: Mapping[tuple[int, int], bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Lanes:
    """A whole call, rank by rank. Of each bar: rank, "comm" (a chunk, from its send until it is
    received) or "wait", and which share of the call was over at its start and its end. ``at``: the
    share that was over at the moment of the picture.
    """

    milliseconds: float
    at: float
    bars: tuple[tuple[int, str, float, float], ...]


@dataclass(frozen=True)
class _Call:
    """A complete call: its facts, its rows, its chunks with when they left and came; ``until``:
    when they came or had already gone on from there.
    """

    facts: dict[str, Any]
    rows: pl.DataFrame
    flights: pl.DataFrame


def _newest(rows: pl.LazyFrame) -> _Call | None:
    p = pl.col
    trains = (p("op") >= 0) & ~p("group").cast(pl.String).is_in(APART) & (p("collective") != "p2p")
    recent = p("op") > p("op").max().over("generation", "group") - RECENT_CALLS
    result = rows.filter(trains).filter(recent).collect()
    complete = calls(result).filter("complete")
    if not complete.height:
        return None
    newest = complete.tail(1)
    if (iteration := newest["iteration"].item()) >= 0:  # its largest: not 40 bytes of a bias
        largest = complete.filter(p("iteration") == iteration).sort("nbytes", "end_ns").tail(1)
        newest = _usual(complete, largest)
    # Of calls as usual, that with the moment at which most links carry a chunk each.
    each = [_call_of(result, one) for one in newest.iter_slices(1)]
    return max(each, key=lambda call: _busiest_of([call])[:2])


def _call_of(rows: pl.DataFrame, facts: pl.DataFrame) -> _Call:
    p, own = pl.col, rows.join(facts.select(KEY), on=KEY, how="semi")
    sends, recvs = (own.filter(p("kind") == kind) for kind in ("send", "recv"))
    place = ["step", "chunk", "slot"]
    flights = sends.join(
        recvs.select(
            "start_ns", "end_ns", *place, p("peer").alias("rank"), p("rank").alias("peer")
        ),
        on=["rank", "peer", *place],
        suffix="_there",
    )
    return _Call(facts.row(0, named=True), own, _passed_on(flights, sends))


def _passed_on(flights: pl.DataFrame, sends: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``until``. A rank that passes a chunk on receives and sends it in one pass,
    whose two rows have the same span, and its first pieces while others are still to come: it is
    shown where its first piece is, on one link.
    """
    p, way = pl.col, ["rank", "peer", "step", "chunk"]
    there = flights.group_by(way).agg(p("start_ns").min(), p("start_ns_there").min())
    # What leaves before it is there, or at its own step, is something else.
    onward = there.join(
        sends.select(p("rank").alias("peer"), "chunk", later="step", on="start_ns"),
        on=["peer", "chunk"],
    ).filter(p("later") > p("step"), p("on") > p("start_ns"), p("on") >= p("start_ns_there"))
    first = onward.group_by(way).agg(p("on").min())
    joined = flights.join(first, on=way, how="left", maintain_order="left")
    return joined.with_columns(until=pl.min_horizontal("end_ns_there", "on")).drop("on")


def _usual(complete: pl.DataFrame, call: pl.DataFrame) -> pl.DataFrame:
    """Return of the recent calls that are like this one those of about the median length, the
    median first: the newest may be an outlier.
    """
    like = ["generation", "group", "collective", "algorithm", "name", "nbytes"]
    alike = complete.join(call.select(like), on=like, how="semi", nulls_equal=True)
    by_length = alike.with_columns(took=pl.col("end_ns") - pl.col("start_ns")).sort("took", *KEY)
    middle = (len(by_length) - 1) // 2
    around = [middle, *(at for at in (middle - 1, middle + 1) if 0 < at < len(by_length) - 1)]
    return by_length[around]


def newest_call(rows: pl.LazyFrame, cells: bool) -> dict[str, Any]:
    """Return the largest complete call of the newest iteration, or a recent one like it of the
    usual length, at the moment at which most links were busy; of cells on ranks their messages, if
    they are newer.
    """
    call = _newest(rows)
    if cells and (messages := _messages(rows, call.facts["end_ns"] if call else 0)):
        call = messages
    if call is None:
        return {}
    *_, at = _busiest_of([call])
    return {**_at_moment(call, at), "lanes": _lanes(call, at)}


def _lanes(call: _Call, at: int) -> Lanes:
    """Return what each rank sent and how long it waited in the whole call."""
    p, start = pl.col, int(call.facts["start_ns"])
    whole = max(1, int(call.facts["end_ns"]) - start)
    chunks = call.flights.group_by("rank", "peer", "step", "chunk", maintain_order=True).agg(
        p("start_ns").min(), p("end_ns_there").max().alias("end_ns")
    )
    waits = call.rows.filter(p("kind") == "wait")
    spans = pl.concat(
        rows.select("rank", pl.lit(kind).alias("kind"), "start_ns", "end_ns")
        for kind, rows in (("comm", chunks), ("wait", waits))
    )
    return Lanes(
        whole / 1e6,
        (at - start) / whole,
        tuple(
            (rank, kind, (begin - start) / whole, (end - start) / whole)
            for rank, kind, begin, end in spans.sort("start_ns", "rank").head(MOST_BARS).rows()
        ),
    )


def _messages(rows: pl.LazyFrame, after_ns: int) -> _Call | None:
    """Return what ranks have sent each other in messages in the newest cell, each as a chunk of its
    own; None if there is nothing, or nothing after that moment.
    """
    p = pl.col
    begun = rows.filter((p("kind") == "metric") & (p("name") == "cell"))
    newest = p("start_ns").filter(p("value") == p("value").max()).min()
    since = begun.select(newest).collect().item() or 0
    message_rows = rows.filter(
        (p("collective") == "p2p")
        & ~p("group").cast(pl.String).is_in(APART)
        & (p("op") >= 0)
        & (p("start_ns") >= max(since, after_ns))
    ).collect()
    sends, recvs = (message_rows.filter(p("kind") == kind) for kind in ("send", "recv"))
    which = ["rank", "peer", "generation", "group", "op"]
    there = recvs.rename({"rank": "peer", "peer": "rank"})
    flights = sends.join(
        there.select("end_ns", *which, "slot"), on=[*which, "slot"], suffix="_there"
    )
    if not flights.height:
        return None
    first = flights.group_by(which).agg(p("start_ns").min().alias("first")).sort("first", "rank")
    numbered = first.with_row_index("chunk").with_columns(p("chunk").cast(pl.Int32))
    flights = flights.drop("chunk").join(numbered.drop("first"), on=which)
    flights = flights.with_columns(until="end_ns_there")
    facts = {
        "collective": f"{first.height} message{'s' * (first.height != 1)}",
        "algorithm": "",
        "name": "",
        "start_ns": message_rows["start_ns"].to_numpy().min(),
        "end_ns": message_rows["end_ns"].to_numpy().max(),
    }
    return _Call(facts, message_rows, flights)


def pair_of(rows: pl.LazyFrame, run_facts: Mapping[str, Any]) -> tuple[Side, ...]:
    """Return both calls of the newest pair, when most chunks of both were on their way.

    They begin at the same moment (studies/side_by_side.py).
    """
    sides = [run_facts["pair"][side] for side in ("left", "right")]
    calls = [_newest(rows.filter(pl.col("group") == side["group"])) for side in sides]
    result = [call for call in calls if call is not None]
    if len(result) < 2:
        return ()
    *_, at = _busiest_of(result)
    start = min(call.facts["start_ns"] for call in result)
    moments = [_at_moment(call, at) for call in result]
    return tuple(
        Side(
            label=side["label"],
            ranks=1 + max(int(call.rows["rank"].to_numpy().max()), 0),
            seconds=(call.facts["end_ns"] - call.facts["start_ns"]) / 1e9,
            at=(at - start) / 1e9,
            made_links=made_links({**PLAIN_LINKS, **side.get("own", {})}, moment["links"]),
            **moment,
        )
        for side, call, moment in zip(sides, result, moments, strict=True)
    )


def _busiest_of(calls: Sequence[_Call]) -> tuple[int, int, int]:
    """Return what ``_busiest`` does, over the links of all these calls."""
    whole = pl.concat(
        call.flights.filter(pl.col("start_ns") < pl.col("until")).select(
            "start_ns", "until", "rank", "peer", call=pl.lit(at)
        )
        for at, call in enumerate(calls)
    )
    links = whole.group_by("call", "rank", "peer", maintain_order=True).all()
    return _busiest(
        [
            (np.array(starts), np.array(ends))
            for starts, ends in links.select("start_ns", "until").rows()
        ]
    )


def _at_moment(call: _Call, at: int) -> dict[str, Any]:
    p, call_rows, flights = pl.col, call.rows, call.flights
    sends = call_rows.filter(p("kind") == "send")
    flying = flights.filter((p("start_ns") <= at) & (at < p("until")))
    waits = call_rows.filter((p("kind") == "wait") & (p("start_ns") <= at) & (at < p("end_ns")))
    flying = flying.unique(["rank", "peer", "step", "chunk"], maintain_order=True)  # pieces as one
    return {
        "call": _words(call.facts, flying.height, at),
        "links": tuple(sorted(set(sends.select("rank", "peer").iter_rows()))),
        "flights": tuple(
            Flight(rank, peer, step, chunk, (at - begin) / max(1, there - begin))
            for rank, peer, step, chunk, begin, there in flying.select(
                "rank", "peer", "step", "chunk", "start_ns", "until"
            ).iter_rows()
        ),
        "waiting": tuple(sorted(set(waits["rank"]))),
    }


def _words(call: dict[str, Any], flying: int, at: int) -> str:
    how = f" ({call['algorithm'].replace('_', ' ')})" if call["algorithm"] else ""
    what = f"{call['collective'].replace('_', '-')}{how}"
    name = f" of {call['name']}" if call["name"] else ""
    when, lasted = at - call["start_ns"], call["end_ns"] - call["start_ns"]
    its, piece = ("its", "chunk") if how else ("their", "message")
    return (
        f"{what}{name}, {when / 1e6:.2f} of {its} {lasted / 1e6:.2f} ms: "
        f"{flying} {piece}{'s' * (flying != 1)} on the way"
    )


def _busiest(
    links: Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
) -> tuple[int, int, int]:
    """Return how many links are busy at most, minus how many flights there are then, and when: the
    middle of a flight at which most links carry one, and of those moments that with the fewest
    flights. A chunk may be sent before the one ahead of it is taken. Zeros if there is none.

    ``links``: of each link when its flights start and end.
    """
    if not links:
        return 0, 0, 0
    middles = np.concatenate([(start + end) // 2 for start, end in links])
    busy, flights = np.zeros(len(middles), int), np.zeros(len(middles), int)
    for start, end in links:
        load = np.searchsorted(np.sort(start), middles, "right") - np.searchsorted(
            np.sort(end), middles, "right"
        )
        busy, flights = busy + (load > 0), flights + load
    best = np.lexsort((middles, flights, -busy))[0]  # of equal ones the first
    return int(busy[best]), -int(flights[best]), int(middles[best])


def calls(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per collective that sent chunks, oldest end first; ``rows`` are those of
    collectives.

    Columns: generation group op, collective algorithm name nbytes iteration, start_ns end_ns,
    ``complete``: every rank that takes part is through. It takes part if it sends, receives, or is
    the other end.
    """
    p = pl.col
    moves, outer = p("kind").is_in(["send", "recv"]), p("kind") == "collective"
    parties = p("rank").append(p("peer").filter(moves & (p("peer") >= 0)))
    return (
        rows.group_by(KEY)
        .agg(
            p("collective", "algorithm").first(),
            p("name").filter(outer).first(),
            p("nbytes").filter(outer).max(),
            p("iteration").max(),
            p("start_ns").min(),
            p("end_ns").max(),
            (p("kind") == "send").any().alias("sends"),
            (p("rank").filter(outer).n_unique() == parties.n_unique()).alias("complete"),
        )
        .filter("sends")
        .sort("end_ns", *KEY)
    )
