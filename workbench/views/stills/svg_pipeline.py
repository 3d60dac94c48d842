"""One iteration of a pipeline, drawn: all of svg.py where a run has stages, for there the loss is
not the subject.
"""

from __future__ import annotations

from workbench.front_end.svg import INK, line, text
from workbench.training.pipelines.schedule_picture import HUES, ON_DARK
from workbench.views.stills.pipeline import Bar, Piped

TOP, BOTTOM = 92.0, 292.0
LEFT, RIGHT, IDLE = 70.0, 896.0, 936.0  # of the bars; where the idle share is written
SHORTEST = 0.006  # of the picture's width: an all-reduce that can be seen
MOST = 16  # ranks that are drawn
DIGIT, HIGH = 6.2, 12  # px: of a number; of a bar that is numbered
WHYS = {  # a reason to idle: its words, and the pattern that is the page's too
    "warm_up": ("warm-up and drain", "wb-idle"),
    "imbalance": ("imbalance", "wb-imbalance"),
    "communication": ("communication", "wb-comm"),
    "fault": ("fault", "wb-fault"),
}
PATTERNS = (
    '<defs><pattern id="wb-idle" width="9" height="9" patternUnits="userSpaceOnUse">'
    f'<path d="M-1 10L10 -1" stroke="{INK["edge"]}" stroke-width="0.8"/></pattern>'
    '<pattern id="wb-back" width="5" height="5" patternUnits="userSpaceOnUse">'
    f'<path d="M-1 6L6 -1" stroke="{INK["ground"]}" stroke-width="1.6"/></pattern>'
    '<pattern id="wb-weight" width="4" height="4" patternUnits="userSpaceOnUse">'
    f'<path d="M0.5 1h1.5M2.5 3h1.5" stroke="{INK["ground"]}" stroke-width="1.4"/>'
    '</pattern><pattern id="wb-imbalance" width="5" height="5" patternUnits="userSpaceOnUse">'
    f'<path d="M-1 -1L6 6" stroke="{INK["wait"]}" stroke-width="1.6"/></pattern>'
    '<pattern id="wb-comm" width="3" height="3" patternUnits="userSpaceOnUse">'
    f'<path d="M0 1.5h3" stroke="{INK["comm"]}" stroke-width="1.5"/></pattern>'
    '<pattern id="wb-fault" width="6" height="6" patternUnits="userSpaceOnUse">'
    f'<path d="M-1 -1L7 7M-1 7L7 -1" stroke="{INK["fault"]}" stroke-width="1.1"/>'
    "</pattern></defs>"
)


def marks(still: Piped) -> list[str]:
    """Draw SVG elements: a row per rank, idle time empty, microbatches by hue and number."""
    ranks = min(still.ranks, MOST)
    pitch = (BOTTOM - TOP) / max(ranks, 1)
    tall = min(30.0, pitch * 0.7)
    lanes = max(1, max((still.stages.count(rank) for rank in range(ranks)), default=1))
    result = [PATTERNS]
    for rank in range(ranks):
        y = TOP + rank * pitch
        own = still.stages_of(rank)
        name = f"stage {own[0]}" if len(own) == 1 and still.replicas == 1 else f"rank {rank}"
        result.append(text(16, y + tall / 2 + 4, name, "ink", size=11, weight=700))
        result.append(_box(LEFT, y, still.whole * (RIGHT - LEFT), tall, INK["panel"]))
        if not still.bars:
            continue
        if not still.waits:
            result.append(_box(LEFT, y, still.whole * (RIGHT - LEFT), tall, "url(#wb-idle)"))
        share = f"{still.idle[rank] * 100:.0f} %"
        result.append(text(IDLE, y + tall / 2 + 4, share, "ink-3", size=11, anchor="end"))
    for wait in still.waits:
        if wait.place < ranks:
            pattern = f"url(#{WHYS[wait.why][1]})"
            result.append(_stretch(wait.start, wait.end, TOP + wait.place * pitch, tall, pattern))
    for place, start, end in still.joins:
        if place < ranks:
            y = TOP + place * pitch + tall / 4
            result.append(_stretch(start, max(end, start + SHORTEST), y, tall / 2, INK["comm"]))
    for bar in still.bars:
        if bar.place < ranks:
            lane = still.stages_of(bar.place).index(bar.stage)
            y = TOP + bar.place * pitch + lane * tall / lanes
            result += _bar(bar, y, tall / lanes)
    if still.bars:
        result.append(text(IDLE, TOP - 6, "idle", "ink-3", size=11, anchor="end"))
    return result + _key(still, still.ranks - ranks)


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )


def _stretch(start: float, end: float, y: float, height: float, fill: str) -> str:
    return _box(LEFT + start * (RIGHT - LEFT), y, (end - start) * (RIGHT - LEFT), height, fill)


def _bar(bar: Bar, y: float, tall: float) -> list[str]:
    x = LEFT + bar.start * (RIGHT - LEFT)
    width = max(0.5, (bar.end - bar.start) * (RIGHT - LEFT) - 0.5)
    hue = bar.microbatch % len(HUES)
    number = str(bar.microbatch)
    own = DIGIT * len(number) + 3  # px that the number has for itself
    room = tall >= HIGH and width >= own + (0 if bar.what == "F" else 5)
    result = [_box(x, y, width, tall, HUES[hue])]
    clear = own if room else 0
    if bar.what != "F" and width > clear:
        pattern = "wb-weight" if bar.what == "W" else "wb-back"
        result.append(_box(x + clear, y, width - clear, tall, f"url(#{pattern})"))
    if room:
        middle = x + (width if bar.what == "F" else own) / 2
        ink = "ground" if hue in ON_DARK else "ink"
        result.append(
            text(middle, y + tall / 2 + 4, number, ink, size=11, weight=700, anchor="middle")
        )
    return result


def _key(still: Piped, left_out: int) -> list[str]:
    y, x = BOTTOM + 34, 16.0
    kinds = {bar.what for bar in still.bars} or {"F", "B"}
    result: list[str] = []
    for what, words in (
        ("F", "forward"),
        ("B", "backward"),
        ("I", "input gradient"),
        ("W", "weight gradient"),
    ):
        if what in kinds:
            result += [_box(x, y - 11, 18, 11, HUES[0])]
            if what != "F":
                result.append(
                    _box(x, y - 11, 18, 11, f"url(#wb-{'weight' if what == 'W' else 'back'})")
                )
            result.append(text(x + 24, y - 1, words, size=11))
            x += 38 + 6 * len(words)
    if still.joins:
        result += [_box(x, y - 8, 18, 5.5, INK["comm"]), text(x + 24, y - 1, "all-reduce", size=11)]
        x += 90
    result.append(text(x, y - 1, "number and hue: microbatch", "ink-3", size=11))
    whys = {wait.why for wait in still.waits}
    named = [WHYS[why] for why in WHYS if why in whys]
    y += 17
    result.append(text(16, y - 1, "idle", size=11))
    x = 42.0
    for words, pattern in named or [("", "wb-idle")]:
        box = x, y - 11, 18, 11
        result += [_box(*box, INK["panel"]), _box(*box, f"url(#{pattern})")]
        result.append(text(x + 24, y - 1, words, size=11))
        x += 36 + 5.6 * len(words)
    if left_out:
        result.append(text(200, y + 16, f"{left_out} more ranks", "ink-3", size=11))
    return [*result, line((LEFT, BOTTOM + 8), (RIGHT, BOTTOM + 8), "rule", 0.75)]
