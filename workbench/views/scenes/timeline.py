"""Timeline: one iteration on every rank, where no script runs: computing above communicating.

It is drawn only where a cell asks for it (``run.view("timeline")``): every run has one. Where
checkpoints are written it is an iteration that one is written in. A job of the user's own records
neither iterations nor what it computes: of it, some of its collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.front_end.svg import INK, in_ms, line, round_ticks, text

ON_REQUEST = WIDE = True  # only where it is asked for; the whole width is its own
LEFT, RIGHT, TOP, BOTTOM = 72.0, 944.0, 92.0, 318.0
COMPUTING = {
    "forward": "#3b6fd4",
    "backward": "#7fa4ea",
    "weight_grad": "#a9c2f3",
    "optimizer": "#1a7a43",
    "apply": "#1a7a43",
}
CHECKPOINT = "#b59a3c"
COMMUNICATING = ("collective", "push", "pull", "wait")
MOST_RANKS, MOST_BARS = 16, 1500
MESSAGES = ("control", "metrics")  # groups whose messages are not training's
CALLS = 4  # collectives of a job without iterations that are shown
APART = 2.0  # times the longest rank's own iteration: they are not in it at the same time


@dataclass(frozen=True)
class Bars:
    """One iteration: of each bar rank, kind, and from when to when, in ms. Where ranks are not in
    the same one at the same time, as long a piece of the run instead, from its start on one rank.
    ``iteration``: -1 if there are none, and the bars are some collectives.
    """

    iteration: int
    ranks: tuple[int, ...]
    bars: tuple[tuple[int, str, float, float], ...]
    whole_ms: float
    together: bool = True
    checkpoint: bool = False


def select(rows: pl.LazyFrame, facts: Mapping[str, Any]) -> Bars | None:
    """Return a settled iteration of all ranks, or some collectives of a job without iterations;
    None where there is neither.
    """
    p = pl.col
    kind = p("kind").cast(pl.String)
    rows = rows.filter(p("rank").is_between(0, MOST_RANKS - 1))
    message = (
        (kind == "send") & (p("collective") == "p2p") & ~p("group").cast(pl.String).is_in(MESSAGES)
    )
    drawn = kind.is_in([*COMPUTING, *COMMUNICATING]) | message
    known = rows.filter(drawn, p("iteration") >= 0)
    steps = known.filter(p("kind") == "forward").group_by("iteration")
    spans = steps.agg(p("start_ns").min(), p("rank").n_unique()).sort("iteration").collect()
    if not len(spans):
        return _calls(rows)
    saved = rows.filter(kind == "checkpoint").collect()
    whole = spans.filter(p("rank") == spans["rank"].max())["iteration"]
    # A checkpoint's iteration is how many are done: the next one has that number.
    writing = whole.filter(whole.is_in(saved["iteration"].unique().to_list()))
    choice = writing if len(writing) else whole
    iteration = int(choice[len(choice) * 3 // 4])
    one = known.filter(p("iteration") == iteration).collect()
    each = one.group_by("rank").agg(p("start_ns").min(), p("end_ns").max()).sort("start_ns")
    begins, ends = each["start_ns"].to_list(), each["end_ns"].to_list()
    longest = max(end - begin for begin, end in zip(begins, ends, strict=True))
    begin, end = begins[0], max(ends)
    together = end - begin <= APART * longest
    if not together:
        begin = begins[len(begins) // 2]
        end = begin + longest
        one = _between(known.collect(), begin, end)
    one = pl.concat([_between(saved, begin, end), one])  # a checkpoint is behind what waits
    return _bars(one, iteration, begin, end, together=together, checkpoint=bool(len(writing)))


def _calls(rows: pl.LazyFrame) -> Bars | None:
    """Return some of the last collectives of a job that records no iterations."""
    p = pl.col
    known = rows.filter(p("kind").cast(pl.String).is_in(COMMUNICATING)).collect()
    calls = known.filter(p("kind") == "collective").group_by("generation", "group", "op")
    spans = calls.agg(p("start_ns").min(), p("end_ns").max()).sort("start_ns")
    if not len(spans):
        return None
    first = max(0, min(len(spans) * 3 // 4, len(spans) - CALLS))
    shown = spans[first : first + CALLS]
    begin, end = int(shown["start_ns"][0]), int(shown["end_ns"].to_numpy().max())
    return _bars(_between(known, begin, end), -1, begin, end)


def _between(rows: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
    """Return what of the rows lies between two moments, cut off there."""
    p = pl.col
    return rows.filter(p("start_ns") < end, p("end_ns") > begin).with_columns(
        p("start_ns").clip(lower_bound=begin), p("end_ns").clip(upper_bound=end)
    )


def _bars(rows: pl.DataFrame, iteration: int, begin: int, end: int, **flags: bool) -> Bars:
    p = pl.col
    named = _standing(rows).head(MOST_BARS)
    order = (p("kind") != "checkpoint", "start_ns")
    bars = tuple(
        (rank, kind, (start - begin) / 1e6, (stop - begin) / 1e6)
        for rank, kind, start, stop in named.sort(*order).rows()
    )
    ranks = tuple(sorted({bar[0] for bar in bars}))
    return Bars(iteration, ranks, bars, (end - begin) / 1e6, **flags)


def _standing(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rank, kind, start_ns, end_ns; of a wait for a message only where its rank does not
    compute: a thread that listens meanwhile keeps no rank from its work.
    """
    p, columns = pl.col, ["rank", "kind", "start_ns", "end_ns"]
    rows = rows.with_columns(p("kind").cast(pl.String))
    listens = (p("kind") == "wait") & (p("collective") == "p2p")
    computed = rows.filter(p("kind").is_in([*COMPUTING])).sort("start_ns")
    pieces = []
    for rank, start, end in rows.filter(listens).select("rank", *columns[2:]).rows():
        for begun, ended in computed.filter(rank=rank).select(columns[2:]).rows():
            if start < begun < end:
                pieces.append((rank, "wait", start, begun))
            start = min(end, max(start, ended)) if begun < end else start
        if start < end:
            pieces.append((rank, "wait", start, end))
    others = rows.filter(~listens).select(columns)
    return pl.concat([others, pl.DataFrame(pieces, others.schema, orient="row")])


