"""A backward pass in two halves: the gradients of the inputs (I), then those of the weights (W).

I runs from the outputs to the inputs and keeps the gradients that arrive at each *fork*: a node on
the way to an input that has a branch to a weight. W follows the branches later, when no rank waits.

    output -> n2 -> n1 -> input        n1, n2 are forks: a layer's product, for example
              |     |
              w2    w1

A weight that is used twice has two forks, one behind the other. From n2 to the weight W also passes
n1, whose gradient is complete since I; so there W uses what I kept, and nothing counts twice.
(torch's own halves, in torch.distributed.pipelining, count it twice before 2.13.)

Paper  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241).
Cost   of I and W together, a backward; and where a weight is used again, once more the inputs'
       gradients between its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Grads = Sequence[torch.Tensor | None]


@dataclass
class Branches:
    """Forks that share weights, and the gradients that arrived at them, by output of the node."""

    forks: list[Node] = field(default_factory=list)
    weights: list[torch.Tensor] = field(default_factory=list)
    grads: dict[Node, Grads] = field(default_factory=dict)


def input_gradients(
    ends: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
) -> list[Branches]:
    """Compute I: add to each input's ``grad``. Returns what ``weight_gradients`` goes on with.

    ``ends``: outputs that need a gradient, which are detached; ``grads``: theirs, none for a loss.
    """
    sent = [*grads] if grads else [torch.ones_like(end) for end in ends]
    edges = [get_gradient_edge(end) for end in ends]
    result, apart = _branches([one.node for one in edges], inputs, weights)
    each = [(fork, branches) for branches in result for fork in branches.forks]
    handles = [fork.register_prehook(_keeper(branches.grads, fork)) for fork, branches in each]
    try:
        gradients = torch.autograd.grad(ends, inputs, sent, retain_graph=True, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    for one, grad in zip(inputs, gradients, strict=True):
        _add(one, grad)
    for branches in apart:  # of ends that no input leads to: nothing was computed there
        for edge, grad in zip(edges, sent, strict=True):
            if edge.node in branches.forks:
                branches.grads[edge.node] = _at(edge, grad, branches.grads.get(edge.node))
    for end in ends:
        end.detach_()  # what is above the forks is needed no more
    return [*result, *apart]


def weight_gradients(each: list[Branches]) -> None:
    """Compute W: add to each weight's ``grad``, and forget ``each``."""
    again = any(len(branches.forks) > 1 for branches in each)  # nodes may be passed repeatedly
    while each:
        branches = each.pop()
        edges, grads = [], []
        for fork, kept in branches.grads.items():
            known = [(at, grad) for at, grad in enumerate(kept) if grad is not None]
            edges += [GradientEdge(fork, at) for at, _ in known]
            grads += [grad for _, grad in known]
        if not edges:
            continue
        handles = [
            fork.register_prehook(lambda _, kept=kept: tuple(kept))
            for fork, kept in branches.grads.items()
            if len(branches.forks) > 1
        ]
        try:
            gradients = torch.autograd.grad(
                edges,
                branches.weights,
                grads,
                retain_graph=again and bool(each),
                allow_unused=True,
            )
        finally:
            for handle in handles:
                handle.remove()
        for weight, grad in zip(branches.weights, gradients, strict=True):
            _add(weight, grad)


def _keeper(grads: dict[Node, Grads], fork: Node) -> Callable[[Grads], None]:
    def keep(arrived: Grads) -> None:
        grads[fork] = arrived

    return keep


def _add(tensor: torch.Tensor, grad: torch.Tensor | None) -> None:
    if grad is not None:
        tensor.grad = grad if tensor.grad is None else tensor.grad.add_(grad)


def _at(edge: GradientEdge, grad: torch.Tensor, before: Grads | None) -> Grads:
    """Return the gradients of a node's outputs, with ``grad`` added to the edge's."""
    result = [*(before or ())]
    result += [None] * (edge.output_nr + 1 - len(result))
    there = result[edge.output_nr]
    result[edge.output_nr] = grad if there is None else there + grad
    return result


def _branches(
    roots: Sequence[Node], inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> tuple[list[Branches], list[Branches]]:
    """Return the forks by the weights that they share; and the same of roots that lead to weights
    alone.
    """
    of_input = {get_gradient_edge(one).node for one in inputs}
    of_weight = {get_gradient_edge(one).node: one for one in weights}
    to_input: dict[Node, bool] = {}
    leads_to: dict[Node, frozenset[Node]] = {}  # weights, on ways that lead to no input
    forks: list[tuple[Node, frozenset[Node]]] = []
    for node in _upwards(roots):
        nexts = _nexts(node)
        to_input[node] = node in of_input or any(to_input[one] for one in nexts)
        beside = frozenset().union(*(leads_to[one] for one in nexts if not to_input[one]))
        leads_to[node] = frozenset() if to_input[node] else beside | ({node} & of_weight.keys())
        if to_input[node] and beside:
            forks.append((node, beside))
    alone = [(node, leads_to[node]) for node in dict.fromkeys(roots) if leads_to[node]]
    return _shared(forks, of_weight), _shared(alone, of_weight)


def _shared(
    forks: Sequence[tuple[Node, frozenset[Node]]], of_weight: dict[Node, torch.Tensor]
) -> list[Branches]:
    """Join the forks that share a weight."""
    joined: list[tuple[list[Node], set[Node]]] = []
    for fork, reached in forks:
        nodes, leaves = [fork], {*reached}
        for one in [one for one in joined if one[1] & leaves]:
            joined.remove(one)
            nodes, leaves = one[0] + nodes, one[1] | leaves
        joined.append((nodes, leaves))
    return [Branches(nodes, [of_weight[one] for one in leaves]) for nodes, leaves in joined]


def _nexts(node: Node) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]


def _upwards(roots: Sequence[Node]) -> Iterator[Node]:
    """Yield each node once, after all that it leads to."""
    done: set[Node] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, below = stack.pop()
        if node in done:
            continue
        if below:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(one, False) for one in _nexts(node) if one not in done]
