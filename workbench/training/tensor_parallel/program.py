"""The program of one rank of a model that is split over ranks: layers that can be cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.training.splitting.cut import Cut
from workbench.training.splitting.layers import layers_of
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.exchanges import INSERTED
from workbench.training.tensor_parallel.layers import Ranks
from workbench.training.tensor_parallel.model import Sharded, shard
from workbench.training.tensor_parallel.planning import plan
from workbench.training.tensor_parallel.tokens import by_tokens as by_sequence


def divided(
    model: nn.Module, args: tuple[Any, ...], ranks: Ranks, *, by_tokens: bool
) -> tuple[Sharded, Traced]:
    """Return a rank's shard of the model, and the shard's layers.

    ``args``: of a call, in host memory. ``by_tokens``: sequence parallelism, too.
    """
    with torch.random.fork_rng(devices=[]):  # as if it had not been tried out
        planned, tokens = plan(model, args, ranks.ranks, equally=True), None
    if by_tokens:
        planned, tokens = by_sequence(planned)
    inputs = planned.traced.inputs
    sharded = shard(planned, ranks, tokens)
    layers = layers_of(sharded.model, sharded.model.graph)
    return sharded, Traced(sharded.model, sharded.model.graph, layers, inputs)


def same_cut(traced: Traced, cut: Cut, program: Traced) -> Cut:
    """Return the cut of the whole model, as one of a rank's program.

    What is exchanged for a stage's first layer belongs to that stage.
    """
    place = {node: at for at, layer in enumerate(program.layers) for node in layer.nodes}
    modules = dict(program.model.named_modules())
    starts = []
    for start in cut.starts:
        at = place[traced.layers[start].nodes[0]] if start else 0
        while at and isinstance(modules.get(program.layers[at - 1].name), INSERTED):
            at -= 1
        starts.append(at)
    names = tuple(program.layers[at].name for at in starts)
    return Cut(tuple(starts), len(program.layers), names)