def draw(selected: Bars) -> list[str]:
    """Draw a pair of lanes for each rank, an axis and a key."""
    row = min(46.0, (BOTTOM - TOP) / max(1, len(selected.ranks)))
    scale = (RIGHT - LEFT) / max(selected.whole_ms, 1e-6)
    which = f"Iteration {selected.iteration + 1}, {selected.whole_ms:.1f} ms"
    if not selected.together:
        which = f"{selected.whole_ms:.1f} ms of the run, each rank in an iteration of its own"
    words = f"{which}: computing above, below it collectives and messages; magenta: waiting"
    if selected.iteration < 0:
        words = (
            f"{selected.whole_ms:.1f} ms of the job: its collectives; magenta: waiting for a peer"
        )
    parts = [
        text(16, 56, "Timeline", "ink", weight=700),
        text(
            16,
            74,
            words,
            "ink-3",
            size=11,
            most=140,
        ),
    ]
    for at, rank in enumerate(selected.ranks):
        y = TOP + at * row
        parts.append(text(16, y + row / 2 + 1, f"rank {rank}", size=11))
        for owner, kind, start, stop in selected.bars:
            if owner == rank:
                parts.append(_bar(kind, LEFT + start * scale, (stop - start) * scale, y, row))
    base = TOP + row * len(selected.ranks) + 6
    parts.append(f'<path d="M{LEFT} {base:.1f}H{RIGHT}" stroke="{INK["edge"]}"/>')
    for ms in round_ticks(selected.whole_ms):
        x = LEFT + ms * scale
        anchor = "end" if x > RIGHT - 20 else "middle"  # its words end where the picture does
        parts.append(line((x, base), (x, base + 4), "edge", 1))
        parts.append(text(x, base + 15, in_ms(ms), "ink-3", size=11, anchor=anchor))
    return [*parts, *_key(selected)]


def _bar(kind: str, x: float, width: float, y: float, row: float) -> str:
    half = (row - 6) / 2
    if kind in COMPUTING:
        top, high, ink = y, half, COMPUTING[kind]
    elif kind == "checkpoint":
        top, high, ink = y + half, half, CHECKPOINT
    elif kind == "wait":
        top, high, ink = y + half + half * 0.6, half * 0.4, INK["wait"]
    else:
        top, high, ink = y + half, half * 0.6, INK["comm"]
    return (
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(width, 0.6):.1f}" height="{high:.1f}" '
        f'fill="{ink}"/>'
    )


def _key(selected: Bars) -> list[str]:
    """Name the colors of the bars that there are."""
    computing = {k: COMPUTING[k] for k in ("forward", "backward", "optimizer")}
    shown = computing if selected.iteration >= 0 else {}
    shown |= {"communication": INK["comm"], "waiting": INK["wait"]}
    shown |= {"checkpoint": CHECKPOINT} if selected.checkpoint else {}
    parts = []
    for at, (words, ink) in enumerate(shown.items()):
        x = LEFT + at * 120
        parts.append(f'<rect x="{x}" y="340" width="10" height="10" fill="{ink}"/>')
        parts.append(text(x + 15, 349, words, "ink-2", size=11))
    return parts
