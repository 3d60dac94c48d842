"""A pipeline's schedule as data: printed, parsed, drawn, and checked before anything runs.

    "2F0"   stage 2 computes the forward of microbatch 0.     Kinds of an action:
    F  forward                      B  whole backward
    I  gradient of the input only   W  gradient of the weights only (after its I)

A schedule is a row of actions for each rank; a rank does them in that order and waits, before each,
for what it needs: a forward for the forward of the stage before, a backward for its own forward and
for the backward (B or I) of the stage after, a W for its I. A stage lives on the rank that does its
actions. ``build`` makes one from a name of ``schedules/``, a path, a function or a grid.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from workbench import source
from workbench.errors import SpecError
from workbench.source import Source, listed
from workbench.units import counted

KINDS = "FBIW"
_ACTION = re.compile(rf"(\d+)([{KINDS}])(\d+)")
_LABEL = re.compile(r"^\s*rank\s*\d+\s*[:|]?\s+")
_IDLE = {".", "-", "None", ""}

Rows = tuple[tuple["Action", ...], ...]


class Action(NamedTuple):
    """What a stage does for one microbatch. Prints as torch's actions do: "2F0"."""

    stage: int
    kind: str  # one of KINDS
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Action(2, "F", 0) from "2F0". Raises SpecError."""
        found = _ACTION.fullmatch(text)
        if found is None:
            raise SpecError(
                f"{text!r} is no action: write stage, kind and microbatch, as in '2F0'; kinds are "
                "F forward, B backward, I input gradient, W weight gradient"
            )
        return cls(int(found[1]), found[2], int(found[3]))


@dataclass(frozen=True, repr=False)
class Schedule:
    """``rows`` of actions, one a rank, in the order in which the rank does them."""

    name: str  # of schedules/, or what the user's own is called
    rows: Rows
    stages: int  # of the model, over all ranks
    microbatches: int  # of an iteration; without flush: of the whole run
    flush: bool = True  # whether all backwards are done before the parameters are updated

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Schedule | None:
        """That of a run's header, ``facts`` (``run.pipeline``); None where no rows are told (no
        flush). Raises SpecError.
        """
        if not facts.get("rows"):
            return None
        rows = parse_rows(facts["rows"])
        return cls(facts["schedule"], rows, facts["stages"], facts["microbatches"], facts["flush"])

    @property
    def ranks(self) -> int:
        """How many: each has a row."""
        return len(self.rows)

    @cached_property
    def rank_of(self) -> tuple[int, ...]:
        """The rank on which each stage lives."""
        home = {one.stage: rank for rank, row in enumerate(self.rows) for one in row}
        return tuple(home[stage] for stage in range(self.stages))

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """Most microbatches in flight, by stage: forward begun, B or W not yet done."""
        most = [0] * self.stages
        for row in self.rows:
            held: dict[int, int] = defaultdict(int)
            for one in row:
                held[one.stage] += (one.kind == "F") - (one.kind in "BW")
                most[one.stage] = max(most[one.stage], held[one.stage])
        return tuple(most)

    @cached_property
    def rank_peaks(self) -> tuple[int, ...]:
        """Most microbatches in flight on each rank, summed over its stages ("chunks")."""
        most = []
        for row in self.rows:
            held = peak = 0
            for one in row:
                held += (one.kind == "F") - (one.kind in "BW")
                peak = max(peak, held)
            most.append(peak)
        return tuple(most)

    def __repr__(self) -> str:
        several = "" if self.stages == self.ranks else f"{self.stages} stages, "
        work = counted(self.microbatches, "microbatch")
        return f"Schedule({self.name}: {counted(self.ranks, 'rank')}, {several}{work})"

    def __str__(self) -> str:
        """The grid, a line a rank, each action in the column in which it could be done if every
        action took one step; idle steps are dots.
        """
        columns = [
            dict(zip(at, row, strict=True)) for at, row in zip(steps(self), self.rows, strict=True)
        ]
        count = 1 + max((at for row in columns for at in row), default=-1)
        lines = [[str(row.get(at, ".")) for at in range(count)] for row in columns]
        return table(lines)

    @classmethod
    def parse(cls, text: str, name: str = "grid", flush: bool = True) -> Schedule:
        """The schedule in ``text``: what ``str`` printed, or a grid as people write it, a line a
        rank. Checked; ``name`` and ``flush`` are the schedule's. Raises SpecError.
        """
        made = build(text)
        return cls(name, made.rows, made.stages, made.microbatches, flush)

    def _repr_html_(self) -> str:
        from workbench.views.schedule_picture import html

        return html(self)


def needs(action: Action, stages: int, present: Container[Action]) -> list[Action]:
    """What must be done before ``action`` can be.

    ``present``: all actions of the schedule, for a backward may be whole (B) or in two (I, W).
    """
    stage, kind, m = action
    if kind == "F":
        return [Action(stage - 1, "F", m)] if stage else []
    if kind == "W":
        return [Action(stage, "I", m)]
    found = [Action(stage, "F", m)]
    if stage + 1 < stages:
        after = Action(stage + 1, "B", m)
        found.append(after if after in present else Action(stage + 1, "I", m))
    return found


class Place(NamedTuple):
    """Where in a schedule an action is."""

    rank: int
    position: int
    action: Action


def walk(rows: Rows, stages: int) -> tuple[list[Place], list[int]]:
    """Do what can be done until nothing more can: the order of it, and how far each rank came."""
    present = {action for row in rows for action in row}
    done: set[Action] = set()
    at, order, moved = [0] * len(rows), list[Place](), True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                action = row[at[rank]]
                needed = needs(action, stages, present)
                if any(one not in done for one in needed):
                    break
                done.add(action)
                order.append(Place(rank, at[rank], action))
                at[rank] += 1
                moved = True
    return order, at


def steps(schedule: Schedule) -> list[list[int]]:
    """The step at which each action of each row is done, if every action takes one step."""
    present = {action for row in schedule.rows for action in row}
    done: dict[Action, int] = {}
    free, found = [0] * schedule.ranks, [list[int]() for _ in schedule.rows]
    for rank, _, action in walk(schedule.rows, schedule.stages)[0]:
        needed = needs(action, schedule.stages, present)
        begin = max([free[rank], *(done[one] for one in needed)])
        free[rank] = done[action] = begin + 1
        found[rank].append(begin)
    return found


def table(lines: Sequence[Sequence[str]]) -> str:
    """Cells in columns, a line a rank, labelled."""
    width = max((len(cell) for line in lines for cell in line), default=1)
    label = len(f"rank {len(lines) - 1}")
    return "\n".join(
        f"{f'rank {rank}':<{label}}  {' '.join(cell.center(width) for cell in line)}".rstrip()
        for rank, line in enumerate(lines)
    )


def build(
    value: Any,
    *,
    ranks: int | None = None,
    microbatches: int | None = None,
    stages_per_rank: int | None = None,
    iterations: int = 1,
) -> Schedule:
    """The schedule that ``value`` means, checked: nobody waits for ever, nothing is left out.

    ``value``: a name of ``schedules/``, a path such as "mine.py:schedule", a Source, a function
    ``(ranks, microbatches, stages_per_rank)`` that returns rows, or a grid: rows of "0F0", or a
    text with a line a rank. A grid alone says how many ranks, stages and microbatches there are;
    what is given beside it must agree.
    A function with a parameter ``flush=False`` has no flush: it is asked once, for the microbatches
    of all ``iterations``; microbatch n is microbatch n % M of iteration n // M.
    Raises SpecError, which names the first fault and draws the grid with it marked.
    """
    from workbench.pipelines.checks import check

    function = _function(value)
    if function is None:
        name, flush, rows = "grid", True, parse_rows(value)
        ranks = len(rows) if ranks is None else ranks
        highest = max((one.stage for row in rows for one in row), default=0)
        if stages_per_rank is None:
            stages_per_rank = -(-(highest + 1) // max(ranks, 1))
        if microbatches is None:
            microbatches = 1 + max((one.microbatch for row in rows for one in row), default=-1)
    else:
        name, flush = _named(value), _flushes(function)
        if ranks is None or microbatches is None:
            raise SpecError(f"schedule {name}: say for how many ranks= and microbatches=")
        stages_per_rank = 1 if stages_per_rank is None else stages_per_rank
        microbatches *= 1 if flush else iterations
        for what, count in (
            ("ranks", ranks), ("microbatches", microbatches), ("stages_per_rank", stages_per_rank)
        ):  # fmt: skip
            if count < 1:
                raise SpecError(f"schedule {name}: {what} = {count}: must be 1 or more")
        try:
            made = function(ranks, microbatches, stages_per_rank)
        except ValueError as error:
            raise SpecError(
                f"schedule {name} for ranks={ranks}, microbatches={microbatches}, "
                f"stages_per_rank={stages_per_rank}: {error}"
            ) from error
        rows = parse_rows(made)
    schedule = Schedule(name, rows, ranks * stages_per_rank, microbatches, flush)
    check(schedule, ranks)
    return schedule


def parse_rows(value: Any) -> Rows:
    """Rows of actions from a text, or from rows of texts, actions or None. Raises SpecError."""
    if isinstance(value, str):
        lines = (_LABEL.sub("", line).split("#")[0].split() for line in value.splitlines())
        rows: list[Any] = [line for line in lines if line]
    elif isinstance(value, Iterable):
        rows = [row.split() if isinstance(row, str) else row for row in value]
    else:
        raise SpecError(
            f"schedule = {value!r} is none: write a name ({listed(source.available('schedules'))})"
            ", a function (ranks, microbatches, stages_per_rank), or rows such as "
            '[["0F0", "0B0"], ["1F0", "1B0"]]'
        )
    return tuple(tuple(_cells(row, rank)) for rank, row in enumerate(rows))


def _cells(row: Any, rank: int) -> Iterable[Action]:
    if not isinstance(row, Iterable):
        raise SpecError(f"schedule, rank {rank}: {row!r} is no row of actions such as '0F0'")
    for position, cell in enumerate(row):
        if cell is None or str(cell) in _IDLE:
            continue
        if isinstance(cell, tuple):
            cell = "".join(map(str, cell))
        try:
            yield Action.parse(str(cell))
        except SpecError as error:
            raise SpecError(f"schedule, rank {rank}, position {position}: {error}") from None


def one_stage_a_rank(name: str, stages_per_rank: int, instead: str) -> None:
    """For schedules that know one stage a rank only."""
    if stages_per_rank != 1:
        raise ValueError(f"{name} has one stage a rank; for more take {instead!r}")


def _function(value: Any) -> Callable[..., Any] | None:
    """The function that ``value`` means; None where it is a grid."""
    if isinstance(value, Source):
        found = value.load()
    elif isinstance(value, str):
        if "\n" in value.strip() or _ACTION.match(value.strip()):
            return None
        found = source.load("schedules", value, "schedule")
    else:
        found = value
    if not callable(found):
        return None
    function: Callable[..., Any] = found
    try:
        inspect.signature(found).bind(1, 1, 1)
    except TypeError:
        raise SpecError(
            f"schedule {_named(value)} takes {inspect.signature(found)}; it is called with "
            "(ranks, microbatches, stages_per_rank)"
        ) from None
    return function


def _flushes(function: Callable[..., Any]) -> bool:
    flush = inspect.signature(function).parameters.get("flush")
    return flush is None or flush.default is not False


def _named(value: Any) -> str:
    if isinstance(value, str):
        place = source.split_path(value)
        return place[1] if place else value
    return str(getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__))
