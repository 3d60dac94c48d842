"""Layers of which a rank has a part, and what ranks exchange before and after them.

    column   a rank has some rows of the weight, so some of the outputs. Its input is whole: in the
             backward pass the ranks' gradients of it are added up (``Copy``).
    row      a rank has some columns of the weight, for the inputs that it has. What it computes is
             a summand of the output: the ranks' are added up (``Add``), the bias is added once.

A column layer followed by a row layer exchanges nothing in between. A column layer whose output is
needed whole is followed by ``Gather``.

Paper  Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
       Parallelism", arXiv 1909.08053, 2019: ``Copy`` is its f, ``Add`` its g.
Cost   an all-reduce of the whole value in each ``Add`` forward, and in each ``Copy`` backward.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from workbench.training.tensor_parallel.cut import Split

CONVOLUTIONS: dict[type[nn.Module], Callable[..., torch.Tensor]] = {
    nn.Conv1d: F.conv1d,
    nn.Conv2d: F.conv2d,
    nn.Conv3d: F.conv3d,
}


@dataclass(frozen=True)
class Ranks:
    """The ranks that share the layers.

    ``aside``: the group for all but training, such as metrics. ``group``: that of training; None:
    of all ranks. On the device "meta", where only shapes are computed, nothing is exchanged.
    """

    rank: int
    ranks: int
    aside: dist.ProcessGroup | None
    label: Callable[[str], AbstractContextManager[None]]
    group: dist.ProcessGroup | None = None

    def __deepcopy__(self, _: Any) -> Ranks:
        return self  # a copy of a model is one for the same ranks

    def _exchange(
        self, name: str, x: torch.Tensor, training: bool, call: Callable[..., object]
    ) -> None:
        """Call a collective in the group, under a layer's name."""
        if not x.is_meta:
            with self.label(name):
                call(group=self.group if training else self.aside)

    def add(self, x: torch.Tensor, name: str, *, training: bool) -> torch.Tensor:
        """Return the sum over ranks of ``x``, the same bits on each."""
        total = x.detach().clone(memory_format=torch.contiguous_format)
        self._exchange(name, x, training, partial(dist.all_reduce, total))
        return total

    def gather(self, x: torch.Tensor, cut: Split, name: str, *, training: bool) -> torch.Tensor:
        """Gather the whole tensor from each rank's shard ``x``. Shards travel at one size."""
        most = cut.local(0, self.ranks)  # the first rank has no less than any other
        first = x.detach().movedim(cut.dim, 0)
        mine = first.new_zeros(most, *first.shape[1:])
        mine[: len(first)] = first
        parts = [torch.empty_like(mine) for _ in range(self.ranks)]
        self._exchange(name, x, training, partial(dist.all_gather, parts, mine))
        whole = first.new_empty(cut.size, *first.shape[1:])
        for rank, part in enumerate(parts):
            places = cut.places(rank, self.ranks).to(x.device)
            whole[places] = part[: len(places)]
        return whole.movedim(0, cut.dim).contiguous()

    def add_part(self, x: torch.Tensor, cut: Split, name: str, *, training: bool) -> torch.Tensor:
        """Return this rank's shard of the sum over ranks of ``x``."""
        first = x.detach().movedim(cut.dim, 0)
        most = cut.local(0, self.ranks)
        padded = first.new_zeros(self.ranks, most, *first.shape[1:])
        for rank, into in enumerate(padded):
            places = cut.places(rank, self.ranks).to(x.device)
            into[: len(places)] = first[places]
        mine = torch.empty_like(padded[0])
        self._exchange(name, x, training, partial(dist.reduce_scatter, mine, [*padded]))
        return mine[: cut.local(self.rank, self.ranks)].movedim(0, cut.dim).contiguous()

    def part(self, whole: torch.Tensor, cut: Split, rank: int | None = None) -> torch.Tensor:
        """Return a copy of a rank's shard of ``whole``."""
        mine = self.rank if rank is None else rank
        return whole.index_select(cut.dim, cut.places(mine, self.ranks).to(whole.device))


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks, name: str) -> torch.Tensor:
        ctx.ranks, ctx.name = ranks, name
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.ranks.add(grads[0], ctx.name, training=True), None, None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks, name: str, training: bool) -> torch.Tensor:
        return ranks.add(x, name, training=training)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return grads[0], None, None, None


class _AddPart(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, ranks: Ranks, name: str, cut: Split, training: bool
    ) -> torch.Tensor:
        ctx.ranks, ctx.name, ctx.cut = ranks, name, cut
        return ranks.add_part(x, cut, name, training=training)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        whole = ctx.ranks.gather(grads[0], ctx.cut, ctx.name, training=True)
        return whole, None, None, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, ranks: Ranks, name: str, cut: Split, summed: bool, training: bool
    ) -> torch.Tensor:
        ctx.ranks, ctx.name, ctx.cut, ctx.summed = ranks, name, cut, summed
        return ranks.gather(x, cut, name, training=training)

    @staticmethod
    def backward(
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None, None]:
        if ctx.summed:
            mine = ctx.ranks.add_part(grads[0], ctx.cut, ctx.name, training=True)
        else:  # every rank has the same
            mine = ctx.ranks.part(grads[0], ctx.cut)
        return mine, None, None, None, None, None


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks, name: str, cut: Split) -> torch.Tensor:
        ctx.ranks, ctx.name, ctx.cut = ranks, name, cut
        return ranks.part(x, cut)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.ranks.gather(grads[0], ctx.cut, ctx.name, training=True), None, None, None


