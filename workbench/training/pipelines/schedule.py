"""A pipeline's schedule as data: printed, parsed, drawn, and checked before anything runs.

    "2F0"   stage 2 computes the forward of microbatch 0.     Kinds of an action:
    F  forward                      B  whole backward
    I  gradient of the input only   W  gradient of the weights only (after its I)

A schedule has a row of actions for each rank. A rank does them in that order, and before each waits
for its inputs: a forward for the forward of the previous stage, a backward for its own forward and
for the backward (B or I) of the next stage, a W for its I. A stage lives on the rank that does its
actions. ``build`` makes a schedule from a name of ``schedules/``, a path, a function or a grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from workbench.common.arguments import Count, Facts, Ranks, Stages, Text, checked
from workbench.common.errors import SpecError
from workbench.common.units import counted
from workbench.training.pipelines.actions import (
    ACTION,
    KINDS,
    Action,
    Position,
    Rows,
    needs,
    parse_rows,
    walk,
)
from workbench.training.pipelines.checks import check
from workbench.training.pipelines.grid import Grid, steps, table
from workbench.user_code import source
from workbench.user_code.source import Source

__all__ = [
    "KINDS",
    "MOST_ACTIONS",
    "Action",
    "Position",
    "Rows",
    "Schedule",
    "build",
    "flushes",
    "needs",
    "one_stage_a_rank",
    "parse_rows",
    "walk",
]

MOST_ACTIONS = 2_000_000  # of a schedule: some 10 us of work each, and 200 bytes


class Schedule(Grid):
    """A schedule: ``rows`` of actions, one per rank, in the order in which the rank does them."""

    @classmethod
    @checked
    def from_facts(cls, facts: Facts) -> Schedule | None:
        """Return the schedule of a run's header, ``facts`` (``run.pipeline``); None without rows.

        A schedule without a flush has no rows there. Raises SpecError.
        """
        if not facts.get("rows"):
            return None
        rows = parse_rows(facts["rows"])
        try:
            values = [facts[name] for name in ("schedule", "stages", "microbatches", "flush")]
        except KeyError as error:
            raise SpecError(f"facts of a schedule lack {error}") from None
        return cls(values[0], rows, *values[1:])

    def __repr__(self) -> str:
        several = "" if self.stages == self.ranks else f"{self.stages} stages, "
        work = counted(self.microbatches, "microbatch")
        return f"Schedule({self.name}: {counted(self.ranks, 'rank')}, {several}{work})"

    def __str__(self) -> str:
        """Return the grid: a line per rank, with each action at its earliest step of a unit-time
        schedule.

        Idle steps are dots.
        """
        columns = [
            dict(zip(at, row, strict=True)) for at, row in zip(steps(self), self.rows, strict=True)
        ]
        count = 1 + max((at for row in columns for at in row), default=-1)
        lines = [[str(row.get(at, ".")) for at in range(count)] for row in columns]
        return table(lines)

    @classmethod
    @checked
    def parse(cls, text: Text, name: Text = "grid", flush: bool = True) -> Schedule:
        """Return the schedule in ``text``: the output of ``str``, or a grid with a line per rank.

        The schedule is checked and gets ``name`` and ``flush``. Raises SpecError.
        """
        schedule = build(text)
        return cls(name, schedule.rows, schedule.stages, schedule.microbatches, flush)

    def _repr_html_(self) -> str:
        from workbench.training.pipelines.schedule_picture import html

        return html(self)


@checked
def build(
    value: Any,
    *,
    ranks: Ranks | None = None,
    microbatches: Count | None = None,
    stages_per_rank: Stages | None = None,
    iterations: Count = 1,
    most: Count = MOST_ACTIONS,
) -> Schedule:
    """Return the schedule that ``value`` means, checked for deadlocks and missing actions.

    ``value``: a name of ``schedules/``, a path such as "mine.py:schedule", a Source, a function
    ``(ranks, microbatches, stages_per_rank)`` that returns rows, or a grid: rows of "0F0", or a
    text with a line per rank, with which the other arguments must agree. A function with a
    parameter ``flush=False`` is called once, for the microbatches of all ``iterations``:
    microbatch n is microbatch n % M of iteration n // M. ``most``: the largest number of actions.
    Raises SpecError, which names the first fault and draws the grid with it marked.

    >>> print(wb.schedule("1f1b", ranks=4, microbatches=8))
    """
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
            ("ranks", ranks),
            ("microbatches", microbatches),
            ("stages_per_rank", stages_per_rank),
        ):
            if count < 1:
                raise SpecError(f"schedule {name}: {what} = {count}: must be 1 or more")
        if (actions := 2 * ranks * stages_per_rank * microbatches) > most:
            of_run = "" if flush else f" (of {iterations:,} iterations, as it has no flush)"
            raise SpecError(
                f"schedule {name}: ranks={ranks:,} x stages_per_rank={stages_per_rank:,} x "
                f"microbatches={microbatches:,}{of_run} are {actions:,} forwards and backwards, "
                f"and {most:,} are the most: take fewer"
            )
        try:
            result = function(ranks, microbatches, stages_per_rank)
        except ValueError as error:
            raise SpecError(
                f"schedule {name} for ranks={ranks}, microbatches={microbatches}, "
                f"stages_per_rank={stages_per_rank}: {error}"
            ) from error
        rows = parse_rows(result)
    schedule = Schedule(name, rows, ranks * stages_per_rank, microbatches, flush)
    check(schedule, ranks)
    return schedule


def one_stage_a_rank(name: str, stages_per_rank: int, instead: str) -> None:
    """Raise ValueError unless there is one stage per rank, for schedules that support only that."""
    if stages_per_rank != 1:
        raise ValueError(f"{name} has one stage a rank; for more take {instead!r}")


def _function(value: Any) -> Callable[..., Any] | None:
    """Return the function that ``value`` means; None where it is a grid."""
    if isinstance(value, Source):
        loaded = value.load()
    elif isinstance(value, str):
        if "\n" in value.strip() or ACTION.match(value.strip()):
            return None
        loaded = source.load("schedules", value, "schedule")
    else:
        loaded = value
    if not callable(loaded):
        return None
    function: Callable[..., Any] = loaded
    takes = ""
    try:
        takes = str(inspect.signature(loaded))
        inspect.signature(loaded).bind(1, 1, 1)
    except (TypeError, ValueError):  # ValueError: of a class of C's
        raise SpecError(
            f"schedule {_named(value)} takes {takes or 'something else'}; it is called with "
            "(ranks, microbatches, stages_per_rank)"
        ) from None
    return function


def flushes(value: Any) -> bool:
    """Return whether a schedule is drawn up for one iteration at a time; only that of a file of
    ``schedules/`` is asked.
    """
    if not isinstance(value, str) or value not in source.available("schedules"):
        return True
    return _flushes(source.load("schedules", value, "schedule"))


def _flushes(function: Callable[..., Any]) -> bool:
    flush = inspect.signature(function).parameters.get("flush")
    return flush is None or flush.default is not False


def _named(value: Any) -> str:
    if isinstance(value, str):
        place = source.split_path(value)
        return place[1] if place else value
    return str(getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__))
