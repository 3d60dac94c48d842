"""The picture of a report: which rank waits for which, or whose contribution is missing where.

An SVG with its own background and ink (``currentColor``), for light and dark: it is shown as an
image, which cannot see the page around it. Faults have a color that stands out on both
backgrounds, and a shape.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from workbench.studies.checking.waiting import ANY, Deadlock, Stand

if TYPE_CHECKING:
    from workbench.studies.checking.judge import Verdict

FAULT, WAITS = "#d9414e", "#b0569a"
MONO = "font-family=\"ui-monospace,'SF Mono',Menlo,'Liberation Mono',monospace\""
WIDTH, NODE = 760, 17


def picture(case: Verdict) -> str:
    """Draw the fault of ``case`` as SVG; "" if there is nothing to draw."""
    if case.deadlock is not None:
        return waits_picture(case.deadlock, case.case.ranks)
    return parts_picture(case) if case.parts else ""


def waits_picture(deadlock: Deadlock, ranks: int) -> str:
    """Return the ranks on a circle, with an arrow from each waiting rank to its peer.

    Beside it stands each rank's position. The cycle is drawn bold, other waits dashed.
    """
    radius = max(58.0, min(96.0, 13.0 * ranks))
    height = max(2 * radius + 2 * NODE + 56, 60 + 40 * len(deadlock.stands))
    cx, cy = 40 + radius, 30 + NODE + radius
    turn = 2 * math.pi / max(ranks, 1)
    positions = [
        (cx + radius * math.sin(turn * r), cy - radius * math.cos(turn * r)) for r in range(ranks)
    ]
    stands = {stand.rank: stand for stand in deadlock.stands}
    ring = dict(zip(deadlock.cycle, (*deadlock.cycle[1:], *deadlock.cycle[:1]), strict=True))
    marks = []
    for rank, stand in stands.items():
        others = [r for r in range(ranks) if r != rank] if stand.peer == ANY else [stand.peer]
        for peer in others:
            strong = ring.get(rank) == peer
            both = stands.get(peer) is not None and stands[peer].peer in (rank, ANY)
            marks.append(_arrow(positions[rank], positions[peer], strong, bend=both))
    for rank, (x, y) in enumerate(positions):
        marks.append(_rank(x, y, rank, rank in ring, rank in stands, rank in deadlock.returned))
    text_x = cx + radius + NODE + 44
    for line, stand in enumerate(deadlock.stands):
        marks.append(_stand_text(text_x, 34 + 40 * line, stand, stand.rank in ring))
    title = f"Which rank waits for which: {deadlock.words}"
    return _svg(height, title, marks)


def _rank(x: float, y: float, rank: int, wrong: bool, waits: bool, returned: bool) -> str:
    color = FAULT if wrong else "currentColor"
    dashed = "" if waits or not returned else ' stroke-dasharray="3 3"'
    node = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{NODE}" fill="{color}" stroke="{color}" '
        f'fill-opacity="{0.16 if waits else 0}" stroke-width="{2.5 if wrong else 1.5}"{dashed}/>'
        f"{_text(x, y + 4.5, str(rank), anchor='middle', weight=700)}"
    )
    return node + (
        _text(x, y + NODE + 13, "returned", size=10.5, anchor="middle") if returned else ""
    )


def _arrow(a: tuple[float, float], b: tuple[float, float], strong: bool, bend: bool) -> str:
    """Return an arrow between the edges of two ranks; curved if there is one in each direction."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    offset = min(20.0, 0.16 * length) if bend else 0.0
    mx, my = (a[0] + b[0]) / 2 - uy * offset, (a[1] + b[1]) / 2 + ux * offset
    sx, sy = _edge(a, (mx, my), NODE + 2)
    ex, ey = _edge(b, (mx, my), NODE + 3)
    color, width = (FAULT, 2.5) if strong else (WAITS, 1.5)
    tx, ty = ex - mx, ey - my
    tip_length = math.hypot(tx, ty) or 1.0
    tx, ty = tx / tip_length, ty / tip_length
    size = 9 if strong else 7
    bx, by, half = ex - size * tx, ey - size * ty, size / 2  # where the head begins
    head = (
        f"{ex:.1f},{ey:.1f} {bx - half * ty:.1f},{by + half * tx:.1f} "
        f"{bx + half * ty:.1f},{by - half * tx:.1f}"
    )
    qx, qy = mx + (mx - (a[0] + b[0]) / 2), my + (my - (a[1] + b[1]) / 2)
    dashed = "" if strong else ' stroke-dasharray="4 3"'
    return (
        f'<path d="M{sx:.1f},{sy:.1f} Q{qx:.1f},{qy:.1f} {bx:.1f},{by:.1f}" '
        f'fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>'
        f'<polygon points="{head}" fill="{color}"/>'
    )


