"""The two ranks of a fork: one has stem, a branch and head, the other one the branch beside it.

    rank 0   stem | give | own branch .......... | take | head, loss, backward of the head
             give gradient | backward of own branch | take gradient | backward of the stem
    rank 1   take | side branch | give ... take gradient | backward | give gradient

A received value is a leaf, so each backward stops at it, and its gradient is what is sent on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from workbench.rank.data_source import reread
from workbench.recording.events import CODE
from workbench.training.branches.fork import Fork
from workbench.training.pipelines.loss_stub import answering, arguments
from workbench.training.splitting.sliced import hollow, piece
from workbench.training.splitting.traced import Traced

if TYPE_CHECKING:
    from workbench.rank.job import Job

Values = dict[str, torch.Tensor]


class Part:
    """Some layers as a module from values to values, and its backward."""

    def __init__(self, traced: Traced, gets: Sequence[str], gives: Sequence[str] | None) -> None:
        """Prepare. ``gives`` None: the model's own output."""
        last = len(traced.layers) - 1
        self.gets, self.gives = tuple(gets), None if gives is None else tuple(gives)
        self.module = piece(traced, 0, last, self.gets, self.gives) if traced.layers else None
        self.leaves, self.outputs = Values(), Values()

    def forward(self, values: Mapping[str, Any]) -> Any:
        """Return the values by name, or the model's output."""
        self.leaves = {name: _leaf(values[name]) for name in self.gets}
        if self.module is None:
            return {}
        output = self.module(*self.leaves.values())
        if self.gives is None:
            return output
        self.outputs = dict(zip(self.gives, output, strict=True))
        return {name: _leaf(value) for name, value in self.outputs.items()}

    def backward(self, gradients: Values) -> None:
        """Compute gradients from those of its outputs."""
        pairs = [
            (self.outputs[name], grad)
            for name, grad in gradients.items()
            if name in self.outputs and self.outputs[name].requires_grad
        ]
        if pairs:
            torch.autograd.backward([one for one, _ in pairs], [grad for _, grad in pairs])

    @property
    def gradients(self) -> Values:
        """The gradients of its inputs, by name."""
        return {name: one.grad for name, one in self.leaves.items() if _grad(one) is not None}  # type: ignore[misc]


