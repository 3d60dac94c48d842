"""A schedule drawn before it runs, as SVG text that needs no font, file or style of the page.

html          a plan's picture as an image, and below it when each action is done, in words
picture       rows of bars in planned time, a strip a stage: hue is the microbatch, forward
              plain, backward hatched, weight gradient dotted; idle time open
cycle_picture rows in the order of the grid, with what each action waits for in red
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from workbench.common.units import counted
from workbench.front_end.html_picture import image
from workbench.front_end.svg import INK, opened, text
from workbench.training.pipelines.actions import Action, Position
from workbench.training.pipelines.formulas import Case, bubble_formula
from workbench.training.pipelines.grid import Grid
from workbench.training.pipelines.theory import UNIT, Planned, Times, bubble, timeline

# theme.css, light, as the still picture has it: the colors of identities 0 to 7
HUES = (
    "#1644ff",
    "#7c0014",
    "#749455",
    "#c65af0",
    "#5491be",
    "#64319e",
    "#4301ac",
    "#a96370",
)
ON_DARK = (0, 1, 5, 6)  # hues that white is read on; black on the others
WIDTH, LEFT, RIGHT, TOP = 960, 96, 84, 62
STRIP, GAP = 20, 12  # px: height of a stage's strip, between ranks
LEAST = 13  # px a bar must have to be numbered
CYCLE_STEP, CYCLE_GAP = 110, 40  # px: an action's width at most, and between ranks, for arrows
WORDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


Cycle = Sequence[tuple[Position, Position]]  # each waits for the other of its pair


def html(schedule: Grid, times: Times = UNIT) -> str:
    """Return the plan as an image, with the times of its actions as text for readers of text."""
    rows: dict[int, list[str]] = {rank: [] for rank in range(schedule.ranks)}
    for one in timeline(schedule, times):
        caption = _time_range(one, times).removeprefix("steps ")
        rows[schedule.rank_of[one.action.stage]].append(f"{one.action} {caption}")
    lines = "\n".join(f"rank {rank}: {', '.join(captions)}" for rank, captions in rows.items())
    unit = "steps" if times is UNIT else "time"
    return (
        f"{image(picture(schedule, times), _title(schedule, times))}<details><summary>When each "
        f'action is done, in {unit}</summary><pre style="white-space:pre-wrap">{escape(lines)}'
        "</pre></details>"
    )


def cycle_html(schedule: Grid, cycle: Cycle, message: str) -> str:
    """Return the cycle as an image and as text."""
    drawn = image(cycle_picture(schedule, cycle), _cycle_title(schedule, cycle))
    return f"{drawn}<pre>{escape(message)}</pre>"


def picture(schedule: Grid, times: Times = UNIT) -> str:
    """Draw the plan: every action at its planned time."""
    planned = timeline(schedule, times)
    whole = max((one.end_s for one in planned), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / whole
    strips = _strips(schedule)
    height = _height(schedule)
    parts = [
        *_start(_title(schedule, times), height),
        *_rows(schedule, strips),
        text(WIDTH - RIGHT + 10, TOP - 10, "in flight", "ink-3", size=11),
    ]
    parts += (
        text(WIDTH - RIGHT + 10, _row_top(schedule, rank) + 14, f"at most {peak}", "ink-2", size=11)
        for rank, peak in enumerate(schedule.rank_peaks)
    )
    for one in planned:
        x, width = LEFT + one.start_s * scale, (one.end_s - one.start_s) * scale
        parts += _bar(one.action, x, strips[one.action.stage], width, _time_range(one, times))
    parts += _legend({one.action.kind for one in planned}, height - 14)
    return "".join([*parts, "</svg>"])


def cycle_picture(schedule: Grid, cycle: Cycle) -> str:
    """Draw the grid as written, with the ranks that wait for one another marked."""
    gap = CYCLE_GAP
    strips, height = _strips(schedule, gap), _height(schedule, gap) - gap + GAP
    longest = max(map(len, schedule.rows))
    step = min((WIDTH - LEFT - RIGHT) / longest, CYCLE_STEP)
    parts = [
        *_start(_cycle_title(schedule, cycle), height, failed=True),
        *_rows(schedule, strips, gap, step * longest),
    ]
    for row in schedule.rows:
        for position, one in enumerate(row):
            x = LEFT + position * step
            parts += _bar(one, x, strips[one.stage], step - 1, f"position {position}")
    for waiting, blocker in cycle:
        left, top = LEFT + waiting.position * step, strips[waiting.action.stage]
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{step - 1:.1f}" height="{STRIP - 2}" '
            f'fill="none" stroke="{INK["fault"]}" stroke-width="2.5"/>'
        )
        (ax, a), (bx, b) = (
            (LEFT + (one.position + 0.5) * step, strips[one.action.stage])
            for one in (waiting, blocker)
        )
        # From edge to edge, through the ground between two rows; in one row, over it.
        ya, yb = (a, b + STRIP) if b <= a else (a + STRIP - 2, b - 2)
        yb = b - 2 if b == a else yb
        middle = a - gap / 2 if b == a else (ya + yb) / 2
        parts.append(
            f'<path d="M{ax:.1f} {ya:.1f} C{ax:.1f} {middle:.1f} {bx:.1f} {middle:.1f} '
            f'{bx:.1f} {yb:.1f}" fill="none" stroke="{INK["fault"]}" '
            'stroke-width="2" marker-end="url(#head)"/>'
        )
    words = "framed: waits for ever; arrow: to what it waits for, later in a row that stands still"
    parts.append(text(LEFT, height - 8, words, "ink-3", size=11, most=120))
    return "".join([*parts, "</svg>"])


def _cycle_title(schedule: Grid, cycle: Cycle) -> str:
    return f"{schedule.name} stops: " + ", ".join(
        f"{waiting.action} waits for {blocker.action}" for waiting, blocker in cycle
    )


def _title(schedule: Grid, times: Times) -> str:
    """Return a one-line summary of the schedule."""
    stages = "" if schedule.stages == schedule.ranks else f", {schedule.stages} stages"
    share = f"{bubble(schedule, times):.1%}".replace("%", " %")
    words = (
        f"{schedule.name}: {counted(schedule.ranks, 'rank')}{stages}, "
        f"{counted(schedule.microbatches, 'microbatch')}. Ranks idle {share} of the time"
    )
    plain = [times.forward, times.input_gradient, times.weight_gradient]
    if not times.hop and (same := [one for one in plain if isinstance(one, int | float)]) == plain:
        chunks = schedule.stages // schedule.ranks
        case = Case(schedule.ranks, schedule.microbatches, chunks, *same)
        formula = bubble_formula(schedule.name, case)
        words += "" if formula is None else f" (formula {formula:.1%})".replace("%", " %")
    return words if schedule.flush else f"{words}; no flush"


def _time_range(one: Planned, times: Times) -> str:
    if times is UNIT:
        return f"steps {one.start_s:g} to {one.end_s:g}"
    return f"{one.start_s * 1e3:.1f} to {one.end_s * 1e3:.1f} ms"


def _strips(schedule: Grid, gap: float = GAP) -> list[float]:
    """Return the top of each stage's strip; those of a rank are stacked."""
    tops = [0.0] * schedule.stages
    for rank in range(schedule.ranks):
        for number, stage in enumerate(_stages(schedule, rank)):
            tops[stage] = _row_top(schedule, rank, gap) + number * STRIP
    return tops


