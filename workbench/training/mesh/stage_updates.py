"""Updates of a stage: over which lines of a mesh its gradients are added up, and the part of them
that a rank updates.

    zero 0      gradients are added up over dp and fsdp, layer by layer, while backward goes on
    zero 1, 2   each rank of an fsdp line gets the sum for its part, which is then added up over dp
    zero 3      torch's ``fully_shard`` divides the parameters; the parts are added up over dp

Two rules give every other sum. A parameter that is divided over tp is never added up over it. One
that is whole there has the same gradient on each rank of the line, unless sequence parallelism has
each rank use it for its positions only: then the line adds it up (``partial``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.distributed.device_mesh import DeviceMesh

from workbench.checkpoints.parts import Scope
from workbench.training.fsdp.memory import ShardedMemory
from workbench.training.fsdp.sharded import Sharded
from workbench.training.zero.units import Line, Zero, grouped

if TYPE_CHECKING:
    from workbench.rank.job import Job

WHOLE_OVER_TP = "whole over tp"  # the name of the sum of gradients that are partial there


class StageUpdates(Protocol):
    """The part of a stage that one rank updates."""

    optimizer: torch.optim.Optimizer

    def begin(self) -> None:
        """Begin an iteration: all gradients are zero."""

    def expect(self, *, last: bool) -> None:
        """Prepare for a backward pass, the ``last`` of the iteration or not."""

    def reduce(self) -> None:
        """Add up what the backward pass has not."""

    def add_up(self) -> None:
        """Add up what remains once all microbatches are done."""

    def gradients(self, names: Collection[str]) -> list[torch.Tensor]:
        """Return this rank's parts of these parameters' gradients."""

    def updated(self) -> None:
        """Give the others what this rank has updated."""

    def whole(self) -> Mapping[str, torch.Tensor]:
        """Return all parameters and buffers. All ranks of a line call it."""


class ByPart:
    """Parameters that are whole on every rank; updates are divided over the line, if it has more
    than one rank (ZeRO 1 and 2).
    """

    def __init__(
        self,
        job: Job,
        level: int,
        module: nn.Module,
        units: Sequence[str],
        line: Line,
        scope: Scope,
    ) -> None:
        self.zero = Zero(job, max(1, level), module, grouped(module, units), line)
        job.keep("model", self.zero.parts, scope)
        self.optimizer = job.optimizer(self.zero.slices.values(), scope=scope)
        self.begin, self.expect, self.reduce = self.zero.begin, self.zero.expect, self.zero.reduce

    def add_up(self) -> None:
        """Do nothing: all was added up in the last backward pass."""

    def gradients(self, names: Collection[str]) -> list[torch.Tensor]:
        slices = (one for name, one in self.zero.slices.items() if name in names)
        return [one.grad for one in slices if one.grad is not None]

    def updated(self) -> None:
        self.zero.gather()

    def whole(self) -> Mapping[str, torch.Tensor]:
        return self.zero.model.state_dict()


class ByLayer:
    """Parameters that are divided over the line, and gathered layer by layer (ZeRO 3)."""

    def __init__(
        self, job: Job, module: fx.GraphModule, units: Sequence[str], line: Line, scope: Scope
    ) -> None:
        assert line.group is not None and isinstance(job.memory, ShardedMemory)
        self.job, self.module, self.line = job, module, line
        mesh = DeviceMesh.from_group(line.group, job.device.type)
        layers = [(name, called) for name in units if (called := _called(module, name))]
        self.sharded = Sharded(job, job.memory, module, layers, mesh, aside=line.group)
        job.keep("model", module, scope)
        self.optimizer = job.optimizer(module, scope=scope)
        self._layers = [name for name, _ in layers]

    def begin(self) -> None:
        """Do nothing: an update leaves no gradient."""

    def expect(self, *, last: bool) -> None:
        """Do nothing: a layer is reduced in every backward pass."""

    def reduce(self) -> None:
        """Do nothing: autograd has."""

    def add_up(self) -> None:
        if self.line.added is not None:
            for layer, named in grouped(self.module, self._layers):
                parts = self.gradients([name for name, _ in named])
                add_together(parts, self.line.added, self.job.label(layer))

    def gradients(self, names: Collection[str]) -> list[torch.Tensor]:
        named = ((name, one.grad) for name, one in self.module.named_parameters())
        there = [grad for name, grad in named if name in names and grad is not None]
        return [grad.to_local() for grad in there]  # type: ignore[attr-defined]

    def updated(self) -> None:
        """Do nothing: a layer is gathered when it is used."""

    def whole(self) -> Mapping[str, torch.Tensor]:
        return self.sharded.whole()


def add_together(
    tensors: Sequence[torch.Tensor], group: dist.ProcessGroup, label: AbstractContextManager[None]
) -> None:
    """Add up tensors over a group, all in one call."""
    if not tensors:
        return
    together = torch.cat([one.reshape(-1) for one in tensors])
    with label:
        dist.all_reduce(together, group=group)
    sums = torch.split(together, [one.numel() for one in tensors])
    for one, total in zip(tensors, sums, strict=True):
        one.copy_(total.view_as(one))


def _called(module: fx.GraphModule, layer: str) -> list[nn.Module]:
    """Return the modules of a layer that a stage calls, in their order, if with parameters."""
    targets = dict.fromkeys(
        str(node.target) for node in module.graph.nodes if node.op == "call_module"
    )
    within = [one for one in targets if one == layer or one.startswith(f"{layer}.")]
    modules = [module.get_submodule(one) for one in within]
    return [one for one in modules if next(one.parameters(), None) is not None]
