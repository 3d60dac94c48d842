"""Measures the cost of each layer of a model: seconds, parameters, activations, values.

Each layer runs alone on the outputs of the layers before it, forward and backward, several times;
the fastest run counts. An earlier pass lists the storages that autograd keeps for the backward. A
tensor kept by two layers takes its memory once where both are in one stage, and twice where a cut
separates them. A profile is independent of the model, so it can be sent to other ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from workbench.recording.run_queue import busiest, thread_times
from workbench.training.splitting.profiled import Kept, LayerCost, Profile, Value
from workbench.training.splitting.sliced import piece
from workbench.training.splitting.traced import Traced


def measure(
    traced: Traced,
    args: tuple[Any, ...],
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    repeats: int = 7,
    budget_s: float = 2.0,
) -> Profile:
    """Run ``traced`` layer by layer on ``args``, the model's arguments for one microbatch.

    ``loss``: of the model's output; its cost belongs to the last layer. The layers run in rounds,
    at least two, up to ``repeats``; fewer where they would take longer than about ``budget_s``.
    Parameters, their gradients, buffers and random numbers keep their values.
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
            output, answer, saved = _run(pieces[-1], traced, known)
            known_before = storages.count
            kept = storages.note(saved, [*_tensors(output), *_tensors(answer)], i)
            fresh = {k.storage: k.storage_nbytes for k in kept if k.storage >= known_before}
            if gives is not None:
                known.update(zip(gives, output, strict=True))
            parameters = {id(named[p]): named[p] for p in layer.parameters}
            costs.append(
                LayerCost(
                    layer.name,
                    layer.op,
                    sum(p.nbytes for key, p in parameters.items() if key not in counted),
                    sum(fresh.values()),
                    sum(v.nbytes for v in _tensors(output)),
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
    """A layer as a module of its own; for the last layer, with the loss."""

    module: nn.Module
    reads: tuple[str, ...]
    loss: Callable[[Any], torch.Tensor] | None

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        """Return the layer's output, and the tensors to differentiate."""
        output = self.module(*inputs)
        return output, output if self.loss is None else self.loss(output)


class Storages:
    """Numbers the storages that autograd keeps, and remembers which layer made each.

    It keeps every noted tensor alive, so that no address is used twice.
    """

    def __init__(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        self._fixed = {_address(t) for t in (*model.parameters(), *model.buffers())}
        self._alive = [a for a in args if isinstance(a, torch.Tensor)]
        self._maker_of = {_address(t): -1 for t in self._alive}
        self._numbers: dict[int, int] = {}

    @property
    def count(self) -> int:
        """The number of storages so far."""
        return len(self._numbers)

    def note(
        self, saved: list[torch.Tensor], outputs: list[torch.Tensor], layer: int
    ) -> tuple[Kept, ...]:
        """Return the ``saved`` tensors of autograd for ``layer`` with these ``outputs``, without
        parameters.
        """
        self._alive += [*saved, *outputs]
        for tensor in (*saved, *outputs):
            self._maker_of.setdefault(_address(tensor), layer)
        kept = []
        for tensor in saved:
            address = _address(tensor)
            if address not in self._fixed:
                number = self._numbers.setdefault(address, len(self._numbers))
                whole = tensor.untyped_storage().nbytes()
                start, result = int(tensor.storage_offset()), self._maker_of[address]
                kept.append(Kept(number, start, tensor.nbytes, whole, result))
        return tuple(dict.fromkeys(kept))


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _reads(traced: Traced, i: int) -> tuple[str, ...]:
    """Return the values that layer ``i`` receives from other layers."""
    nodes_of_layer = traced.layers[i].nodes
    nodes = [traced.nodes[name] for name in nodes_of_layer]
    if i == len(traced.layers) - 1:
        nodes += traced.graph.find_nodes(op="output")
    read = (value.name for node in nodes for value in node.all_input_nodes)
    return tuple(
        dict.fromkeys(
            name for name in read if name in traced.layer_of and name not in nodes_of_layer
        )
    )


def _gives(traced: Traced, i: int) -> tuple[str, ...] | None:
    """Return the values of layer ``i`` that later layers use; None for the last layer."""
    if i == len(traced.layers) - 1:
        return None
    return tuple(name for name in traced.layers[i].nodes if traced.last_use[name] > i)


def _values(traced: Traced, known: dict[str, Any]) -> Iterator[Value]:
    """Yield all values that pass between layers; those that are not tensors have 0 bytes."""
    for name, value in known.items():
        users = {traced.layer_of.get(user.name) for user in traced.nodes[name].users}
        result = traced.layer_of[name]
        uses = tuple(sorted(place for place in users if place is not None and place > result))
        tensor = isinstance(value, torch.Tensor)
        nbytes = value.nbytes if tensor else 0
        yield Value(name, result, uses, nbytes, tensor and value.requires_grad)


def _inputs(traced: Traced, reads: Sequence[str], known: dict[str, Any]) -> list[Any]:
    """Return the layer's inputs as a stage receives them: detached from their graph."""
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
    """Return the layer's output, the tensors to differentiate, and those that autograd saves."""
    saved: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output, answer = layer(_inputs(traced, layer.reads, known))
    return output, answer, saved


def _times(
    pieces: Sequence[_Piece], traced: Traced, known: dict[str, Any], repeats: int, budget_s: float
) -> list[tuple[float, float]]:
    """Return the seconds of each layer's fastest forward and backward.

    The minimum, since other load on the cores only adds time. The layers run in rounds, so that a
    short disturbance affects a layer once. The first round is a warm-up and does not count. The
    budget is processor time: a busy machine makes as many rounds as an idle one.
    """
    rounds: list[list[tuple[float, float]]] = []
    began = time.thread_time()
    while len(rounds) < 3 or (len(rounds) <= repeats and time.thread_time() - began < budget_s):
        rounds.append([_time(one, traced, known) for one in pieces])
    return [
        (min(forward for forward, _ in each), min(backward for _, backward in each))
        for each in zip(*rounds[1:], strict=True)
    ]


def _time(layer: _Piece, traced: Traced, known: dict[str, Any]) -> tuple[float, float]:
    parameters = [p for p in layer.module.parameters() if p.requires_grad]
    inputs = _inputs(traced, layer.reads, known)
    inputs_with_grad = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    with _timed(inputs) as forward:
        _, answer = layer(inputs)
    outputs = [v for v in _tensors(answer) if v.requires_grad]
    ones = [torch.ones_like(v) for v in outputs]
    with _timed(inputs) as backward:
        if outputs and (inputs_with_grad or parameters):
            torch.autograd.grad(outputs, [*inputs_with_grad, *parameters], ones, allow_unused=True)
    return forward[0], backward[0]


@contextmanager
def _timed(inputs: list[Any]) -> Iterator[list[float]]:
    """Append the seconds of the block to the yielded list, including the work of the inputs'
    device.

    Time in which the thread waited for a core does not count.
    """
    took: list[float] = []
    before = thread_times(os.getpid())
    start, cpu_start = _now(inputs), time.thread_time()
    yield took
    seconds, cpu_start = _now(inputs) - start, time.thread_time() - cpu_start
    waited = busiest(before, thread_times(os.getpid()), 0)[1] * 1e-9
    took.append(max(cpu_start, seconds - waited))


def _now(inputs: list[Any]) -> float:
    """Return the time after all work of the inputs' device is done."""
    if any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs):
        torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def _unchanged(model: nn.Module, args: tuple[Any, ...]) -> Iterator[None]:
    """Restore buffers (running means) and random numbers afterwards."""
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
    """Return the tensors in nested tuples, lists and dicts."""
    leaves: list[Any] = []
    fx.node.map_aggregate(value, leaves.append)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
