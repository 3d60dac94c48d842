"""One stage of a model on a rank: its forwards and backwards, and what it holds between them.

A *pass* is one microbatch in the stage, from its forward until its backward is complete. The
backward can be split: the gradient of the input (I), for which the previous stage waits, and the
gradient of the weights (W), for which no stage waits.

Weights may be stashed (PipeDream): every forward runs on a copy of the newest version, and its
backward on the same copy, however often the stage was updated in between.

Papers  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), for I and W;
        Narayanan et al., "PipeDream", SOSP 2019, for the stash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call

from workbench.rank.memory import Held, Memory
from workbench.training.pipelines.split_backward import (
    Branches,
    input_gradients,
    weight_gradients,
)

Tensors = tuple[torch.Tensor, ...]


@dataclass
class Pass:
    """One microbatch that the stage has run forward and not yet completely backward."""

    version: int
    inputs: Tensors
    ends: tuple[Any, ...]  # where the backward begins: outputs that want a gradient, or their edges
    weights: dict[str, torch.Tensor]  # those that the forward ran on
    held: list[Held]
    grads: Tensors | None = None  # of the outputs; for the first stage, whose I has nothing to do
    branches: list[Branches] = field(default_factory=list)  # what W goes on with


class Stage:
    """One stage. ``module``: from values to values, as sliced.py makes it. ``stash``: keep old
    versions.
    """

    def __init__(
        self, module: torch.nn.Module, index: int, memory: Memory, *, stash: bool, halves: bool
    ) -> None:
        """Take over the module. ``halves``: backwards are split into I and W."""
        self.module, self.index, self.memory = module, index, memory
        self.stash, self.halves = stash, halves
        # Asked for once: it is a walk over all modules.
        self.parameters: dict[str, torch.Tensor] = dict(module.named_parameters())
        self.version = 0  # updates so far
        self.passes: dict[int, Pass] = {}
        self._stashed: dict[int, tuple[dict[str, torch.Tensor], list[Held]]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the module."""
        return {"version": self.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint kept."""
        self.version = state["version"]

    def forward(
        self,
        microbatch: int,
        values: Sequence[Any],
        loss: Callable[[Any], torch.Tensor] | None = None,
    ) -> Tensors:
        """Run a microbatch forward; return the outputs for the next stage, or the last stage's
        loss.

        ``values``: inputs; requires_grad marks those that need a gradient. ``loss``: of the last
        stage's output.
        """
        weights = self._weights()
        with self.memory.counting():
            result = (
                functional_call(self.module, weights, tuple(values))
                if self.stash
                else self.module(*values)
            )
            outputs = result if loss is None else (loss(result),)
            if self.halves:  # I detaches them in place, which fails for a view
                outputs = tuple(x.clone() if x._is_view() else x for x in outputs)
        inputs = tuple(x for x in values if isinstance(x, torch.Tensor) and x.requires_grad)
        ends: tuple[Any, ...] = tuple(x for x in outputs if x.requires_grad)
        if self.halves or loss is not None:
            kept = [*inputs, *ends]
        else:  # keep the graph alone: the outputs need not stay
            kept, ends = [*inputs], tuple(get_gradient_edge(x) for x in ends)
        held = [self.memory.hold(x) for x in kept]
        self.passes[microbatch] = Pass(self.version, inputs, ends, weights, held)
        return outputs

    def backward(self, microbatch: int, grads: Tensors) -> Tensors:
        """Run the whole backward: return the inputs' gradients, and accumulate the weights'.

        ``grads``: of the outputs that have one, in their order; none for a loss.
        """
        one = self.passes[microbatch]
        self._run(one, grads)
        return self._end(microbatch)

    def input_gradient(self, microbatch: int, grads: Tensors) -> Tensors:
        """Compute I: the gradients of the inputs only. ``weight_gradient`` does the rest."""
        one = self.passes[microbatch]
        if not one.inputs:
            one.grads = grads
            return ()
        one.branches = input_gradients(one.ends, grads, one.inputs, self._leaves(one))
        return _grads(one.inputs)

    def weight_gradient(self, microbatch: int) -> None:
        """Compute W: the gradients of the weights, after ``input_gradient``."""
        one = self.passes[microbatch]
        if one.grads is not None:
            self._run(one, one.grads)
        else:
            weight_gradients(one.branches)
        self._end(microbatch)

    def update(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Make a new version of the weights; passes in flight keep theirs in the stash."""
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.version += 1
        self._forget()

    def _run(self, one: Pass, grads: Tensors) -> None:
        if one.ends:
            torch.autograd.backward(one.ends, [*grads] if grads else None)

    def _end(self, microbatch: int) -> Tensors:
        one = self.passes.pop(microbatch)
        if self.stash:
            self._collect(one)
        self.memory.weigh_gradients()
        return _grads(one.inputs)

    # -- versions --

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return the weights for a forward that begins now."""
        if not self.stash:
            return self.parameters
        if self.version not in self._stashed:
            copies = {
                name: one.detach().clone().requires_grad_(one.requires_grad)
                for name, one in self.parameters.items()
            }
            held = [self.memory.hold(one) for one in copies.values()]
            self._stashed[self.version] = copies, held
        return self._stashed[self.version][0]

    def _collect(self, one: Pass) -> None:
        """Add the gradients of the stashed weights to those of the newest weights."""
        for name, newest in self.parameters.items():
            copy = one.weights[name]
            if copy.grad is not None:
                newest.grad = copy.grad if newest.grad is None else newest.grad.add_(copy.grad)
                copy.grad = None
        self._forget()

    def _forget(self) -> None:
        """Drop the versions that no pass needs."""
        needed = {each.version for each in self.passes.values()} | {self.version}
        self._stashed = {v: kept for v, kept in self._stashed.items() if v in needed}

    def _leaves(self, one: Pass) -> list[Any]:
        return [x for x in one.weights.values() if x.requires_grad]


def _grads(inputs: Tensors) -> Tensors:
    """Return the gradients of ``inputs``; zeros where the loss does not depend on one."""
    return tuple(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)
