"""Replicas that mix in a still picture, drawn: the left half of svg.py where a run has them."""

from __future__ import annotations

import math

from workbench.common.units import print_size
from workbench.front_end.svg import INK, Point, line, made_line, round_up, text
from workbench.views.stills.peers import ALIKE, Mixing

CIRCLE = (170.0, 206.0, 74.0)  # center and radius
AWAY, BAR = 6.0, 26.0  # from a rank's rim to its bar, and its length
MOST_PLANNED = 200  # links


def marks(still: Mixing) -> list[str]:
    """Draw SVG elements. A rank's bar shows its distance from the mean."""
    cx, cy, radius = CIRCLE
    turns = [2 * math.pi * rank / max(1, still.ranks) for rank in range(still.ranks)]
    out = [(math.sin(turn), -math.cos(turn)) for turn in turns]
    place = [(cx + radius * x, cy + radius * y) for x, y in out]
    node = max(3.0, min(12.0, 0.2 * 2 * math.pi * radius / max(1, still.ranks)))
    result = []
    most = max((nbytes for _, _, nbytes in still.sent), default=1) or 1
    thick = 5.0 if len(still.sent) <= 2 * still.ranks else 1.5
    for source, target, nbytes in still.sent:
        a, b = _beside(place[source], place[target])
        down = still.made_links.get((source, target))
        plain = line(a, b, "edge", 0.5 + (thick - 0.5) * nbytes / most)
        result.append(plain if down is None else made_line(a, b, down))
    if len(still.planned) <= MOST_PLANNED:
        result += [line(place[a], place[b], "ink", 0.6) for a, b in still.planned]
    scale = round_up(max(still.distances, default=1.0))
    for rank, ((x, y), (ox, oy)) in enumerate(zip(place, out, strict=True)):
        if still.distances:
            near = node + AWAY
            start = (x + ox * near, y + oy * near)
            full, end = (
                (start[0] + ox * BAR * share, start[1] + oy * BAR * share)
                for share in (1.0, still.distances[rank] / scale)
            )
            result.append(line(start, full, "rule", 6 if node > 7 else 2))
            if still.distances[rank] >= ALIKE:
                result.append(line(start, end, "ink-2", 6 if node > 7 else 2))
        result.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{node:.1f}" fill="{INK["ink-2"]}"/>')
        if node > 7:
            result.append(text(x, y + 4, str(rank), "ground", size=11, weight=700, anchor="middle"))
    return result + _key(still, scale, most)


def _beside(a: Point, b: Point) -> tuple[Point, Point]:
    """Shift the two directions of a pair so that they lie side by side."""
    length = math.dist(a, b) or 1.0
    dx, dy = -(b[1] - a[1]) / length * 3, (b[0] - a[0]) / length * 3
    return (a[0] + dx, a[1] + dy), (b[0] + dx, b[1] + dy)


def _key(still: Mixing, scale: float, most: int) -> list[str]:
    x, y = 308.0, 262.0
    words = [("ink", 0.6, "mixes with: the plan")]
    if still.sent:
        words.append(("edge", 5.0, f"{print_size(int(float(f'{most:.3g}')))} sent"))
    if still.distances:
        words.append(("ink-2", 6.0, f"full bar: {scale:g} from the mean"))
    result = []
    if still.made_links:
        result += [made_line((x, y - 22), (x + 20, y - 22), False)]
        result += [text(x + 28, y - 18, "emulated link")]
    for row, (ink, width, caption) in enumerate(words):
        at = y + 22 * row
        result += [line((x, at), (x + 20, at), ink, width), text(x + 28, at + 4, caption)]
    return result
