"""The critical path as a still picture: one thread through the ranks, what is beside it pale."""

from __future__ import annotations

import polars as pl

from workbench.analysis.critical_path.moments import COMPUTES
from workbench.front_end.svg import INK, line, opened, text

WIDTH, LEFT, RIGHT, TOP = 960, 64, 16, 56
PITCH, BAR = 38, 14  # px: from rank to rank, height of a bar
SHORTEST = 1.0  # px that a bar is wide at least
PALE = "#e6e8ec"  # what is not on the path
LEGEND = (("computing", "ink"), ("messages and links", "comm"), ("in no row", "edge"))


def picture(segments: pl.DataFrame, slack: pl.DataFrame, words: str) -> str:
    """Draw the path over the rows of its ranks, from its tables; ``words``: its sentence."""
    begin, end = int(segments["start_ns"][0]), int(segments["end_ns"][-1])
    scale = (WIDTH - LEFT - RIGHT) / max(1, end - begin)
    seen = [one[name] for one in (segments, slack) for name in ("rank", "peer")]
    ranks = range(1 + int(pl.concat(seen).max() or 0))  # type: ignore[arg-type]
    height = TOP + PITCH * len(ranks) + 28

    def at(ns: int) -> float:
        return LEFT + (ns - begin) * scale

    def level(rank: int) -> float:
        return TOP + PITCH * rank + PITCH / 2

    parts = opened(words, WIDTH, height)
    parts.append(text(LEFT, 22, words, "ink", weight=600, most=140))
    parts += _legend()
    for rank in ranks:
        parts.append(line((LEFT, level(rank)), (WIDTH - RIGHT, level(rank)), "rule", 1))
        parts.append(text(LEFT - 8, level(rank) + 4, f"rank {rank}", anchor="end"))
    for rank, kind, start, stop in slack.select("rank", "kind", "start_ns", "end_ns").iter_rows():
        if kind != "link":
            a, b = max(at(start), LEFT), max(at(stop), LEFT)
            parts.append(_bar(a, b, level(rank), BAR if kind in COMPUTES else BAR / 2, PALE))
    here = (float(LEFT), level(int(segments["rank"][0])))
    for rank, kind, start, stop, peer in segments.select(
        "rank", "kind", "start_ns", "end_ns", "peer"
    ).iter_rows():
        a, b, y = at(start), at(stop), level(max(0, rank))
        parts.append(line(here, (a, y), "ink", 1.5))
        here = (b, level(peer) if kind == "link" else y)
        parts += _segment(kind, (a, y), here)
    parts.append(text(LEFT, height - 10, "0", "ink-3", size=11))
    parts.append(
        text(
            WIDTH - RIGHT,
            height - 10,
            f"{(end - begin) * 1e-6:.4g} ms",
            "ink-3",
            size=11,
            anchor="end",
        )
    )
    return "".join([*parts, "</svg>"])


def _segment(kind: str, a: tuple[float, float], b: tuple[float, float]) -> list[str]:
    """Draw one segment of the path."""
    if kind == "link":
        return [line(a, b, "comm", 3)]
    if kind == "gap":
        return [line(a, b, "edge", 3, "2 3")]
    if kind in ("fault", "hold"):
        return [_bar(a[0], b[0], a[1], BAR, INK[kind])]
    computes = kind in COMPUTES
    return [
        _bar(a[0], b[0], a[1], BAR if computes else BAR / 2, INK["ink" if computes else "comm"])
    ]


def _bar(a: float, b: float, middle: float, tall: float, fill: str) -> str:
    wide = max(SHORTEST, b - a)
    return (
        f'<rect x="{a:.1f}" y="{middle - tall / 2:.1f}" width="{wide:.1f}" height="{tall:g}" '
        f'fill="{fill}"/>'
    )


def _legend() -> list[str]:
    parts, x = [], float(LEFT)
    for words, ink in LEGEND:
        parts.append(line((x, 38), (x + 22, 38), ink, 3, "2 3" if ink == "edge" else ""))
        parts.append(text(x + 28, 42, words, "ink-3", size=11))
        x += 60 + 6.2 * len(words)
    parts.append(_bar(x, x + 22, 38, 8, PALE))
    return [*parts, text(x + 28, 42, "not on the path: it has slack", "ink-3", size=11)]
