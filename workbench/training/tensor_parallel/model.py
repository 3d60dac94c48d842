"""A rank's own part of a split model (studies/planning.py plans it), and the whole of it again.

It also has the facts about the split for the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn

from workbench.training.splitting.cut import Cut
from workbench.training.splitting.facts import model_facts
from workbench.training.splitting.profiled import Profile
from workbench.training.tensor_parallel.cut import Split, shape
from workbench.training.tensor_parallel.layers import (
    Column,
    Copy,
    Gather,
    GatherSequence,
    PartOfSequence,
    Ranks,
    Row,
    Sequence,
)
from workbench.training.tensor_parallel.plan import DIM, Copied, Plan
from workbench.training.tensor_parallel.tokens import DIM as DIM_OF_SEQUENCE
from workbench.training.tensor_parallel.tokens import Tokens


@dataclass(frozen=True)
class Sharded:
    """A rank's own ``model``; ``split``: where its parameters are cut, the others are whole.
    ``rest``: what the unsplit model has and does not use. ``partial``: whole parameters, the
    gradients of which are to be added up.
    """

    model: fx.GraphModule
    ranks: Ranks
    split: Mapping[str, Split]
    rest: Mapping[str, torch.Tensor]
    partial: tuple[str, ...]

    def assembled(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return these parameters and buffers whole, by name, in host memory. All ranks call it.

        Split ones are gathered in the group ``ranks.aside``.
        """
        whole = {}
        for name, value in values.items():
            cut = self.split.get(name)
            gathered = value if cut is None else self.ranks.gather(value, cut, name, training=False)
            whole[name] = gathered.detach().cpu()
        return whole


def shard(plan: Plan, ranks: Ranks, tokens: Tokens | None = None) -> Sharded:
    """Return this rank's shard of the model: parameters keep their names; whole ones are not
    copied.

    Works on the plan's own graph, so it can be called once only.
    """
    graph = plan.traced.graph
    sharded = fx.GraphModule(plan.traced.model, graph)
    calls = {str(node.target): node for node in graph.nodes if node.op == "call_module"}
    for node, path, cut in plan.sizes:
        node.args = _with(node.args, path, cut.local(ranks.rank, ranks.ranks))
    for copied in plan.copies:
        _before(sharded, "copy", copied, Copy(ranks, copied[2]))
    sequence = Sequence()
    if tokens is not None:
        for one in tokens.parts:
            _before(sharded, "part", one, PartOfSequence(ranks, one[2], sequence))
        for one in tokens.gathers:
            _before(sharded, "gather", one, GatherSequence(ranks, one[2], sequence, summed=True))
        for one in tokens.wholes:
            _before(sharded, "gather", one, GatherSequence(ranks, one[2], sequence, summed=False))
    for layer in plan.layers:
        if layer.cut is None:
            continue
        whole, cut = sharded.get_submodule(layer.name), replace(layer.cut, dim=DIM[layer.how])
        scattered = sequence if tokens and layer.name in tokens.rows else None
        sharded.set_submodule(
            layer.name,
            Row(whole, ranks, layer.name, cut, scattered)
            if layer.how == "row"
            else Column(whole, ranks, cut),
        )
        if layer.gathered:
            node = calls[layer.name]
            gather = Gather(ranks, layer.name, layer.cut)
            _before(sharded, "gather", (node, tuple(node.users), layer.name), gather)
    sharded.recompile()
    sharded.train(plan.traced.model.training)
    used = sharded.state_dict()
    rest = {k: v for k, v in plan.traced.model.state_dict().items() if k not in used}
    return Sharded(sharded, ranks, plan.split, rest, tokens.partial if tokens else ())


def _before(sharded: fx.GraphModule, what: str, copied: Copied, module: nn.Module) -> None:
    """Let the value pass through ``module`` on its way to these users."""
    value, users, _ = copied
    name, number = what, 0
    while hasattr(sharded, name):
        name, number = f"{what}_{number}", number + 1
    sharded.add_submodule(name, module)
    with sharded.graph.inserting_before(min(users)):
        passed = sharded.graph.call_module(name, (value,))
    for user in users:
        user.replace_input_with(value, passed)


def _with(args: Any, path: tuple[int, ...], value: int) -> Any:
    """Return ``args`` with ``value`` at ``path``."""
    if not path:
        return value
    inner = _with(args[path[0]], path[1:], value)
    return tuple([*args[: path[0]], inner, *args[path[0] + 1 :]])


