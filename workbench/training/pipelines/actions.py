"""The actions of a pipeline, "2F0": parsed from text, with what each must wait for."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from workbench.common.errors import SpecError, short
from workbench.common.names import listed
from workbench.user_code import source

KINDS = "FBIW"
ACTION = re.compile(rf"(\d{{1,18}})([{KINDS}])(\d{{1,18}})")
_LABEL = re.compile(r"^\s*rank\s*\d+\s*[:|]?\s+")
_IDLE = {".", "-", "None", ""}

Rows = tuple[tuple["Action", ...], ...]


class Action(NamedTuple):
    """One action of a stage for one microbatch. Prints as torch's actions do: "2F0"."""

    stage: int
    kind: str  # one of KINDS
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Return Action(2, "F", 0) for "2F0". Raises SpecError."""
        match = ACTION.fullmatch(text)
        if match is None:
            raise SpecError(
                f"{text!r} is not an action: write stage, kind and microbatch, as in '2F0'; kinds "
                "are F forward, B backward, I input gradient, W weight gradient"
            )
        return cls(int(match[1]), match[2], int(match[3]))


def needs(action: Action, stages: int, present: Container[Action]) -> list[Action]:
    """Return the actions that must be done before ``action``.

    ``present``: all actions of the schedule; a backward may be whole (B) or split (I, W).
    """
    stage, kind, m = action
    if kind == "F":
        return [Action(stage - 1, "F", m)] if stage else []
    if kind == "W":
        return [Action(stage, "I", m)]
    result = [Action(stage, "F", m)]
    if stage + 1 < stages:
        after = Action(stage + 1, "B", m)
        result.append(after if after in present else Action(stage + 1, "I", m))
    return result


class Position(NamedTuple):
    """The position of an action in a schedule."""

    rank: int
    position: int
    action: Action


def walk(rows: Rows, stages: int) -> tuple[list[Position], list[int]]:
    """Do every action that can be done; return the order, and how far each rank got."""
    present = {action for row in rows for action in row}
    done: set[Action] = set()
    at, order, moved = [0] * len(rows), list[Position](), True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                action = row[at[rank]]
                needed = needs(action, stages, present)
                if any(one not in done for one in needed):
                    break
                done.add(action)
                order.append(Position(rank, at[rank], action))
                at[rank] += 1
                moved = True
    return order, at


def parse_rows(value: Any) -> Rows:
    """Return rows of actions from a text, or rows of texts, actions or None. Raises SpecError."""
    if isinstance(value, str):
        lines = (_LABEL.sub("", line).split("#")[0].split() for line in value.splitlines())
        rows: list[Any] = [line for line in lines if line]
    elif isinstance(value, Iterable):
        rows = [row.split() if isinstance(row, str) else row for row in value]
    else:
        raise SpecError(
            f"schedule = {short(value)} is none: write a name "
            f"({listed(source.available('schedules'))}), a function "
            "(ranks, microbatches, stages_per_rank), or rows such as "
            '[["0F0", "0B0"], ["1F0", "1B0"]]'
        )
    return tuple(tuple(_cells(row, rank)) for rank, row in enumerate(rows))


def _cells(row: Any, rank: int) -> Iterable[Action]:
    try:
        cells = iter(row)
    except TypeError:
        raise SpecError(
            f"schedule, rank {rank}: {short(row)} is not a row of actions such as '0F0'"
        ) from None
    for position, cell in enumerate(cells):
        if type(cell) is Action and type(cell.stage) is type(cell.microbatch) is int:
            yield cell  # parsing texts is slow for large schedules
            continue
        if cell is None or str(cell) in _IDLE:
            continue
        if isinstance(cell, tuple):
            cell = "".join(map(str, cell))
        try:
            yield Action.parse(str(cell))
        except SpecError as error:
            raise SpecError(f"schedule, rank {rank}, position {position}: {error}") from None
