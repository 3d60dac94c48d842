"""Two calls that are compared, in a still picture: both rings at one moment, both times on a scale.

The ranks lie on circles, whatever the shape: a still picture shows which rank sends to which.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.common.units import print_duration
from workbench.front_end.svg import INK, text
from workbench.views.stills.calls import Side
from workbench.views.stills.svg import key, ring

_APART = 372  # px between the two rings
_RIGHT = 776  # px: the column of the key and of the times
_BAR = 160  # px of the longer of the two times


def marks(sides: Sequence[Side]) -> list[str]:
    """Draw all but the picture's first line."""
    longest = max(side.seconds for side in sides) or 1.0
    drawn = [text(16, 56, "Where the chunks were, at the same moment of both", "ink", weight=700)]
    for place, side in enumerate(sides):
        drawn += [
            text(16 + place * _APART, 74, _words(side), "ink-3", size=11, most=62),
            f'<g transform="translate({place * _APART} 0)">{"".join(ring(side))}</g>',
            *_time(250 + 48 * place, side, longest),
        ]
    return drawn + key(_RIGHT, 118, has_emulated=any(side.made_links for side in sides))


def _words(side: Side) -> str:
    many = len(side.flights)
    when = print_duration(1000 * round(side.at * 1e6))
    moving = f"{many} chunk{'s' * (many != 1)} on the way" if many else "nothing on the way"
    return f"{side.label}, after {when}: {moving}"


def _time(y: float, side: Side, longest: float) -> list[str]:
    """Draw the duration as a bar on the scale of both calls, with the moment that is shown."""
    wide, at = (_BAR * seconds / longest for seconds in (side.seconds, min(side.at, longest)))
    took = print_duration(round(float(f"{side.seconds:.3g}") * 1e9))
    return [
        text(_RIGHT, y, f"{side.label}: {took}", "ink", weight=700, most=26),
        f'<rect x="{_RIGHT}" y="{y + 8}" width="{wide:.1f}" height="8" rx="2" '
        f'fill="{INK["comm"]}"/>',
        f'<rect x="{_RIGHT + at - 1:.1f}" y="{y + 5}" width="2" height="14" fill="{INK["ink"]}"/>',
    ]
