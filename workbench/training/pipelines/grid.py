"""The grid of a schedule: a row of actions for each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.training.pipelines.actions import Action, Rows, needs, walk


@dataclass(frozen=True, repr=False)
class Grid:
    """``rows`` of actions, one per rank, in the order in which the rank does them."""

    name: str  # of schedules/, or what the user's own is called
    rows: Rows
    stages: int  # of the model, over all ranks
    microbatches: int  # of an iteration; without flush: of the whole run
    flush: bool = True  # whether all backwards are done before the parameters are updated

    @property
    def ranks(self) -> int:
        """The number of ranks: one per row."""
        return len(self.rows)

    @cached_property
    def rank_of(self) -> tuple[int, ...]:
        """The rank of each stage."""
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


def steps(schedule: Grid) -> list[list[int]]:
    """Return the step at which each action of each row is done, if every action takes one step."""
    present = {action for row in schedule.rows for action in row}
    done: dict[Action, int] = {}
    free, result = [0] * schedule.ranks, [list[int]() for _ in schedule.rows]
    for rank, _, action in walk(schedule.rows, schedule.stages)[0]:
        needed = needs(action, schedule.stages, present)
        begin = max([free[rank], *(done[one] for one in needed)])
        free[rank] = done[action] = begin + 1
        result[rank].append(begin)
    return result


def table(lines: Sequence[Sequence[str]]) -> str:
    """Format cells in columns, a labeled line per rank."""
    width = max((len(cell) for line in lines for cell in line), default=1)
    label = len(f"rank {len(lines) - 1}")
    return "\n".join(
        f"{f'rank {rank}':<{label}}  {' '.join(cell.center(width) for cell in line)}".rstrip()
        for rank, line in enumerate(lines)
    )
