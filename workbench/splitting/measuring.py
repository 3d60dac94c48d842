"""Measuring what each layer of a model costs: seconds, parameters, activations, values.

Each layer runs alone on the values that the one before it gave, forward and backward, several
times; the fastest counts. A pass before notes what autograd keeps for the backward, each storage
once: a tensor that two layers keep takes its memory once where both are in one stage, and twice
where a cut parts them. What was measured is independent of the model and can be told to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from workbench.splitting.profiled import Kept, LayerCost, Profile, Value
from workbench.splitting.sliced import piece
from workbench.splitting.traced import Traced


def measure(
    traced: Traced,
    args: tuple[Any, ...],
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    repeats: int = 7,
    budget_s: float = 2.0,
) -> Profile:
    """Run ``traced`` layer by layer on ``args``, one microbatch's arguments of the model.

    ``loss``: of what the model gives; its cost is the last layer's. The layers run in turn, up to
    ``repeats`` times, at least twice; fewer where that would take longer than about ``budget_s``.
    Parameters, their gradients, buffers and random numbers stay as they were.
    """
    known: dict[str, Any] = dict(zip(traced.inputs, args, strict=True))
    named = dict(traced.model.named_parameters(remove_duplicate=False))
    storages = Storages(traced.model, args)
    counted: set[int] = set()
    pieces, costs = list[_Piece](), list[LayerCost]()
    with _unchanged(traced.model, args):
        for i, layer in enumerate(traced.layers):
            reads, gives = _reads(traced, i), _gives(traced, i)
            last = loss if i == len(traced.layers) - 1 else None
            pieces.append(_Piece(piece(traced, i, i, reads, gives), reads, last))
            given, answer, saved = _run(pieces[-1], traced, known)
            known_before = storages.count
            kept = storages.note(saved, [*_tensors(given), *_tensors(answer)], i)
            fresh = {k.storage: k.storage_nbytes for k in kept if k.storage >= known_before}
            if gives is not None:
                known.update(zip(gives, given, strict=True))
            parameters = {id(named[p]): named[p] for p in layer.parameters}
            costs.append(
                LayerCost(
                    layer.name,
                    layer.op,
                    sum(p.nbytes for key, p in parameters.items() if key not in counted),
                    sum(fresh.values()),
                    sum(v.nbytes for v in _tensors(given)),
                    0.0,
                    0.0,
                    kept,
                )
            )
            counted |= set(parameters)
        seconds = _times(pieces, traced, known, repeats, budget_s)
    timed = tuple(
        replace(cost, forward_s=forward, backward_s=backward)
        for cost, (forward, backward) in zip(costs, seconds, strict=True)
    )
    kinds = {name: _kind(value) for name, value in known.items()}
    return Profile(timed, tuple(_values(traced, known)), traced.refusals(kinds))


class _Piece(NamedTuple):
    """A layer as a module of its own; behind the last one, the loss."""

    module: nn.Module
    reads: tuple[str, ...]
    loss: Callable[[Any], torch.Tensor] | None

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        """What it gives, and what there is to differentiate."""
        given = self.module(*inputs)
        return given, given if self.loss is None else self.loss(given)


class Storages:
    """Numbers the storages that autograd keeps, and remembers which layer made each.

    What it has seen stays alive, so that no address is used twice.
    """

    def __init__(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        self._fixed = {_address(t) for t in (*model.parameters(), *model.buffers())}
        self._alive = [a for a in args if isinstance(a, torch.Tensor)]
        self._made = {_address(t): -1 for t in self._alive}
        self._numbers: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many were kept so far."""
        return len(self._numbers)

    def note(
        self, saved: list[torch.Tensor], given: list[torch.Tensor], layer: int
    ) -> tuple[Kept, ...]:
        """``saved`` by autograd while ``layer`` ran and gave ``given``; parameters left out."""
        self._alive += [*saved, *given]
        for tensor in (*saved, *given):
            self._made.setdefault(_address(tensor), layer)
        kept = []
        for tensor in saved:
            address = _address(tensor)
            if address not in self._fixed:
                number = self._numbers.setdefault(address, len(self._numbers))
                whole = tensor.untyped_storage().nbytes()
                start, made = int(tensor.storage_offset()), self._made[address]
                kept.append(Kept(number, start, tensor.nbytes, whole, made))
        return tuple(dict.fromkeys(kept))


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _reads(traced: Traced, i: int) -> tuple[str, ...]:
    """The values that layer ``i`` takes from outside of it."""
    own = traced.layers[i].nodes
    nodes = [traced.nodes[name] for name in own]
    if i == len(traced.layers) - 1:
        nodes += traced.graph.find_nodes(op="output")
    read = (given.name for node in nodes for given in node.all_input_nodes)
    return tuple(
        dict.fromkeys(name for name in read if name in traced.layer_of and name not in own)
    )


