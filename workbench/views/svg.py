"""The still picture drawn: ``svg(still)``, text that needs nobody's font, file or style.

A ring of ranks with who sends to whom, chunks on their way and who waits; the loss; one sentence.
"""

from __future__ import annotations

import math
from html import escape

from workbench.views.still import Still
from workbench.views.still_calls import Flight, Side

# theme.css, light: the picture keeps its own ground
INK = {
    "ground": "#ffffff", "panel": "#f4f5f7", "ink": "#14181d", "ink-2": "#434a53",
    "ink-3": "#646b75", "rule": "#dadde2", "edge": "#858c96", "comm": "#cd6602",
    "wait": "#a6277f", "fault": "#bc1e2c", "live": "#1a7a43",
}  # fmt: skip
# For a picture that draws with ``currentColor`` on the ground that ``opened`` gives it.
IN_BOTH = (
    f"<style>svg{{color:{INK['ink']}}}@media (prefers-color-scheme:dark){{svg{{color:#eceff2}}"
    "svg>rect:first-of-type{fill:#14171b}}</style>"
)
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
WIDTH, HEIGHT = 960, 360
RING = (170.0, 216.0, 116.0)  # centre and radius
CHART = (520, 92, 400, 220)  # x, y, width, height

Place = tuple[float, float]  # x, y


def opened(words: str, width: int, height: int, more: str = "") -> list[str]:
    """How every still picture begins: its size, its words for who does not see it, its ground.
    ``more``: definitions that its marks use.
    """
    said = escape(words)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{said}" font-family="{FONT}" font-size="12">',
        f"<title>{said}</title>{more}",
        f'<rect width="{width}" height="{height}" fill="{INK["ground"]}"/>',
    ]


def svg(still: Still) -> str:
    """The picture as SVG text: it needs no font, file or style of anybody else's."""
    title = f"{still.sentence} {still.call}".strip()
    parts = [
        *opened(title, WIDTH, HEIGHT),
        text(16, 28, still.sentence, "fault" if still.failed else "ink", size=16, most=110),
        *_left(still),
        *(_chart(still) if still.trains else []),
        "</svg>",
    ]
    return "".join(parts)


def _left(still: Still) -> list[str]:
    """Servers and workers, a pipeline's stages, or the newest collective on its ring."""
    if still.pair:
        from workbench.views.svg_pair import marks as pair_marks  # it draws with what is below

        return pair_marks(still.pair)
    if still.served is not None:
        from workbench.views.svg_server import marks  # it draws with what is below

        title, words = "Who pushed and pulled", still.served.words or "Nothing was pushed yet."
        drawn = marks(still.served)
    elif still.piped is not None:
        from workbench.views.svg_pipeline import marks as piped_marks  # the same

        title, words = "Where the time went", still.piped.words or "No iteration is complete yet."
        drawn = piped_marks(still.piped)
    elif still.mixed is not None:
        from workbench.views.svg_peers import marks as mixed_marks  # the same

        title, words = "Who mixed with whom, and how far each is from the mean", still.mixed.words
        drawn = mixed_marks(still.mixed)
    elif still.sharded is not None:
        from workbench.views.svg_shards import marks as sharded_marks  # the same

        title = "Who kept which part of which layer"
        words = still.sharded.words or "No layer has been gathered yet."
        drawn = sharded_marks(still.sharded)
    else:
        title, words = "Where the chunks were", still.call or "No collective is complete yet."
        drawn = ring(still) + key(308, 302)
    return [
        text(16, 56, title, "ink", weight=700),
        text(16, 74, words, "ink-3", size=11, most=82),
        *drawn,
    ]


def text(
    x: float, y: float, words: str, ink: str = "ink-2", *, size: int = 12, weight: int = 400,
    anchor: str = "start", most: int = 60,
) -> str:  # fmt: skip
    words = words if len(words) <= most else words[: most - 1] + "…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK[ink]}" font-size="{size}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>'
    )