class Copy(nn.Module):
    """The value as it is; its gradient is the sum over ranks."""

    def __init__(self, ranks: Ranks, name: str) -> None:
        super().__init__()
        self.ranks, self.name = ranks, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Copy.apply(x, self.ranks, self.name)  # type: ignore[no-any-return,no-untyped-call]


class Gather(nn.Module):
    """The whole of a value that is cut by channels; its gradient is a rank's own part."""

    def __init__(self, ranks: Ranks, name: str, cut: Split) -> None:
        super().__init__()
        self.ranks, self.name, self.cut = ranks, name, cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Gather.apply(  # type: ignore[no-any-return,no-untyped-call]
            x, self.ranks, self.name, self.cut, False, self.training
        )


class Sequence:
    """A value (batch, time, channels) of which each rank has some positions.

    ``length``: of the whole in this pass.
    """

    def __init__(self) -> None:
        self.length = 0

    def __deepcopy__(self, _: Any) -> Sequence:
        return self  # a stage may need the length that an earlier one has

    def cut(self, whole: torch.Tensor | None = None) -> Split:
        self.length = self.length if whole is None else whole.shape[1]
        return Split(1, 1, self.length, 1, "")


class GatherSequence(nn.Module):
    """All positions. ``summed``: the ranks' gradients of it are added up, else they are alike."""

    def __init__(self, ranks: Ranks, name: str, sequence: Sequence, summed: bool) -> None:
        super().__init__()
        self.ranks, self.name, self.sequence, self.summed = ranks, name, sequence, summed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Gather.apply(  # type: ignore[no-any-return,no-untyped-call]
            x, self.ranks, self.name, self.sequence.cut(), self.summed, self.training
        )


class PartOfSequence(nn.Module):
    """A rank's own positions of a whole value."""

    def __init__(self, ranks: Ranks, name: str, sequence: Sequence) -> None:
        super().__init__()
        self.ranks, self.name, self.sequence = ranks, name, sequence

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cut = self.sequence.cut(x)
        return _Part.apply(x, self.ranks, self.name, cut)  # type: ignore[no-any-return,no-untyped-call]


class Column(nn.Module):
    """The rows of ``layer``'s weight, and of its bias, that belong to this rank."""

    def __init__(self, layer: Any, ranks: Ranks, cut: Split) -> None:
        super().__init__()
        self.apply_to = _operation(layer)
        self.weight = _parameter(layer.weight, lambda whole: ranks.part(whole, cut))
        self.bias = _parameter(layer.bias, lambda whole: ranks.part(whole, cut))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.apply_to(x, self.weight, self.bias)


class Row(nn.Module):
    """The columns of ``layer``'s weight that belong to this rank; the bias is every rank's.

    ``sequence``: the rank keeps its positions of the output only.
    """

    def __init__(
        self, layer: Any, ranks: Ranks, name: str, cut: Split, sequence: Sequence | None
    ) -> None:
        super().__init__()
        self.apply_to, self.ranks, self.name = _operation(layer), ranks, name
        self.sequence = sequence
        self.weight = _parameter(layer.weight, lambda whole: ranks.part(whole, cut))
        self.bias = _parameter(layer.bias, torch.clone)
        self.behind = [1] * (layer.weight.dim() - 2)  # dims of the output behind the channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        summand = self.apply_to(x, self.weight, None)
        total = self._added(summand)
        return total if self.bias is None else total + self.bias.view(-1, *self.behind)

    def _added(self, x: torch.Tensor) -> torch.Tensor:
        ranks, name, training = self.ranks, self.name, self.training
        if self.sequence is None:
            return _Add.apply(x, ranks, name, training)  # type: ignore[no-any-return,no-untyped-call]
        cut = self.sequence.cut(x)
        return _AddPart.apply(x, ranks, name, cut, training)  # type: ignore[no-any-return,no-untyped-call]


def _parameter(whole: Any, part: Callable[[torch.Tensor], torch.Tensor]) -> nn.Parameter | None:
    return None if whole is None else nn.Parameter(part(whole.detach()), whole.requires_grad)


def _operation(layer: nn.Module) -> Callable[..., torch.Tensor]:
    """Return the layer's function of (input, weight, bias)."""
    if isinstance(layer, nn.Linear):
        return F.linear
    function = CONVOLUTIONS[type(layer)]
    how = {name: getattr(layer, name) for name in ("stride", "padding", "dilation")}
    return lambda x, weight, bias: function(x, weight, bias, **how)