def _gives(traced: Traced, i: int) -> tuple[str, ...] | None:
    """The values of layer ``i`` that later ones use; None: it is the last."""
    if i == len(traced.layers) - 1:
        return None
    return tuple(name for name in traced.layers[i].nodes if traced.last_use[name] > i)


def _values(traced: Traced, known: dict[str, Any]) -> Iterator[Value]:
    """All that passes from layer to layer; what is no tensor has 0 bytes."""
    for name, value in known.items():
        users = {traced.layer_of.get(user.name) for user in traced.nodes[name].users}
        made = traced.layer_of[name]
        uses = tuple(sorted(place for place in users if place is not None and place > made))
        tensor = isinstance(value, torch.Tensor)
        nbytes = value.nbytes if tensor else 0
        yield Value(name, made, uses, nbytes, tensor and value.requires_grad)


def _inputs(traced: Traced, reads: Sequence[str], known: dict[str, Any]) -> list[Any]:
    """The layer's inputs as a stage receives them: cut off from what made them."""
    inputs = []
    for name in reads:
        value = known[name]
        if isinstance(value, torch.Tensor):
            fresh = value.detach().requires_grad_(value.requires_grad)
            # What is about to be changed in place must be neither a leaf nor the kept value.
            value = fresh.clone() if name in traced.writers else fresh
        inputs.append(value)
    return inputs


def _run(
    layer: _Piece, traced: Traced, known: dict[str, Any]
) -> tuple[Any, Any, list[torch.Tensor]]:
    """What the layer gives and answers, and what autograd saves of it for the backward."""
    saved: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        given, answer = layer(_inputs(traced, layer.reads, known))
    return given, answer, saved


def _times(
    pieces: Sequence[_Piece], traced: Traced, known: dict[str, Any], repeats: int, budget_s: float
) -> list[tuple[float, float]]:
    """Seconds of each layer's fastest forward and backward: whatever else runs on the cores only
    adds to it. In rounds over all layers, so that what holds up the machine for a moment holds up a
    layer once. The first round warms up and does not count.
    """
    rounds: list[list[tuple[float, float]]] = []
    began = time.perf_counter()
    while len(rounds) < 3 or (len(rounds) <= repeats and time.perf_counter() - began < budget_s):
        rounds.append([_time(one, traced, known) for one in pieces])
    return [
        (min(forward for forward, _ in each), min(backward for _, backward in each))
        for each in zip(*rounds[1:], strict=True)
    ]


def _time(layer: _Piece, traced: Traced, known: dict[str, Any]) -> tuple[float, float]:
    parameters = [p for p in layer.module.parameters() if p.requires_grad]
    inputs = _inputs(traced, layer.reads, known)
    wanted = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    start = _now(inputs)
    _, answer = layer(inputs)
    middle = _now(inputs)
    outputs = [v for v in _tensors(answer) if v.requires_grad]
    ones = [torch.ones_like(v) for v in outputs]
    before = _now(inputs)
    if outputs and (wanted or parameters):
        torch.autograd.grad(outputs, [*wanted, *parameters], ones, allow_unused=True)
    return middle - start, _now(inputs) - before


def _now(inputs: list[Any]) -> float:
    """The time when all that was asked of the inputs' device is done."""
    if any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs):
        torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def _unchanged(model: nn.Module, args: tuple[Any, ...]) -> Iterator[None]:
    """Buffers (running means) and random numbers are afterwards what they were before."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = {t.device for t in (*model.parameters(), *_tensors(args)) if t.is_cuda}
    with torch.random.fork_rng(list(devices)), torch.enable_grad():
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors that tuples, lists and dicts hold."""
    leaves: list[Any] = []
    fx.node.map_aggregate(value, leaves.append)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