def line(a: tuple[float, float], b: tuple[float, float], ink: str, width: float) -> str:
    return (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" '
        f'stroke="{INK[ink]}" stroke-width="{width:g}"/>'
    )


def ring(still: Still | Side) -> list[str]:
    """Ranks on a circle, who sends to whom, what is on its way, who waits."""
    cx, cy, radius = RING
    turns = [2 * math.pi * rank / max(1, still.ranks) for rank in range(still.ranks)]
    place = [(cx + radius * math.sin(turn), cy - radius * math.cos(turn)) for turn in turns]
    node = max(3.0, min(15.0, 0.22 * 2 * math.pi * radius / max(1, still.ranks)))
    numbered = node >= 8
    marks = [line(place[a], place[b], "rule", 4) for a, b in still.links]
    if not still.links:
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
    for flight in still.flights:
        marks.extend(_comet(place[flight.source], place[flight.target], flight, node))
    return marks


def _comet(a: Place, b: Place, flight: Flight, node: float) -> list[str]:
    """A chunk between the rims of two ranks, its tail the way done."""
    length = math.dist(a, b) or 1.0
    rim = min(node + 10, 0.4 * length)
    along = [(rim + (length - 2 * rim) * share) / length for share in (0.0, flight.share)]
    tail, head = ((a[0] + (b[0] - a[0]) * u, a[1] + (b[1] - a[1]) * u) for u in along)
    return [line(tail, head, "comm", 2), _cell(*head, flight.chunk, small=node < 12)]


def _cell(x: float, y: float, chunk: int, small: bool = False) -> str:
    """A chunk as a box with its number."""
    width, height = (16, 13) if small else (20, 16)
    number = text(x, y + 4, str(chunk), "ink", size=11, weight=700, anchor="middle")
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width}" '
        f'height="{height}" rx="2" fill="{INK["ground"]}" stroke="{INK["comm"]}" '
        f'stroke-width="2"/>{number if chunk >= 0 else ""}'
    )


def key(x: float, y: float) -> list[str]:
    return [
        line((x, y - 22), (x + 20, y - 22), "rule", 4),
        text(x + 28, y - 18, "sends to"),
        _cell(x + 10, y, 3),
        text(x + 28, y + 4, "chunk 3 on its way"),
        f'<circle cx="{x + 10}" cy="{y + 23}" r="7" fill="none" stroke="{INK["wait"]}" '
        f'stroke-width="2" stroke-dasharray="3 2.5"/>',
        text(x + 28, y + 27, "waits for another rank"),
    ]


def _chart(still: Still) -> list[str]:
    """The loss, one point an iteration; axes and places are there before it is."""
    x, y, width, height = CHART
    newest = f"{still.losses[-1][1]:.3g} at iteration {still.losses[-1][0]}" if still.losses else ""
    marks = [
        text(x - 32, 56, "Loss", "ink", weight=700),
        text(x - 32, 74, newest or "No loss is known yet.", "ink-3", size=11),
    ]
    last = still.losses[-1][0] if still.losses else 0
    span = max(still.iterations - 1, last, 1)
    top = round_up(max((loss for _, loss in still.losses), default=1.0))
    low = min(0.0, min((loss for _, loss in still.losses), default=0.0))

    def at(iteration: float, loss: float) -> Place:
        return x + width * iteration / span, y + height * (top - loss) / (top - low)

    for level in (low, (low + top) / 2, top):
        marks.append(line(at(0, level), at(span, level), "rule", 0.75))
        marks.append(text(x - 8, at(0, level)[1] + 4, f"{level:g}", "ink-3", size=11, anchor="end"))
    for iteration in (0, span):
        marks.append(
            text(
                at(iteration, low)[0],
                y + height + 18,
                f"{iteration}",
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


def round_up(value: float) -> float:
    """The next round number that is not smaller."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(
        m * scale for m in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * scale >= value * (1 - 1e-9)
    )
