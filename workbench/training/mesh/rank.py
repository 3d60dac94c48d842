"""A rank of a mesh: a rank of a pipeline whose stages are divided further.

    model ── traced ── tp: a rank's columns and rows of each layer ── pp: cut into stages
          ── fsdp, dp: the part of a stage that it updates (stage_updates.py)

Each step takes what the one before leaves, so the axes know nothing of each other. Every exchange
is in a group of its own line (lines.py), under the name of the layer that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from workbench.checkpoints.parts import Scope
from workbench.formulas.grid import DATA, Grid, name_of_line
from workbench.rank.batches import Minibatch
from workbench.rank.job import Job
from workbench.rank.layers import units
from workbench.rank.memory import Memory
from workbench.training.fsdp.memory import ShardedMemory
from workbench.training.mesh.layout import Layout
from workbench.training.mesh.lines import groups
from workbench.training.mesh.options import MeshOptions
from workbench.training.mesh.shapes import facts
from workbench.training.mesh.stage_updates import (
    WHOLE_OVER_TP,
    ByLayer,
    ByPart,
    StageUpdates,
    add_together,
)
from workbench.training.pipelines.loss_stub import arguments
from workbench.training.pipelines.pipeline import Pipeline
from workbench.training.pipelines.schedule import Action, Schedule
from workbench.training.splitting.cut import Cut
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.exchanges import Call, calls_of
from workbench.training.tensor_parallel.layers import Ranks
from workbench.training.tensor_parallel.model import Sharded
from workbench.training.tensor_parallel.program import divided, same_cut
from workbench.training.zero.units import Line


class MeshRank(Pipeline):
    """One rank of a mesh. ``run`` trains."""

    def __init__(self, job: Job, config: MeshOptions, schedule: Schedule) -> None:
        self.config, self.grid = config, Grid.read(config.mesh, job.ranks)
        self.updates: dict[int, StageUpdates] = {}  # by stage
        self.sharded: Sharded | None = None  # over tp
        super().__init__(job, config, schedule)
        self.final = {one.stage: one for one in self.row if one.kind in "BW"}
        self.feeding.counts = not self.grid.place(job.rank, "tp")  # the others' losses are the same
        job.keep("mesh", Layout(str(self.grid), config.zero, config.sequence_parallel))
        if job.rank == 0:
            job.tell({"mesh": facts(self)})

    def _take_place(self) -> tuple[Sequence[int], tuple[int, int]]:
        job, grid = self.job, self.grid
        self.groups = groups(job, grid, self.config.zero)
        job.replica = grid.place(job.rank, *grid.others("pp"))
        share = grid.place(job.rank, *DATA), grid.size(*DATA)
        return grid.line(job.rank, "pp"), share

    def _messages(self) -> dist.ProcessGroup | None:
        return self.groups.get("pp")

    def _memory(self) -> Memory:
        job = self.job
        return ShardedMemory(job.run_rank, job.exp.memory_limit_bytes, job.recorder)

    # -- what this rank has of the model --

    def _divide_layers(self, traced: Traced, cut: Cut, args: tuple[Any, ...]) -> tuple[Traced, Cut]:
        self.units = [name for name, _ in units(traced.model, "layers")]
        line = self.grid.line(self.job.rank, "tp")
        if len(line) == 1:
            return traced, cut
        group = self.groups["tp"]
        ranks = Ranks(line.index(self.job.rank), len(line), group, self.job.label, group)
        tokens = self.config.sequence_parallel
        self.sharded, program = divided(traced.model, args, ranks, by_tokens=tokens)
        return program, same_cut(traced, cut, program)

    def _keep(self, index: int, module: torch.nn.Module) -> None:
        if not any(one.requires_grad for one in module.parameters()):
            self.job.keep("model", module, self._scope)
            return
        assert isinstance(module, fx.GraphModule)
        by, line = self.config.zero, self._line()
        self.updates[index] = (
            ByLayer(self.job, module, self.units, line, self._scope)
            if by == 3 and line.ranks > 1
            else ByPart(self.job, by, module, self.units, line, self._scope)
        )
        self.optimizers[index] = self.updates[index].optimizer

    @property
    def _scope(self) -> Scope:
        """Say what a checkpoint has of this rank: rows of the model, or of a part of its layers."""
        return "per rank" if self.grid.size("tp") > 1 else "divided"

    def _line(self) -> Line:
        """Return the ranks that divide updates with this one, and those that add up with it."""
        grid, rank, groups = self.grid, self.job.rank, self.groups
        if not self.config.zero:
            fused = name_of_line(name for name, _ in grid.axes if name in DATA)
            return Line(0, 1, added=groups.get(fused))
        fsdp = groups.get("fsdp")
        place, size = grid.place(rank, "fsdp"), grid.size("fsdp")
        return Line(place, size, fsdp, groups.get("dp"), fsdp)

    @property
    def zero(self) -> int:
        """Return what fsdp divides, as a level of ZeRO."""
        return self.config.zero

    def crossing(self, samples: int) -> Sequence[Sequence[torch.Tensor]]:
        """Return what crosses each cut in a microbatch: tensors without memory."""
        return self._cuts(samples)

    def calls(self, samples: int) -> list[list[Call]]:
        """Return the collectives over tp of a pass of so many samples, by stage."""
        args = arguments(self.job.task, self.hollow.model, self._example(samples))
        return calls_of(self.hollow, self.cut, args)

    # -- training --

    def _train(self, minibatch: Minibatch, good: bool) -> None:
        for one in self.updates.values():
            one.begin()
        super()._train(minibatch, good)

    def _do(self, action: Action, later: Action | None) -> None:
        updates = self.updates.get(action.stage) if action.kind in "BW" else None
        if updates is not None:
            updates.expect(last=action == self.final[action.stage])
        super()._do(action, later)
        if updates is not None:
            updates.reduce()

    def _add_gradients(self, index: int) -> None:
        if (updates := self.updates.get(index)) is None:
            return
        updates.add_up()
        if self.sharded is not None and self.sharded.partial:
            partial = updates.gradients(self.sharded.partial)
            add_together(partial, self.groups["tp"], self.job.label(WHOLE_OVER_TP))

    def _after_update(self, index: int) -> None:
        if index in self.updates:
            self.updates[index].updated()

    # -- the end --

    @property
    def _validates(self) -> bool:
        return not self.grid.place(self.job.rank, "dp")

    def _parameters(self, index: int) -> Mapping[str, torch.Tensor]:
        updates, sharded = self.updates.get(index), self.sharded
        values = super()._parameters(index) if updates is None else updates.whole()
        if sharded is None:
            return values
        whole = sharded.assembled(values)
        return {**whole, **sharded.rest} if index == self.schedule.stages - 1 else whole
