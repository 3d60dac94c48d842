"""A run with actors in a still picture, drawn: the left half of svg.py where there are some."""

from __future__ import annotations

from workbench.common.units import print_size
from workbench.front_end.svg import INK, line, text
from workbench.views.stills.reinforcement import Played

LEFT, WIDE = 16.0, 420.0
TOP, HIGH, GAP = 96.0, 58.0, 18.0  # of the boxes
BARS, EACH = 196.0, 26.0  # where the bars begin, and from one to the next
SINGULAR = {"replays": "replay"}
ROUTES = {
    "experience": "actor to replay",
    "minibatch": "replay to learner",
    "priorities": "learner to replay",
    "parameters": "back to those who pull",
    "gradients": "learner to server",
}


def marks(still: Played) -> list[str]:
    """Draw SVG elements: a box for each role, below them a bar for each kind of message."""
    many = len(still.roles)
    wide = (WIDE - GAP * (many - 1)) / many
    result: list[str] = []
    for at, (role, ranks, done) in enumerate(still.roles):
        x = LEFT + at * (wide + GAP)
        result.append(
            f'<rect x="{x:.1f}" y="{TOP}" width="{wide:.1f}" height="{HIGH}" rx="4" '
            f'fill="{INK["panel"]}" stroke="{INK["edge"]}"/>'
        )
        name = f"{ranks} {role}" if ranks > 1 else SINGULAR.get(role, role.removesuffix("s"))
        room = int(wide / 5.6) - 3
        result.append(text(x + 9, TOP + 22, name, "ink", weight=700, most=room))
        result.append(text(x + 9, TOP + 42, done, size=11, most=room))
        if at:
            middle = TOP + HIGH / 2
            result.append(line((x - GAP + 3, middle), (x - 3, middle), "edge", 2))
    most = max((nbytes for _, nbytes in still.sent), default=1)
    for at, (kind, nbytes) in enumerate(still.sent):
        y = BARS + at * EACH
        size = print_size(int(float(f"{nbytes:.3g}")))
        result.append(text(LEFT, y, kind, "ink", size=11))
        result.append(text(LEFT + 74, y, ROUTES[kind], "ink-3", size=11))
        result.append(text(LEFT + WIDE, y, size, "ink", size=11, weight=700, anchor="end"))
        result.append(_bar(y + 5, WIDE, "rule"))
        result.append(_bar(y + 5, WIDE * nbytes / most, "comm"))
    return result


def _bar(y: float, wide: float, ink: str) -> str:
    return (
        f'<rect x="{LEFT}" y="{y:.1f}" width="{max(0.5, wide):.1f}" height="5" fill="{INK[ink]}"/>'
    )