def _stages(schedule: Grid, rank: int) -> list[int]:
    return [stage for stage, where in enumerate(schedule.rank_of) if where == rank]


def _row_top(schedule: Grid, rank: int, gap: float = GAP) -> float:
    above = sum(len(_stages(schedule, one)) for one in range(rank))
    return TOP + above * STRIP + rank * gap


def _height(schedule: Grid, gap: float = GAP) -> int:
    return int(_row_top(schedule, schedule.ranks, gap) + 30)


def _start(title: str, height: int, failed: bool = False) -> list[str]:
    """Return the head of a picture: background, textures, title."""
    return [
        *opened(title, WIDTH, height, f"<defs>{_TEXTURES}</defs>"),
        text(16, 28, title, "fault" if failed else "ink", size=16, most=110),
    ]


def _rows(
    schedule: Grid,
    strips: Sequence[float],
    gap: float = GAP,
    width: float = WIDTH - LEFT - RIGHT,
) -> list[str]:
    """Draw the labels, and the background of idle time."""
    parts = []
    for rank in range(schedule.ranks):
        stages, top = _stages(schedule, rank), _row_top(schedule, rank, gap)
        parts.append(text(16, top + 14, f"rank {rank}", "ink", weight=700))
        for stage in stages:
            several = len(stages) > 1
            if several:
                parts.append(
                    text(
                        LEFT - 8,
                        strips[stage] + 14,
                        f"stage {stage}",
                        "ink-3",
                        size=10,
                        anchor="end",
                    )
                )
            for fill in (INK["panel"], "url(#idle)"):
                parts.append(
                    f'<rect x="{LEFT}" y="{strips[stage]:.1f}" width="{width:g}" '
                    f'height="{STRIP - 2}" fill="{fill}"/>'
                )
    return parts


