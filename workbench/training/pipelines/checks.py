"""Checks of a schedule before anything runs; an error draws the schedule.

Every stage must do every microbatch once (forward, and backward whole or split in two), on one
rank; and a rank must not wait forever. Ranks that wait for each other's later actions form a cycle,
which the error lists hop by hop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from workbench.common.errors import SpecError
from workbench.common.wait_cycles import circle
from workbench.training.pipelines.actions import KINDS, Action, Position, needs, walk
from workbench.training.pipelines.grid import Grid, table

WIDEST = 24  # columns of a drawing


class Deadlock(SpecError):
    """A schedule in which ranks wait for one another; a notebook cell that ends with it draws it.

    ``cycle``: (waiting place, wanted place) of each hop. The wanted place is the next hop's waiting
    place, or comes after it on the same rank.
    """

    def __init__(
        self, message: str, schedule: Grid, cycle: tuple[tuple[Position, Position], ...]
    ) -> None:
        super().__init__(message)
        self.schedule, self.cycle = schedule, cycle

    def _repr_html_(self) -> str:
        from workbench.training.pipelines.schedule_picture import cycle_html

        return cycle_html(self.schedule, self.cycle, str(self))


def check(schedule: Grid, ranks: int) -> None:
    """Raise SpecError for the first fault of ``schedule``."""
    if schedule.ranks != ranks:
        raise SpecError(
            f"schedule {schedule.name} has {schedule.ranks} rows for ranks={ranks}: one row a rank"
        )
    if schedule.microbatches < 1:
        raise SpecError(f"schedule {schedule.name} has no actions")
    places = _places(schedule)
    for stage in range(schedule.stages):
        for m in range(schedule.microbatches):
            _whole(schedule, places, stage, m)
    _none_waits_forever(schedule, places)


def _places(schedule: Grid) -> dict[Action, Position]:
    """Return the place of every action; refuse duplicates and wrong numbers or ranks."""
    places: dict[Action, Position] = {}
    home: dict[int, Position] = {}
    for rank, row in enumerate(schedule.rows):
        for position, one in enumerate(row):
            place = Position(rank, position, one)
            if one.kind not in KINDS:
                _refuse(schedule, place, f"is of no kind: kinds are {', '.join(KINDS)}")
            if not 0 <= one.stage < schedule.stages:
                _refuse(
                    schedule,
                    place,
                    "is of no stage: there are stages 0 to "
                    f"{schedule.stages - 1}, ranks x stages_per_rank",
                )
            if not 0 <= one.microbatch < schedule.microbatches:
                _refuse(
                    schedule,
                    place,
                    f"is of no microbatch: there are microbatches 0 to {schedule.microbatches - 1}",
                )
            if one in places:
                _refuse(schedule, place, f"is done already, {_where(places[one])}", places[one])
            first = home.setdefault(one.stage, place)
            if first.rank != rank:
                _refuse(
                    schedule,
                    place,
                    f"is on the wrong rank: stage {one.stage} lives on rank "
                    f"{first.rank} ({first.action} is there), for its parameters are on one rank",
                    first,
                )
            places[one] = place
    return places


def _whole(schedule: Grid, places: Mapping[Action, Position], stage: int, m: int) -> None:
    """Check one microbatch at one stage: it needs F, and B or else I and W."""
    at = {kind: places.get(Action(stage, kind, m)) for kind in KINDS}
    if at["F"] is None:
        _refuse(schedule, None, f"{Action(stage, 'F', m)} is missing: no rank does it")
    if at["B"]:
        if twice := at["I"] or at["W"]:
            _refuse(
                schedule,
                twice,
                f"is done by {at['B'].action}, the whole backward, too "
                f"({_where(at['B'])}): write B, or I and W",
                at["B"],
            )
    elif at["I"] is None:
        _refuse(
            schedule,
            at["W"] or at["F"],
            f"has no backward: {Action(stage, 'B', m)}, or "
            f"{Action(stage, 'I', m)} and {Action(stage, 'W', m)}, is missing",
        )
    elif at["W"] is None:
        _refuse(
            schedule, at["I"], f"has no {Action(stage, 'W', m)}: its weight gradient is missing"
        )


def _none_waits_forever(schedule: Grid, places: Mapping[Action, Position]) -> None:
    """Raise Deadlock if the ranks cannot finish their rows."""
    _, reached = walk(schedule.rows, schedule.stages)
    stuck = [rank for rank, row in enumerate(schedule.rows) if reached[rank] < len(row)]
    if not stuck:
        return
    hops: dict[int, tuple[Position, Position]] = {}
    for rank in stuck:
        head = schedule.rows[rank][reached[rank]]
        blocker = next(
            places[one]
            for one in needs(head, schedule.stages, places)
            if places[one].position >= reached[places[one].rank]
        )
        hops[rank] = Position(rank, reached[rank], head), blocker
    cycle = [
        hops[rank] for rank in circle({rank: blocker.rank for rank, (_, blocker) in hops.items()})
    ]
    raise Deadlock(_in_words(schedule, cycle), schedule, tuple(cycle))


def _in_words(schedule: Grid, cycle: list[tuple[Position, Position]]) -> str:
    first, blocker = cycle[0]
    marks = {(one.rank, one.position): "[]" for one, _ in cycle}
    for _, one in cycle:
        marks.setdefault((one.rank, one.position), "()")
    if len(cycle) == 1:
        head = (
            f"schedule {schedule.name}, {_where(first)}: {first.action} waits for "
            f"{blocker.action}, which the same rank does later, at position {blocker.position}"
        )
        return f"{head}\n\n{draw(schedule, marks)}"
    lines, arrows = list[str](), list[Action]()
    for (waiting, blocker), (following, _) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        after = "where it stands" if blocker == following else f"after {following.action}"
        lines.append(
            f"  rank {waiting.rank}, position {waiting.position}: {waiting.action} waits for "
            f"{blocker.action}, which rank {blocker.rank} does at position "
            f"{blocker.position}, {after}"
        )
        arrows += [waiting.action] if blocker == following else [waiting.action, blocker.action]
    return (
        f"schedule {schedule.name} stops: {len(cycle)} ranks wait for one another\n"
        + "\n".join(lines)
        + f"\n\n{draw(schedule, marks)}\n\n[waits]  (is waited for)   "
        + " → ".join(map(str, [*arrows, first.action]))
    )


def _refuse(
    schedule: Grid, place: Position | None, why: str, other: Position | None = None
) -> NoReturn:
    marks = {(other.rank, other.position): "()"} if other else {}
    if place is None:
        raise SpecError(f"schedule {schedule.name}: {why}\n\n{draw(schedule, marks)}")
    marks[place.rank, place.position] = "[]"
    raise SpecError(
        f"schedule {schedule.name}, {_where(place)}: {place.action} {why}\n\n"
        f"{draw(schedule, marks)}"
    )


def _where(place: Position) -> str:
    return f"rank {place.rank}, position {place.position}"


def draw(schedule: Grid, marks: Mapping[tuple[int, int], str]) -> str:
    """Return the rows as written, with brackets around the marked actions.

    Of a long grid only the columns near those are drawn.
    """
    columns = [position for _, position in marks] or [0]
    longest = max(map(len, schedule.rows), default=0)
    begin = max(0, min(min(columns) - 4, longest - WIDEST))
    end = min(longest, max(begin + WIDEST, max(columns) + 2))
    lines = []
    for rank, row in enumerate(schedule.rows):
        line = ["…"] if begin else []
        for position in range(begin, min(end, len(row))):
            mark = marks.get((rank, position), "  ")
            line.append(f"{mark[0]}{row[position]}{mark[1]}")
        lines.append([*line, "…"] if len(row) > end else line)
    return table(lines)
