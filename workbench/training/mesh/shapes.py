"""The shapes of a model on a mesh, as formulas/mesh.py reads them: the header's ``run.mesh``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from workbench.formulas import ALGORITHMS
from workbench.formulas.grid import DATA, Grid, name_of_line
from workbench.formulas.mesh import Call, Layout, Parameter, Stage
from workbench.rank.job import Job
from workbench.training.mesh.lines import along
from workbench.training.pipelines.schedule import Schedule
from workbench.training.splitting.cut import Cut
from workbench.training.splitting.sliced import stage_module
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.model import Sharded
from workbench.training.zero.units import grouped


class Divided(Protocol):
    """A rank's model, divided over a mesh."""

    job: Job
    grid: Grid
    schedule: Schedule
    microbatches: int
    hollow: Traced
    cut: Cut
    units: list[str]
    sharded: Sharded | None

    @property
    def zero(self) -> int: ...
    def crossing(self, samples: int) -> Sequence[Sequence[torch.Tensor]]: ...
    def calls(self, samples: int) -> list[list[tuple[str, int]]]: ...


LOOKED_AT = 1  # sample, for what goes over tp


def facts(mesh: Divided) -> str:
    """Return the facts of a mesh as JSON: its axes and lines, and the shapes of each stage."""
    job, grid, schedule = mesh.job, mesh.grid, mesh.schedule
    sizes = sorted({one for size in _minibatches(mesh) for one in _microbatches(mesh, size)})
    return json.dumps(
        {
            "axes": grid.axes,
            "zero": mesh.zero,
            "schedule": schedule.name,
            "microbatches": mesh.microbatches,
            "rank_of": schedule.rank_of,
            "itemsize": job.dtype.itemsize,
            "all_reduce": job.exp.all_reduce if isinstance(job.exp.all_reduce, str) else "",
            "samples": len(job.train),
            "batch_size": job.exp.batch_size,
            "lines": {
                f"{name_of_line(axes)} {number}": {"axes": axes, "ranks": ranks}
                for axes in along(grid, mesh.zero)
                for number, ranks in enumerate(grid.lines(*axes))
            },
            "stages": [
                _stage(mesh, index, calls) for index, calls in enumerate(mesh.calls(LOOKED_AT))
            ],
            "cuts": {size: [_bytes(cut) for cut in mesh.crossing(size)] for size in sizes},
        }
    )


def layout_of(facts: Mapping[str, Any]) -> Layout:
    """Return the layout that facts describe."""
    stages = [
        Stage(
            tuple(tuple(Parameter(*one) for one in unit["shapes"]) for unit in stage["units"]),
            tuple(Call(*one) for one in stage["calls"]),
        )
        for stage in facts["stages"]
    ]
    return Layout(
        Grid(tuple((name, size) for name, size in facts["axes"])),
        facts["zero"],
        facts["itemsize"],
        tuple(stages),
        tuple(facts["rank_of"]),
        {int(size): cuts for size, cuts in facts["cuts"].items()},
        facts["all_reduce"] if facts["all_reduce"] in ALGORITHMS else "ring",
    )


def microbatches(minibatch: int, share: int, shares: int, count: int) -> list[int]:
    """Return the samples of each microbatch of a share of a minibatch. One of none has one that
    counts nothing.
    """
    mine = len(range(share, minibatch, shares))
    each, more = divmod(mine, count)
    return [max(1, each + (number < more)) for number in range(count)]


def _minibatches(mesh: Divided) -> set[int]:
    """Return the sizes that minibatches have."""
    job = mesh.job
    return {job.minibatches.size(0), job.minibatches.size(job.minibatches.per_epoch - 1)}


def _microbatches(mesh: Divided, minibatch: int) -> set[int]:
    shares = mesh.grid.size(*DATA)
    return {
        one
        for share in range(shares)
        for one in microbatches(minibatch, share, shares, mesh.microbatches)
    }


def _stage(mesh: Divided, index: int, calls: Sequence[tuple[str, int]]) -> dict[str, Any]:
    module = stage_module(mesh.hollow, mesh.cut, index)
    partial = mesh.sharded.partial if mesh.sharded is not None else ()
    return {
        "units": [
            {
                "name": name,
                "names": [key for key, _ in named],
                "shapes": [[*_rows(one), key in partial] for key, one in named],
            }
            for name, named in grouped(module, mesh.units)
        ],
        "calls": [[collective, nbytes, LOOKED_AT] for collective, nbytes in calls],
    }


def _rows(parameter: torch.Tensor) -> tuple[int, int]:
    rows = parameter.shape[0] if parameter.dim() else 1
    return rows, parameter.numel() // max(1, rows)


def _bytes(crossing: Any) -> tuple[list[int], list[int]]:
    values = [one.numel() * one.element_size() for one in crossing]
    gradients = [one.numel() * one.element_size() for one in crossing if one.requires_grad]
    return values, gradients
