"""The collectives of one forward and backward pass of a rank's program, seen on the device "meta".

Only shapes are computed there: no rank is asked, and no memory is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from workbench.training.splitting.cut import Cut
from workbench.training.splitting.sliced import hollow, stage_module
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.cut import Split
from workbench.training.tensor_parallel.layers import (
    Copy,
    Gather,
    GatherSequence,
    PartOfSequence,
    Ranks,
    Row,
)

INSERTED = (Copy, Gather, GatherSequence, PartOfSequence)  # modules that the model itself lacks
Call = tuple[str, int]  # a collective, and the bytes of its whole tensor
See = Callable[[Any, torch.Tensor, torch.Tensor], list[Call]]  # of a module, its input and output


def calls_of(traced: Traced, cut: Cut, args: tuple[Any, ...]) -> list[list[Call]]:
    """Return the collectives of each stage, for a call of the model with ``args``."""
    empty, result = hollow(traced), list[list[Call]]()
    values = tuple(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args)
    for stage in range(cut.stages):
        module, calls = stage_module(empty, cut, stage), list[Call]()
        for one in module.modules():
            if see := _SEEN.get(type(one)):
                one.register_forward_hook(_noting(see, calls))
        with torch.device("meta"):
            values = module(*values)
        result.append(calls)
    return result


def _noting(see: See, calls: list[Call]) -> Callable[..., None]:
    def note(module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls.extend(see(module, args[0], output))

    return note


def _copy(_: Copy, x: torch.Tensor, __: torch.Tensor) -> list[Call]:
    return [("all_reduce", x.nbytes)] if x.requires_grad else []


def _gather(_: Gather, __: torch.Tensor, whole: torch.Tensor) -> list[Call]:
    return [("all_gather", whole.nbytes)]


def _gather_sequence(one: GatherSequence, x: torch.Tensor, whole: torch.Tensor) -> list[Call]:
    nbytes = _filled_up(whole, one.sequence.cut(), one.ranks)
    back = [("reduce_scatter", nbytes)] if one.summed and x.requires_grad else []
    return [("all_gather", nbytes), *back]


def _part_of_sequence(one: PartOfSequence, x: torch.Tensor, _: torch.Tensor) -> list[Call]:
    nbytes = _filled_up(x, one.sequence.cut(), one.ranks)
    return [("all_gather", nbytes)] if x.requires_grad else []


def _row(one: Row, x: torch.Tensor, output: torch.Tensor) -> list[Call]:
    if one.sequence is None:
        return [("all_reduce", output.nbytes)]
    cut = one.sequence.cut()
    mine = cut.local(one.ranks.rank, one.ranks.ranks)
    nbytes = output.nbytes // mine * cut.local(0, one.ranks.ranks) * one.ranks.ranks
    return [("reduce_scatter", nbytes), ("all_gather", nbytes)]


def _filled_up(whole: torch.Tensor, cut: Split, ranks: Ranks) -> int:
    """Return the bytes of a tensor of which each rank has as many positions as the first."""
    return whole.nbytes // cut.size * cut.local(0, ranks.ranks) * ranks.ranks


_SEEN: dict[type[nn.Module], Any] = {
    Copy: _copy,
    Gather: _gather,
    GatherSequence: _gather_sequence,
    PartOfSequence: _part_of_sequence,
    Row: _row,
}
