"""Sequence parallelism: between the split layers every rank takes a part of the sequence.

What lies between a row layer and the next column layers (residual sums, norms) every rank would
compute alike. Instead, the sum after a row layer leaves each rank only its positions of the
sequence (a reduce-scatter instead of the all-reduce), and the column layers' input is gathered (in
the backward pass its gradient is reduced and scattered). As many bytes travel; what autograd keeps
of the norms is 1/p.

    row ─ reduce-scatter ─ + ─ norm ─ gather ─ column          a rank: time/p positions
                           └ residual

Parameters used in between (norms, the biases of row layers) have a gradient of a rank's own
positions: ``partial`` names them, and training adds them up.

Paper  Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
       arXiv 2205.05198, 2022, section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import fx, nn

from workbench.common.errors import SpecError
from workbench.training.tensor_parallel.cut import shape
from workbench.training.tensor_parallel.plan import Copied, Plan
from workbench.training.tensor_parallel.rules import ELEMENTWISE, ELEMENTWISE_MODULES

DIM = 1  # of (batch, time, channels)


@dataclass(frozen=True)
class Tokens:
    """The changes of a plan. A value comes with its users and the name of the collective."""

    rows: frozenset[str]  # layers that leave each rank its positions
    parts: tuple[Copied, ...]  # whole values of which a rank takes its positions
    gathers: tuple[Copied, ...]  # for layers whose gradients are summands
    wholes: tuple[Copied, ...]  # gathered for what every rank computes alike
    partial: tuple[str, ...]  # parameters whose gradients are summands


def by_tokens(plan: Plan) -> tuple[Plan, Tokens]:
    """Return the plan with the sequence split between its split layers.

    Raises SpecError where no value of (batch, time, channels) lies between any.
    """
    modules: dict[str, Any] = dict(plan.traced.model.named_modules())
    rows = {one.name for one in plan.layers if one.how == "row"}
    split: dict[fx.Node, list[fx.Node]] = {}  # values split by position: what else goes into them
    for node in plan.traced.graph.nodes:
        if node.op == "call_module" and node.target in rows:
            if len(shape(node)) == 3:
                split[node] = []
        elif node not in plan.apart and _keeps(node, split, modules):
            split[node] = [one for one in node.all_input_nodes if one not in split]
    for node in [one for one in split if one.target in rows]:
        if not any(user in split for user in node.users):  # needed whole at once
            del split[node]
    if not split:
        raise SpecError.at(
            "options.sequence_parallel",
            "the model has nothing of (batch, time, channels) between its split layers; leave it "
            "out",
            True,
        ).within("Experiment")
    return _changed(plan, split, modules, rows)


def _keeps(node: fx.Node, split: Mapping[fx.Node, Any], modules: Mapping[str, Any]) -> bool:
    """Return whether this operation treats positions independently, with one value split by
    position.
    """
    values = [one for one in node.all_input_nodes if "shape" in one.meta]
    length = next((shape(one)[DIM] for one in values if one in split), None)
    if length is None or len(node.meta.get("shape", ())) != 3:
        return False
    if not all(one in split or _is_part(one, length) or _is_alike(one) for one in values):
        return False
    if node.op != "call_module":
        return node.target in ELEMENTWISE
    module = modules[str(node.target)]
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return len(module.normalized_shape) == 1
    kept = isinstance(module, nn.Dropout) and not module.p
    return kept or isinstance(module, ELEMENTWISE_MODULES)


def _is_part(value: fx.Node, length: int) -> bool:
    """Return whether a rank can take its positions of this whole value."""
    return len(shape(value)) == 3 and shape(value)[DIM] == length > 1


def _is_alike(value: fx.Node) -> bool:
    """Return whether the value is the same for every position."""
    return len(shape(value)) < 2 or shape(value)[-2] == 1


def _changed(
    plan: Plan,
    split: Mapping[fx.Node, list[fx.Node]],
    modules: Mapping[str, Any],
    rows: Collection[str],
) -> tuple[Plan, Tokens]:
    copies = [copy for copy in plan.copies if copy[0] not in split]
    gathers = [copy for copy in plan.copies if copy[0] in split]
    gather_uses = {(value, user) for value, users, _ in gathers for user in users}
    parts: list[Copied] = []
    wholes: list[Copied] = []
    partial: list[str] = []
    for node, others in split.items():
        name = plan.traced.layers[plan.traced.layer_of[node.name]].name
        if node.op == "call_module":
            parameters = dict(modules[str(node.target)].named_parameters())
            kept = [each for each in parameters if node.target not in rows or each == "bias"]
            partial += (f"{node.target}.{each}" for each in kept)
        for one in others:
            if "shape" not in one.meta:
                continue
            if not _is_alike(one):
                parts.append((one, (node,), name))
            elif one.meta["grad"]:
                copies.append((one, (node,), name))
        apart = [one for one in node.users if one not in split and (node, one) not in gather_uses]
        if apart:
            wholes.append((node, tuple(apart), name))
    scattered = frozenset(str(node.target) for node in split if node.target in rows)
    tokens = Tokens(scattered, tuple(parts), tuple(gathers), tuple(wholes), tuple(partial))
    return replace(plan, copies=tuple(copies)), tokens