def _edge(
    center: tuple[float, float], toward: tuple[float, float], radius: float
) -> tuple[float, float]:
    dx, dy = toward[0] - center[0], toward[1] - center[1]
    length = math.hypot(dx, dy) or 1.0
    return center[0] + dx / length * radius, center[1] + dy / length * radius


def _stand_text(x: float, y: float, stand: Stand, wrong: bool) -> str:
    words = stand.words[0].upper() + stand.words[1:]
    return _text(x, y, words, weight=600 if wrong else 400) + _text(
        x, y + 16, stand.place.words, size=11.5, mono=True, opacity=0.85
    )


def parts_picture(case: Verdict) -> str:
    """Return a grid of ranks by chunks, with a slot for each rank's contribution in every entry.

    A full slot: added once. A dashed box: missing. A cross with a color: added more than once.
    """
    n = case.case.ranks
    slot = max(7.0, min(18.0, 520.0 / (n * n)))
    wide, high, gap = slot * n, 22.0, 8.0
    left, top = 64.0, 52.0
    marks = [
        _text(left, 16, f"Contributions in each chunk at the end ({case.case.words})", weight=600)
    ]
    for chunk in range(n):
        marks.append(
            _text(
                left + chunk * (wide + gap) + wide / 2,
                top - 10,
                f"chunk {chunk}",
                size=11,
                anchor="middle",
                opacity=0.8,
            )
        )
    for rank, row in enumerate(case.parts):
        y = top + rank * (high + gap)
        marks.append(_text(left - 10, y + high / 2 + 4, f"rank {rank}", size=11.5, anchor="end"))
        for chunk, counts in enumerate(row):
            x = left + chunk * (wide + gap)
            wrong = any(count != 1 for count in counts)
            marks.append(
                f'<rect x="{x - 2:.1f}" y="{y - 2:.1f}" width="{wide + 4:.1f}" '
                f'height="{high + 4:.1f}" rx="3" fill="none" stroke="'
                f'{FAULT if wrong else "currentColor"}" stroke-opacity="{1 if wrong else 0.35}" '
                f'stroke-width="{1.5 if wrong else 1}"/>'
            )
            for place, count in enumerate(counts):
                marks.append(_part(x + place * slot, y, slot, high, place, count))
    key = top + n * (high + gap) + 16
    marks += [
        _text(left, key, "■ once", size=11, opacity=0.85),
        _text(left + 80, key, "▫ missing", size=11, fill=FAULT),
        _text(left + 160, key, "✕ more than once", size=11, fill=FAULT),
        _text(left + 300, key, "slots from left: rank 0, rank 1, …", size=11, opacity=0.85),
    ]
    return _svg(key + 12, f"{case.case.words}: {case.words}", marks)


def _part(x: float, y: float, wide: float, high: float, place: int, count: int) -> str:
    box = f'x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{high:.1f}" rx="1.5"'
    if count == 0:
        look = f'fill="none" stroke="{FAULT}" stroke-width="1.2" stroke-dasharray="2.5 2"'
        return f"<rect {box} {look}/>"
    if count == 1:
        return f'<rect {box} fill="currentColor" fill-opacity="{0.35 + 0.3 * (place % 2):.2f}"/>'
    cross = (
        f'<path d="M{x + 2:.1f},{y + 2:.1f} L{x + wide - 2:.1f},{y + high - 2:.1f} '
        f'M{x + wide - 2:.1f},{y + 2:.1f} L{x + 2:.1f},{y + high - 2:.1f}" stroke="{FAULT}" '
        'stroke-width="1.5"/>'
    )
    return f'<rect {box} fill="{FAULT}" fill-opacity="0.25"/>{cross}'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 12.5,
    weight: int = 400,
    anchor: str = "start",
    mono: bool = False,
    opacity: float = 1.0,
    fill: str = "currentColor",
) -> str:
    words = words if len(words) <= 90 else f"{words[:89]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {MONO if mono else ""} font-size="{size}" '
        f'font-weight="{weight}" text-anchor="{anchor}" fill="{fill}" fill-opacity="{opacity}" '
        f'xml:space="preserve">{escape(words)}</text>'
    )


def _svg(height: float, title: str, marks: list[str]) -> str:
    from workbench.front_end.svg import IN_BOTH, opened

    return "".join([*opened(title, WIDTH, round(height), IN_BOTH), *marks, "</svg>"])