def _bar(action: Action, x: float, y: float, width: float, caption: str) -> list[str]:
    """Draw one action: hue for the microbatch, texture for the kind."""
    drawn, high = max(width - 0.6, 0.4), STRIP - 2
    place = f'x="{x:.2f}" y="{y:.1f}" width="{drawn:.2f}" height="{high}"'
    hue = HUES[action.microbatch % len(HUES)]
    title = f"{action}: {WORDS[action.kind]} of microbatch {action.microbatch}, {caption}"
    parts = [f'<g><title>{escape(title)}</title><rect {place} fill="{hue}"/>']
    if action.kind != "F":
        parts.append(f'<rect {place} fill="url(#{action.kind})"/>')
    number = str(action.microbatch)
    clear = 7 * len(number) + 3
    if drawn >= max(LEAST, clear + 2):
        if action.kind != "F":
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.1f}" width="{clear}" height="{high}" fill="{hue}"/>'
            )
        middle = x + (drawn / 2 if action.kind == "F" else clear / 2)
        ink = "#ffffff" if action.microbatch % len(HUES) in ON_DARK else "#000000"
        parts.append(
            f'<text x="{middle:.2f}" y="{y + 13:.1f}" fill="{ink}" font-size="11" '
            f'font-weight="700" text-anchor="middle">{number}</text>'
        )
    return [*parts, "</g>"]


def _legend(kinds: set[str], y: float) -> list[str]:
    x, parts = float(LEFT), list[str]()
    for kind in (one for one in WORDS if one in kinds):
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="20" height="11" fill="{HUES[0]}"/>')
        if kind != "F":
            parts.append(
                f'<rect x="{x:.0f}" y="{y - 10}" width="20" height="11" fill="url(#{kind})"/>'
            )
        parts.append(text(x + 26, y, WORDS[kind], "ink-2", size=11))
        x += 40 + 6.2 * len(WORDS[kind])
    words = "number and hue: microbatch; open ground: the stage is idle"
    return [*parts, text(x + 10, y, words, "ink-3", size=11)]


def _lines(name: str, tile: int, path: str, ink: str, width: float) -> str:
    return (
        f'<pattern id="{name}" width="{tile}" height="{tile}" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="{ink}" stroke-width="{width}"/></pattern>'
    )


_TEXTURES = "".join(
    (
        _lines("B", 5, "M-1 6L6 -1M-6 6L1 -1M4 6L11 -1", "#ffffff", 1.6),
        _lines("I", 5, "M-1 6L6 -1M-6 6L1 -1M4 6L11 -1", "#ffffff", 1.6),
        _lines("W", 4, "M.5 1H2M2.5 3H4", "#ffffff", 1.4),
        _lines("idle", 9, "M-1 10L10 -1M-10 10L1 -1M8 10L19 -1", INK["edge"], 0.5),
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK["fault"]}"/></marker>',
    )
)
