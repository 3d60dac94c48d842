"""Recoveries in a still picture, drawn: the left half of svg.py where a run has them."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.recovery import PHASES
from workbench.front_end.svg import INK, line, round_up, text
from workbench.views.stills.recovery import Waterfall

LEFT, TOP, WIDE, HIGH = 16.0, 96.0, 400.0, 176.0
BAR = 14.0
INKS = {"detect": "wait", "abort": "fault", "rebuild": "edge", "restore": "ink-2", "first": "live"}
RECEIVED = INKS | {"restore": "comm"}  # orange is bytes on their way
WORDS = {"first": "first iteration"}


def marks(still: Waterfall) -> list[str]:
    """Draw SVG elements: a bar for each recovery, its phases one after the other."""
    most = max((end for _, ends in still.rows for end in ends if end is not None), default=1.0)
    scale = round_up(most)
    each = HIGH / max(1, len(still.rows))
    result: list[str] = []
    received = still.received or (False,) * len(still.rows)
    for at, ((name, ends), came) in enumerate(zip(still.rows, received, strict=True)):
        y = TOP + at * each
        result.append(text(LEFT, y + 8, name, size=11, most=60))
        result += _bar(y + 13, ends, scale, RECEIVED if came else INKS)
    bottom = TOP + HIGH + 8
    result.append(line((LEFT, bottom), (LEFT + WIDE, bottom), "rule", 1))
    for share in (0, 0.5, 1):
        label = f"{share * scale:,g} ms" if share else "0"
        anchor = "start" if not share else "middle" if share < 1 else "end"
        at_x = LEFT + WIDE * share
        result.append(text(at_x, bottom + 14, label, "ink-3", size=11, anchor=anchor))
    if still.left_out:
        words = f"and {still.left_out} before"
        result.append(text(LEFT + WIDE, TOP - 6, words, "ink-3", size=11, anchor="end"))
    return result + _key(bottom + 36, received)


def _bar(y: float, ends: tuple[float | None, ...], scale: float, inks: dict[str, str]) -> list[str]:
    result, since = [], 0.0
    for phase, end in zip(PHASES, ends, strict=True):
        if end is None or end < since:
            continue
        x, wide = LEFT + WIDE * since / scale, WIDE * (end - since) / scale
        result.append(_box(x, y, wide, BAR, inks[phase]))
        since = end
    at = LEFT + WIDE * since / scale
    inside = at + 60 > LEFT + WIDE  # no room for the words beside the bar
    words = f"{since:,.0f} ms"
    anchor, ink = ("end", "ground") if inside else ("start", "ink")
    shift = -5 if inside else 5
    return [*result, text(at + shift, y + 11, words, ink, size=11, weight=700, anchor=anchor)]


def _key(y: float, received: Sequence[bool]) -> list[str]:
    """Name the colors; restore has two, where some ranks restored without a message."""
    phases = [(WORDS.get(phase, phase), INKS[phase]) for phase in PHASES]
    at = PHASES.index("restore")
    if received and all(received):
        phases[at] = ("restore", RECEIVED["restore"])
    elif any(received):
        phases.insert(at + 1, ("received", RECEIVED["restore"]))
    result, x = [], LEFT
    for words, ink in phases:
        result += [_box(x, y - 9, 12, 10, ink), text(x + 17, y, words, size=11)]
        x += 30 + 6.2 * len(words)
    return result


def _box(x: float, y: float, wide: float, high: float, ink: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, wide):.1f}" height="{high:.1f}" '
        f'fill="{INK[ink]}"/>'
    )