# -- for pages --


def facts_of(plan: Plan, profile: Profile, tokens: Tokens | None = None) -> dict[str, Any]:
    """Return the page's run.model: costs of the unsplit layers and values, and how they are split.

    Costs are bytes and milliseconds of one minibatch.

    shards     by layer with parameters: how it is split, in words too; of its ``size`` outputs (or
               inputs, of a row) the runs [from, before] that each rank has
    exchanges  the collectives of an iteration, in their order
    """
    uncut = Cut((0,), len(profile.layers), (profile.names[0],))
    shards = [
        {
            "layer": one.name,
            "op": one.op,
            "how": one.how,
            "words": plan.words(one),
            "runs": [_runs(one.cut, rank, plan.ranks) for rank in range(plan.ranks)],
            "size": one.cut.size if one.cut is not None else 0,
            "gathered": one.gathered,
            "sequence": tokens is not None and one.name in tokens.rows,
        }
        for one in plan.layers
    ]
    exchanged = [
        {"name": name, "collective": collective, "pass": when, "nbytes": nbytes}
        for name, collective, when, nbytes in exchanges(plan, tokens)
    ]
    return {**model_facts(profile, uncut), "shards": shards, "exchanges": exchanged}


def _runs(cut: Split | None, rank: int, ranks: int) -> list[list[int]]:
    """Return a rank's outputs (column) or inputs (row), as runs from a to before b."""
    if cut is None:
        return []
    places = cut.places(rank, ranks).tolist()
    gaps = [i + 1 for i, (a, b) in enumerate(pairwise(places)) if b != a + 1]
    return [[places[a], places[b - 1] + 1] for a, b in pairwise([0, *gaps, len(places)])]


def exchanges(plan: Plan, tokens: Tokens | None = None) -> list[tuple[str, str, str, int]]:
    """Return the collectives of one iteration over a whole minibatch, in their order.

    Each is (name as in the rows, collective, "forward", "backward" or "gradients", payload bytes as
    in the rows).
    """
    order = {node: place for place, node in enumerate(plan.traced.graph.nodes)}
    calls = {str(node.target): node for node in order if node.op == "call_module"}
    there: list[tuple[float, str, str, int]] = []  # place, name, collective, bytes
    back: list[tuple[float, str, str, int]] = []

    def gathered(node: fx.Node, dim: int) -> int:
        """Return the bytes of a gather, in which shards travel at the largest size."""
        size = shape(node)[dim]
        return int(node.meta["bytes"]) // size * -(-size // plan.ranks) * plan.ranks

    for layer in plan.layers:
        node, name = calls.get(layer.name), layer.name
        if node is None or layer.cut is None:
            continue
        if tokens is not None and name in tokens.rows:
            nbytes = gathered(node, DIM_OF_SEQUENCE)
            there.append((order[node], name, "reduce_scatter", nbytes))
            back.append((order[node], name, "all_gather", nbytes))
        elif layer.how == "row":
            there.append((order[node], name, "all_reduce", node.meta["bytes"]))
        elif layer.gathered:
            there.append((order[node], name, "all_gather", gathered(node, layer.cut.dim)))
    back += (
        (order[min(users)] - 0.5, name, "all_reduce", value.meta["bytes"])
        for value, users, name in plan.copies
    )
    for value, users, name in (*tokens.gathers, *tokens.wholes) if tokens else ():
        place, nbytes = order[min(users)] - 0.5, gathered(value, DIM_OF_SEQUENCE)
        there.append((place, name, "all_gather", nbytes))
        if (value, users, name) in tokens.gathers:  # type: ignore[union-attr]
            back.append((place, name, "reduce_scatter", nbytes))
    for value, users, name in tokens.parts if tokens else ():
        nbytes = gathered(value, DIM_OF_SEQUENCE)
        back.append((order[min(users)] - 0.5, name, "all_gather", nbytes))
    parameters = dict(plan.traced.model.named_parameters())
    return [
        *((name, kind, "forward", nbytes) for _, name, kind, nbytes in sorted(there)),
        *((name, kind, "backward", nbytes) for _, name, kind, nbytes in sorted(back)[::-1]),
        *(
            (name, "all_reduce", "gradients", parameters[name].nbytes)
            for name in (tokens.partial if tokens else ())
        ),
    ]