class Branches:
    """One rank's parts of a fork, and its messages; ``step`` is one iteration."""

    def __init__(self, job: Job, fork: Fork) -> None:
        self.job, self.me = job, job.rank
        self.inputs = fork.values((-1, *fork.before), fork.side)
        self.returns = fork.values(fork.side, fork.behind)
        self.parts = self._parts(fork)
        modules = [one.module for one in self.parts if one.module is not None]
        self.module = nn.ModuleList(modules).to(job.device)
        self.fork = Fork(hollow(fork.traced), fork.side)  # the other rank's layers are freed
        self._likes = cache(self._shapes)
        self._leaving: list[tuple[dist.Work, torch.Tensor]] = []

    def _parts(self, fork: Fork) -> tuple[Part, ...]:
        if self.me == 1:
            return (Part(fork.part(sorted(fork.side)), self.inputs, self.returns),)
        before, rival, behind = fork.before, fork.rival, fork.behind
        inputs = fork.values((-1,), range(len(fork.traced.layers)))
        stem = tuple(dict.fromkeys(self.inputs + fork.values((-1, *before), (*rival, *behind))))
        values = tuple(name for name in stem if name not in inputs)
        beside = fork.values(rival, behind)
        return (
            Part(fork.part(before), inputs, values),
            Part(fork.part(rival), fork.values((-1, *before), rival), beside),
            Part(fork.part(behind), fork.values((-1, *before, *rival, *fork.side), behind), None),
        )

    def step(self, ids: np.ndarray) -> torch.Tensor | None:
        """Compute the gradients of a minibatch; rank 0 returns its loss."""
        loss: torch.Tensor | None = None
        if self.me == 0:
            loss = self._with_head(ids)
        else:
            self._beside(ids)
        for work, _ in self._leaving:
            work.wait()
        self._leaving = []
        return loss

    def _with_head(self, ids: np.ndarray) -> torch.Tensor:
        job, (stem, own, head) = self.job, self.parts
        batch = job.load(ids)
        values: dict[str, Any] = self._arguments(batch)
        with job.computing(CODE["forward"], "stem"):
            values |= stem.forward(values)
        self._give({name: values[name] for name in self.inputs}, "activation")
        with job.computing(CODE["forward"], "branch"):
            values |= own.forward(values)
        values |= self._take(self.returns, len(ids), "activation")
        with job.computing(CODE["forward"], "head"):
            loss: torch.Tensor = job.task.loss(answering(head.forward(values)), batch)
        with job.computing(CODE["backward"], "head"):
            torch.autograd.backward(loss)
        gradients = head.gradients
        sent = [name for name in self.returns if self._likes(len(ids))[name].requires_grad]
        self._give({name: gradients[name] for name in sent}, "gradient")
        with job.computing(CODE["backward"], "branch"):
            own.backward(gradients)
        back = [name for name in self.inputs if self._likes(len(ids))[name].requires_grad]
        come = self._take(back, len(ids), "gradient")
        with job.computing(CODE["backward"], "stem"):
            stem.backward(_sum(come, own.gradients, head.gradients))
        return loss

    def _beside(self, ids: np.ndarray) -> None:
        job, (side,) = self.job, self.parts
        values = self._take(self.inputs, len(ids), "activation")
        with job.computing(CODE["forward"], "branch"):
            outputs = side.forward(values)
        self._give({name: outputs[name] for name in self.returns}, "activation")
        likes = self._likes(len(ids))
        come = self._take([n for n in self.returns if likes[n].requires_grad], len(ids), "gradient")
        with job.computing(CODE["backward"], "branch"):
            side.backward(come)
        back = [name for name in self.inputs if likes[name].requires_grad]
        self._give({name: side.gradients[name] for name in back}, "gradient")

    # -- messages --

    def _give(self, values: Values, label: str) -> None:
        with self.job.label(label):
            for number, x in enumerate(values.values()):
                sent = x.detach().contiguous()
                work = dist.isend(sent, 1 - self.me, tag=number)
                assert work is not None
                self._leaving.append((work, sent))

    def _take(self, names: Sequence[str], samples: int, label: str) -> Values:
        result, likes = Values(), self._likes(samples)
        with self.job.label(label):
            for number, name in enumerate(names):
                like = likes[name]
                into = torch.empty(like.shape, dtype=like.dtype, device=self.job.device)
                dist.recv(into, 1 - self.me, tag=number)
                is_input = label == "activation" and like.requires_grad
                result[name] = into.requires_grad_(is_input)
        return result

    def _arguments(self, batch: Any) -> dict[str, Any]:
        traced = self.fork.traced
        args = arguments(self.job.task, traced.model, batch)
        return dict(zip(traced.inputs, args, strict=True))

    def _shapes(self, samples: int) -> Values:
        """Return tensors without memory, like those that are sent, for so many samples."""
        job, fork = self.job, self.fork
        ids = np.arange(samples) % len(job.train)
        args = self._arguments(reread(job, lambda: job.batch(job.train, ids)))
        values = {
            name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in args.items()
        }
        stem = piece(fork.part(fork.before), 0, len(fork.before) - 1, tuple(args), self.inputs)
        side = piece(fork.part(sorted(fork.side)), 0, len(fork.side) - 1, self.inputs, self.returns)
        with torch.device("meta"):
            enter = stem(*values.values())
            leave = side(*enter)
        return dict(zip(self.inputs + self.returns, (*enter, *leave), strict=True))

    # -- the end --

    def assemble(self) -> nn.Module:
        """Return the whole model: each rank tells the other one its layers."""
        traced, model = self.fork.traced, self.job.build()
        prefixes = tuple(f"{traced.names[layer]}." for layer in self.fork.side)
        side = {name for layer in self.fork.side for name in traced.layers[layer].parameters}
        own = {name: x for module in self.module for name, x in module.state_dict().items()}
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                if name in own:
                    tensor.copy_(own[name])
                owner = int(name in side or name.startswith(prefixes))
                dist.broadcast(tensor, owner, group=self.job.metrics_group())
        return model


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _grad(value: Any) -> torch.Tensor | None:
    return value.grad if isinstance(value, torch.Tensor) else None


def _sum(*several: Values) -> Values:
    result = Values()
    for gradients in several:
        for name, one in gradients.items():
            result[name] = result[name] + one if name in result else one
    return result
