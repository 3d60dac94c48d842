"""The groups of a mesh: one for each line of ranks along an axis, or along two that are fused.

Gradients that are added up over dp and fsdp alike go over one line of both: over dp and then fsdp,
each of 2 ranks, 2 · 1/2 + 2 · 1/2 of the bytes would be sent, over the line of 4 it is 2 · 3/4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from workbench.formulas.grid import DATA, Grid, name_of_line

if TYPE_CHECKING:
    from workbench.rank.job import Job


def along(grid: Grid, zero: int) -> list[tuple[str, ...]]:
    """Return the axes along which there are lines, in the order in which ranks make groups."""
    wanted = [("pp",), *([(name,) for name in DATA] if zero else [DATA]), ("tp",)]
    lines = [tuple(name for name, _ in grid.axes if name in axes) for axes in wanted]
    return [axes for axes in lines if axes]


def groups(job: Job, grid: Grid, zero: int) -> dict[str, dist.ProcessGroup]:
    """Return this rank's groups, by the name of their axes. All ranks call it."""
    result: dict[str, dist.ProcessGroup] = {}
    for axes in along(grid, zero):
        name = name_of_line(axes)
        for number, ranks in enumerate(grid.lines(*axes)):
            group = job.group(f"{name} {number}", ranks)
            if job.rank in ranks:
                result[name] = group
    return result
