"""The still picture drawn: ``svg(still)``, text that needs no font, file or style from elsewhere.

A ring of ranks with their messages, chunks on their way and waiting ranks; the loss; one sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from workbench.front_end.svg import (
    INK,
    Point,
    in_ms,
    line,
    made_line,
    opened,
    round_ticks,
    round_up,
    text,
)
from workbench.views.stills.calls import Flight, Side
from workbench.views.stills.still import Still

WIDTH, HEIGHT = 960, 360
MADE_HEIGHT = 22  # of the line that says what is emulated
RING = (170.0, 216.0, 116.0)  # center and radius
CHART = (520, 92, 400, 220)  # x, y, width, height


def svg(still: Still) -> str:
    """Draw the picture as SVG text that needs no font, file or style from elsewhere."""
    notes = " · ".join(still.notes)
    title = f"{still.sentence} {f'{notes}.' if notes else ''} {still.call}".strip()
    below = MADE_HEIGHT if notes else 0
    parts = [
        *opened(title, WIDTH, HEIGHT + below),
        text(16, 28, still.sentence, "fault" if still.failed else "ink", size=16, most=110),
        text(16, 50, notes, "hold", weight=700, most=140) if notes else "",
        f'<g transform="translate(0 {below})">' if notes else "",
        *_left_half(still),
        *(_chart(still) if still.trains else _call_lanes(still) if still.scene is None else []),
        "</g>" if notes else "",
        "</svg>",
    ]
    return "".join(parts)


def _left_half(still: Still) -> list[str]:
    """Return the picture of the scene that the run has, or the newest collective on its ring."""
    if still.scene is not None:
        return still.scene.draw(still.selected)
    words = still.call or "No collective is complete yet."
    title = "Who waits for whom" if still.deadlock else "Where the chunks were"
    return [
        *title_lines(title, words),
        *ring(still),
        *key(344 if still.of_a_host else 308, 302, has_emulated=bool(still.made_links)),
    ]


def title_lines(title: str, words: str) -> list[str]:
    """Return the two lines above the left half: what it shows, and of which moment."""
    return [
        text(16, 56, title, "ink", weight=700),
        text(16, 74, words, "ink-3", size=11, most=82),
    ]


@dataclass(frozen=True)
class _Layout:
    """Places of ranks: ``node`` is the radius of each, ``boxes`` are the hosts' centers and
    ``half`` half of such a box's side.
    """

    places: list[Point]
    node: float
    boxes: tuple[Point, ...] = ()
    half: float = 0.0


def _on_circle(center: Point, radius: float, many: int, first: float = 0.0) -> list[Point]:
    """Return so many places, clockwise; ``first``: the turn of the first one from the top."""
    turns = [first + 2 * math.pi * at / max(1, many) for at in range(many)]
    return [(center[0] + radius * math.sin(t), center[1] - radius * math.cos(t)) for t in turns]


def _layout(ranks: int, of_a_host: int) -> _Layout:
    """Return the places of ranks: on one circle, or where hosts are known, on one for each host."""
    cx, cy, radius = RING
    hosts = math.ceil(ranks / of_a_host) if of_a_host else 1
    if hosts < 2 or of_a_host < 2:
        node = max(3.0, min(15.0, 0.22 * 2 * math.pi * radius / max(1, ranks)))
        return _Layout(_on_circle((cx, cy), radius, ranks), node)
    each = 0.22 * 2 * math.pi / of_a_host  # of a host's circle, the radius of a rank
    if hosts == 2:  # side by side, and turned a little: no link between them lies on another rank
        boxes, half, turn = [(cx - 85, cy), (cx + 85, cy)], 72.0, 0.35
    else:
        share = math.sin(math.pi / hosts)
        half, turn = radius * share / (1 + share) - 3, 0.0  # the widest that do not meet
        boxes = _on_circle((cx, cy), radius - half, hosts)
    circle = (half - 6) / (1 + each)
    places = [place for box in boxes for place in _on_circle(box, circle, of_a_host, turn)]
    return _Layout(places[:ranks], max(3.0, min(15.0, each * circle)), tuple(boxes), half)


def _boxes(layout: _Layout) -> list[str]:
    """Draw the hosts, with their numbers."""
    marks, size = [], 2 * layout.half
    corner = 8 if len(layout.boxes) == 2 else layout.half  # more than two meet as circles
    for host, (x, y) in enumerate(layout.boxes):
        marks.append(
            f'<rect x="{x - layout.half:.1f}" y="{y - layout.half:.1f}" width="{size:.1f}" '
            f'height="{size:.1f}" rx="{corner:.1f}" fill="{INK["panel"]}" stroke="{INK["edge"]}"/>'
        )
        marks.append(
            text(x, y - layout.half - 5, f"host {host}", "ink-3", size=11, anchor="middle")
        )
    return marks


def ring(still: Still | Side) -> list[str]:
    """Draw ranks on a circle, or on one for each host; the links between them, chunks on their way,
    and ranks that wait.
    """
    layout = _layout(still.ranks, still.of_a_host if isinstance(still, Still) else 0)
    place, node = layout.places, layout.node
    numbered = node >= 8
    marks = _boxes(layout)
    for ends in still.links:
        a, b = (place[rank] for rank in ends)
        down = still.made_links.get(ends)
        marks.append(line(a, b, "rule", 4) if down is None else made_line(a, b, down))
    if not still.links and not layout.boxes:
        cx, cy, radius = RING
        marks.append(
            f'<circle cx="{cx}" cy="{cy}" r="{radius}" fill="none" stroke="{INK["rule"]}"/>'
        )
    for rank, (x, y) in enumerate(place):
        if rank in still.waiting:
            marks.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{node + 4:.1f}" fill="none" '
                f'stroke="{INK["wait"]}" stroke-width="2" stroke-dasharray="3 2.5"/>'
            )
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{node:.1f}" fill="{INK["ink-2"]}"/>')
        if numbered:
            marks.append(text(x, y + 4, str(rank), "ground", weight=700, anchor="middle"))
    if isinstance(still, Still):
        around = [*still.deadlock, *still.deadlock[:1]]
        for waits, awaited in pairwise(around):
            marks.append(_arrow(place[waits], place[awaited], node + 6))
    for flight in still.flights:
        marks.extend(_comet(place[flight.source], place[flight.target], flight, node))
    return marks


def _arrow(a: Point, b: Point, rim: float) -> str:
    """Draw an arrow from the rank that waits to the one that it waits for, bent to its right, so
    that two that wait for each other have two.
    """
    (ax, ay), (bx, by) = a, b
    length = math.dist(a, b) or 1.0
    along = (bx - ax) / length, (by - ay) / length
    across = -along[1], along[0]
    bend = 0.16 * length

    def at(way: float, side: float) -> Point:
        return ax + along[0] * way + across[0] * side, ay + along[1] * way + across[1] * side

    start, end, middle = at(rim, 6), at(length - rim, 6), at(length / 2, 6 + bend)
    turn = math.atan2(end[1] - middle[1], end[0] - middle[0])
    head = [
        (end[0] - 10 * math.cos(turn + lean), end[1] - 10 * math.sin(turn + lean))
        for lean in (0.45, -0.45)
    ]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, *head))
    bent = "M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}".format(*start, *middle, *end)
    return (
        f'<path d="{bent}" fill="none" stroke="{INK["wait"]}" stroke-width="2.5"/>'
        f'<polygon points="{corners}" fill="{INK["wait"]}"/>'
    )


def _comet(a: Point, b: Point, flight: Flight, node: float) -> list[str]:
    """Draw a chunk between the rims of two ranks, its tail the way it has come."""
    length = math.dist(a, b) or 1.0
    rim = min(node + 10, 0.4 * length)
    along = [(rim + (length - 2 * rim) * share) / length for share in (0.0, flight.share)]
    tail, head = ((a[0] + (b[0] - a[0]) * u, a[1] + (b[1] - a[1]) * u) for u in along)
    return [line(tail, head, "comm", 2), _cell(*head, flight.chunk, small=node < 12)]


def _cell(x: float, y: float, chunk: int, small: bool = False) -> str:
    """Draw a chunk as a box with its number."""
    width, height = (16, 13) if small else (20, 16)
    number = text(x, y + 4, str(chunk), "ink", size=11, weight=700, anchor="middle")
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width}" '
        f'height="{height}" rx="2" fill="{INK["ground"]}" stroke="{INK["comm"]}" '
        f'stroke-width="2"/>{number if chunk >= 0 else ""}'
    )


def key(x: float, y: float, has_emulated: bool = False) -> list[str]:
    """Draw the key; ``has_emulated``: with that of emulated links."""
    emulated = [
        made_line((x, y - 44), (x + 20, y - 44), False),
        text(x + 28, y - 40, "emulated link"),
    ]
    return [
        *(emulated if has_emulated else []),
        line((x, y - 22), (x + 20, y - 22), "rule", 4),
        text(x + 28, y - 18, "sends to"),
        _cell(x + 10, y, 3),
        text(x + 28, y + 4, "chunk 3 on its way"),
        f'<circle cx="{x + 10}" cy="{y + 23}" r="7" fill="none" stroke="{INK["wait"]}" '
        f'stroke-width="2" stroke-dasharray="3 2.5"/>',
        text(x + 28, y + 27, "waits for another rank"),
    ]


def _call_lanes(still: Still) -> list[str]:
    """Draw the whole call, a lane for each rank, where ranks train nothing and have no loss."""
    lanes, (x, y, width, height) = still.lanes, CHART
    if lanes is None:
        return []
    row = min(40.0, height / max(1, still.ranks))
    base = y + row * still.ranks + 4
    marks = [
        text(x - 32, 56, "The whole call, rank by rank", "ink", weight=700),
        text(x - 32, 74, "orange: a chunk under way; magenta: waiting", "ink-3", size=11),
    ]
    for rank in range(still.ranks):
        if row >= 10:
            marks.append(text(x - 32, y + (rank + 0.5) * row + 4, str(rank), size=11))
    for rank, kind, start, end in lanes.bars:
        top, high = (0.1, 0.45) if kind == "comm" else (0.6, 0.3)
        marks.append(
            f'<rect x="{x + start * width:.1f}" y="{y + (rank + top) * row:.1f}" '
            f'width="{max(0.8, (end - start) * width):.1f}" height="{high * row:.1f}" '
            f'fill="{INK[kind]}"/>'
        )
    now = x + lanes.at * width
    marks += [line((x, base), (x + width, base), "edge", 1), line((now, y), (now, base), "ink", 1)]
    for ms in round_ticks(lanes.milliseconds):
        place = x + width * ms / (lanes.milliseconds or 1)
        marks.append(line((place, base), (place, base + 4), "edge", 1))
        marks.append(text(place, base + 16, in_ms(ms), "ink-3", size=11, anchor="middle"))
    return [
        *marks,
        text(now, base + 32, "the moment on the left", "ink-3", size=11, anchor="middle"),
    ]


def _chart(still: Still) -> list[str]:
    """Draw the loss, one point per iteration; axes and places are there before it is."""
    x, y, width, height = CHART
    newest = (
        f"{still.losses[-1][1]:.3g} in iteration {still.losses[-1][0] + 1}" if still.losses else ""
    )
    marks = [
        text(x - 32, 56, "Loss", "ink", weight=700),
        text(x - 32, 74, newest or "No loss is known yet.", "ink-3", size=11),
    ]
    last = still.losses[-1][0] if still.losses else 0
    span = max(still.iterations - 1, last, 1)
    top = round_up(max((loss for _, loss in still.losses), default=1.0))
    low = min(0.0, min((loss for _, loss in still.losses), default=0.0))

    def at(iteration: float, loss: float) -> Point:
        return x + width * iteration / span, y + height * (top - loss) / (top - low)

    for level in (low, (low + top) / 2, top):
        marks.append(line(at(0, level), at(span, level), "rule", 0.75))
        marks.append(text(x - 8, at(0, level)[1] + 4, f"{level:g}", "ink-3", size=11, anchor="end"))
    for iteration in (0, span):
        marks.append(
            text(
                at(iteration, low)[0],
                y + height + 18,
                f"{iteration + 1:,}",
                "ink-3",
                size=11,
                anchor="middle",
            )
        )
    marks.append(
        text(x + width / 2, y + height + 18, "iteration", "ink-3", size=11, anchor="middle")
    )
    if still.losses:
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in still.losses)
        cx, cy = at(*still.losses[-1])
        marks.append(
            f'<polyline points="{points}" fill="none" stroke="{INK["ink"]}" stroke-width="1.25"/>'
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3.5" fill="{INK["live"]}"/>'
        )
    return marks
