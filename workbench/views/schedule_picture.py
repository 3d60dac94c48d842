"""A schedule drawn before it runs, as SVG text that needs nobody's font, file or style.

html          a plan's picture as an image, and below it when each action is done, in words
picture       rows of bars in planned time, a strip a stage: hue is the microbatch, forward
              plain, backward hatched, weight gradient dotted; idle time open
cycle_picture rows in the order of the grid, with who waits for what in red
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from workbench.pipelines.checks import Deadlock
from workbench.pipelines.formulas import Case, bubble_formula
from workbench.pipelines.schedule import Action, Schedule
from workbench.pipelines.theory import UNIT, Planned, Times, bubble, timeline
from workbench.units import counted
from workbench.views.embedded import image
from workbench.views.svg import INK, opened, text

# theme.css, light, as the still picture has it: the colours of identities 0 to 7
HUES = (
    "#3a77ea", "#ce6b02", "#299c72", "#cd27b4", "#79571a", "#3f1998", "#0f7174", "#711125",
)  # fmt: skip
WIDTH, LEFT, RIGHT, TOP = 960, 96, 84, 62
STRIP, GAP = 20, 12  # px: height of a stage's strip, between ranks
LEAST = 13  # px a bar must have to be numbered
CYCLE_STEP, CYCLE_GAP = 110, 40  # px: an action's width at most, and between ranks, for arrows
WORDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


def html(schedule: Schedule, times: Times = UNIT) -> str:
    """The plan as an image, and when each action is done: an image tells nothing of its marks."""
    rows: dict[int, list[str]] = {rank: [] for rank in range(schedule.ranks)}
    for one in timeline(schedule, times):
        told = _told(one, times).removeprefix("steps ")
        rows[schedule.rank_of[one.action.stage]].append(f"{one.action} {told}")
    lines = "\n".join(f"rank {rank}: {', '.join(told)}" for rank, told in rows.items())
    unit = "steps" if times is UNIT else "time"
    return (
        f"{image(picture(schedule, times), _title(schedule, times))}<details><summary>When each "
        f'action is done, in {unit}</summary><pre style="white-space:pre-wrap">{escape(lines)}'
        "</pre></details>"
    )


def cycle_html(fault: Deadlock) -> str:
    """The cycle as an image, and in words."""
    return f"{image(cycle_picture(fault), _cycle_title(fault))}<pre>{escape(str(fault))}</pre>"


def picture(schedule: Schedule, times: Times = UNIT) -> str:
    """The plan: every action when it would be done with these times."""
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
        parts += _bar(one.action, x, strips[one.action.stage], width, _told(one, times))
    parts += _legend({one.action.kind for one in planned}, height - 14)
    return "".join([*parts, "</svg>"])


def cycle_picture(fault: Deadlock) -> str:
    """The grid as it was written, with the ranks that wait for one another."""
    schedule, gap = fault.schedule, CYCLE_GAP
    strips, height = _strips(schedule, gap), _height(schedule, gap) - gap + GAP
    longest = max(map(len, schedule.rows))
    step = min((WIDTH - LEFT - RIGHT) / longest, CYCLE_STEP)
    parts = [
        *_start(_cycle_title(fault), height, failed=True),
        *_rows(schedule, strips, gap, step * longest),
    ]
    for row in schedule.rows:
        for position, one in enumerate(row):
            x = LEFT + position * step
            parts += _bar(one, x, strips[one.stage], step - 1, f"position {position}")
    for waiting, wanted in fault.cycle:
        left, top = LEFT + waiting.position * step, strips[waiting.action.stage]
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{step - 1:.1f}" height="{STRIP - 2}" '
            f'fill="none" stroke="{INK["fault"]}" stroke-width="2.5"/>'
        )
        (ax, a), (bx, b) = (
            (LEFT + (one.position + 0.5) * step, strips[one.action.stage])
            for one in (waiting, wanted)
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


def _cycle_title(fault: Deadlock) -> str:
    return f"{fault.schedule.name} stops: " + ", ".join(
        f"{waiting.action} waits for {wanted.action}" for waiting, wanted in fault.cycle
    )


def _title(schedule: Schedule, times: Times) -> str:
    """What a reader should know of it, in one line."""
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


def _told(one: Planned, times: Times) -> str:
    if times is UNIT:
        return f"steps {one.start_s:g} to {one.end_s:g}"
    return f"{one.start_s * 1e3:.1f} to {one.end_s * 1e3:.1f} ms"


def _strips(schedule: Schedule, gap: float = GAP) -> list[float]:
    """The top of each stage's strip: those of a rank lie under each other."""
    tops = [0.0] * schedule.stages
    for rank in range(schedule.ranks):
        for number, stage in enumerate(_stages(schedule, rank)):
            tops[stage] = _row_top(schedule, rank, gap) + number * STRIP
    return tops


def _stages(schedule: Schedule, rank: int) -> list[int]:
    return [stage for stage, where in enumerate(schedule.rank_of) if where == rank]


def _row_top(schedule: Schedule, rank: int, gap: float = GAP) -> float:
    above = sum(len(_stages(schedule, one)) for one in range(rank))
    return TOP + above * STRIP + rank * gap


def _height(schedule: Schedule, gap: float = GAP) -> int:
    return int(_row_top(schedule, schedule.ranks, gap) + 30)


def _start(title: str, height: int, failed: bool = False) -> list[str]:
    """The head of a picture: its ground, its textures, its sentence."""
    return [
        *opened(title, WIDTH, height, f"<defs>{_TEXTURES}</defs>"),
        text(16, 28, title, "fault" if failed else "ink", size=16, most=110),
    ]


def _rows(
    schedule: Schedule, strips: Sequence[float], gap: float = GAP,
    width: float = WIDTH - LEFT - RIGHT,
) -> list[str]:  # fmt: skip
    """Labels, and the open ground of idle time."""
    parts = []
    for rank in range(schedule.ranks):
        stages, top = _stages(schedule, rank), _row_top(schedule, rank, gap)
        parts.append(text(16, top + 14, f"rank {rank}", "ink", weight=700))
        for stage in stages:
            several = len(stages) > 1
            if several:
                parts.append(
                    text(LEFT - 8, strips[stage] + 14, f"stage {stage}", "ink-3", size=10,
                         anchor="end")
                )  # fmt: skip
            for fill in (INK["panel"], "url(#idle)"):
                parts.append(
                    f'<rect x="{LEFT}" y="{strips[stage]:.1f}" width="{width:g}" '
                    f'height="{STRIP - 2}" fill="{fill}"/>'
                )
    return parts


def _bar(action: Action, x: float, y: float, width: float, told: str) -> list[str]:
    """One action: its hue is the microbatch, its texture what it does."""
    drawn, high = max(width - 0.6, 0.4), STRIP - 2
    place = f'x="{x:.2f}" y="{y:.1f}" width="{drawn:.2f}" height="{high}"'
    hue = HUES[action.microbatch % len(HUES)]
    title = f"{action}: {WORDS[action.kind]} of microbatch {action.microbatch}, {told}"
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
        parts.append(
            f'<text x="{middle:.2f}" y="{y + 13:.1f}" fill="#ffffff" font-size="11" '
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
