"""Grids as torch.distributed.pipelining itself makes them, in our actions.

torch makes a grid in the constructor of a schedule, which wants stages; its own visualizer gives it
stand-ins, and we ask that. Forward and backward that torch overlaps in one action (DualPipeV) are
written one after the other; its idle cells and reductions are left out.
"""

from __future__ import annotations

import re
from typing import Any

from workbench.training.pipelines.schedule import Action

_COMPUTED = re.compile(r"\d+[FBIW]\d+(?!\d)")


def grid(name: str, ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    """Return the rows of torch's schedule class ``name``. Raises ValueError if torch does."""
    from torch.distributed.pipelining import _schedule_visualizer as visualizer
    from torch.distributed.pipelining import schedules

    visualize: Any = visualizer.get_schedule_ops
    try:
        rows = visualize(getattr(schedules, name), ranks, microbatches, stages_per_rank)
    except AssertionError as error:
        raise ValueError(f"torch's {name} refuses: {error}") from error
    return [[Action.parse(one) for cell in row for one in _actions(cell)] for row in rows]


def _actions(cell: object) -> list[str]:
    """Return a cell's actions: two in "(0F3;3B1)OVERLAP_F_B", none in "0REDUCE_GRAD" and None."""
    return _COMPUTED.findall(str(cell))


def two_stages_a_rank(name: str, stages_per_rank: int) -> None:
    """Refuse other numbers than 2, for schedules that fold back: rank r has stages r and 2K-1-r."""
    if stages_per_rank != 2:
        raise ValueError(
            f"{name} has stages_per_rank=2, got {stages_per_rank}: the second stages go back from "
            "the last rank to the first"
        )
