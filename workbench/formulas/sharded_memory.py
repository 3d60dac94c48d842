"""Bytes that a rank of fully sharded training holds, at every moment of an iteration.

Each parameter is divided over N ranks by its first dimension, filled up so that all parts are of
one size. Beside its parts, a rank holds while it computes with a layer of n bytes, filled up:

    gathered        n, and n again as they came, in a buffer; in forward the buffer is freed as the
                    next layer's has been copied, so that n of the last layer is there too
    backward        n gathered; the layer's whole gradients, until they are in a buffer of n; and
                    n / N, in which their sum arrives. The buffer goes as the next layer's comes

What arrives is the gradient: n / N of each layer that has been reduced. A layer whose input needs
no gradient, as the first, is reduced at the end of the backward pass.

Worked: one layer of Ψ = 1,000 float32 parameters that divide by N = 4, with Adam: 4,000 B between
two iterations, and 12,000 B beside activations while its gradient is reduced: parameters 1,000,
state 2,000, gradient 4,000 whole, 4,000 in the buffer and 1,000 arriving.

Papers  Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.formulas.by_rows import ByRows
from workbench.formulas.memory import (
    ACTIVATIONS,
    BUFFERS,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    UNREDUCED,
    Moment,
    Rule,
    Step,
)

GATHERED = "gathered parameters"


@dataclass(frozen=True)
class Layer:
    """Parameters that are gathered at once."""

    name: str
    parameters: Mapping[str, ByRows]  # by name
    root: bool  # the model's own, which is gathered for all of its forward pass

    def part(self, rank: int, ranks: int) -> int:
        return sum(one.part(rank, ranks) for one in self.parameters.values())

    def padded(self, ranks: int) -> int:
        return sum(one.padded(ranks) for one in self.parameters.values())


@dataclass
class ShardedRank:
    """A rank that goes through iterations in theory.

    ``layers``: as the model names them, its own parameters last; ``states``: numbers of the
    optimizer for each parameter; ``measures``: for each iteration, whether one more forward pass
    measures it; ``validates``: whether there is one at the end.
    """

    rule: Rule
    layers: Sequence[Layer]
    rank: int
    ranks: int
    states: int
    measures: Sequence[bool]
    validates: bool
    held: Counter[str] = field(default_factory=Counter)
    _pending: dict[str, int] = field(default_factory=dict)  # buffers of gathers, by layer
    _gathered: dict[str, int] = field(default_factory=dict)  # bytes by layer
    _last: int = 0  # the buffer of forward's last gather
    _input: int = 0  # the buffer of the last whole gradient
    _arrived: int = 0  # the buffers in which gradients arrive

    def moments(self, passes: Sequence[Sequence[Step]]) -> Iterator[Moment]:
        """Yield the moments of iterations, the first one without optimizer state until its end, and
        of what comes after them. ``passes``: the steps of the forward and backward pass.
        """
        (steps,) = passes
        reduced = {name for step in steps for name in step.parameters}
        parts = [one.part(self.rank, self.ranks) for one in self.layers]
        gradients = sum(
            one.part(self.rank, self.ranks)
            for layer in self.layers
            for name, one in layer.parameters.items()
            if name in reduced
        )
        yield self._set("start", "", PARAMETERS, sum(parts))
        for measured in self.measures:
            self.held[GRADIENTS] = 0
            yield from self._forward(steps)
            if measured:
                yield from self._forward(steps, keeps=False)
            yield from self._backward(steps, reduced)
            self.held[BUFFERS] -= self._arrived  # they are the gradients
            self._arrived = 0
            yield self._set("backward", "", GRADIENTS, gradients)
            yield self._set("update", "", OPTIMIZER, self.states * gradients)
        for layer in self.layers:  # the outcome is put together
            yield from self._gather(layer, "end")
            yield from self._receive(layer, "end")
            self._free(layer)
        if self.validates:
            yield from self._forward(steps, doing="end", keeps=False)

    def _set(self, doing: str, layer: str, kind: str, nbytes: int) -> Moment:
        self.held[kind] = nbytes
        return Moment(doing, layer, kind, dict(self.held))

    def _add(self, doing: str, layer: str, kind: str, nbytes: int) -> Moment:
        return self._set(doing, layer, kind, self.held[kind] + nbytes)

    # -- layers come and go

    def _gather(self, layer: Layer, doing: str) -> Iterator[Moment]:
        """Begin to gather a layer that is not here."""
        if layer.name in self._gathered:
            return
        self._pending[layer.name] = layer.padded(self.ranks) if self.ranks > 1 else 0
        yield self._add(doing, layer.name, BUFFERS, self._pending[layer.name])

    def _receive(self, layer: Layer, doing: str, *, keeps: bool = False) -> Iterator[Moment]:
        """Copy a layer from its buffer, which lasts until the next one is copied if ``keeps``."""
        if layer.name not in self._pending:
            return
        self._gathered[layer.name] = layer.padded(self.ranks)
        yield self._set(doing, layer.name, GATHERED, sum(self._gathered.values()))
        freed = self._pending.pop(layer.name)
        if keeps:
            freed, self._last = self._last, freed
        self.held[BUFFERS] -= freed

    def _free(self, layer: Layer) -> None:
        self._gathered.pop(layer.name, None)
        self.held[GATHERED] = sum(self._gathered.values())

    # -- passes

    def _layer_of(self, step: Step) -> Layer | None:
        """Return the layer that is gathered for a step, the root aside."""
        named = (one for one in self.layers if not one.root and one.name == step.layer)
        return next(named, None) if step.inside else None

    @property
    def _root(self) -> Layer | None:
        return self.layers[-1] if self.layers[-1].root else None

    def _forward(
        self, steps: Sequence[Step], *, doing: str = "forward", keeps: bool = True
    ) -> Iterator[Moment]:
        """Go forward. ``keeps``: for a backward pass."""
        known, inside = set[int](), True
        here: Layer | None = None
        if self._root is not None:
            yield from self._enter(self._root, doing)
        for step in steps:
            if (layer := self._layer_of(step)) is not here:
                self._leave(here)
                here = layer
                if layer is not None:
                    yield from self._enter(layer, doing)
            if inside and not step.inside:  # the model is through: what follows is the loss
                inside = False
                self._leave(self._root)
                self.held[BUFFERS] -= self._last
                self._last = 0
            if keeps:
                fresh = {one: nbytes for one, nbytes in step.kept if one not in known}
                known |= set(fresh)
                yield self._add(doing, step.layer, ACTIVATIONS, sum(fresh.values()))

    def _enter(self, layer: Layer, doing: str) -> Iterator[Moment]:
        yield from self._gather(layer, doing)
        yield from self._receive(layer, doing, keeps=True)

    def _leave(self, layer: Layer | None) -> None:
        if layer is not None and self.rule.free:
            self._free(layer)

    def _backward(self, steps: Sequence[Step], reduced: set[str]) -> Iterator[Moment]:
        uses = Counter(one for step in steps for one, _ in step.kept)
        for what in self._backwards(steps):
            match what:
                case Step():
                    for one, nbytes in what.kept:
                        uses[one] -= 1
                        if not uses[one]:
                            self.held[ACTIVATIONS] -= nbytes
                case ("gather", layer):
                    yield from self._gather(layer, "backward")
                    yield from self._receive(layer, "backward")
                case (_, layer):
                    yield from self._reduce(layer, reduced)
        self.held[BUFFERS] -= self._input
        self._input = 0

    def _backwards(self, steps: Sequence[Step]) -> Iterator[Step | tuple[str, Layer]]:
        """Yield the steps, the last first, and in between the layers to "gather" and "reduce"."""
        of = [self._layer_of(step) for step in steps]
        first = {one.name: at for at, one in reversed([*enumerate(of)]) if one is not None}
        trained = next((at for at, step in enumerate(steps) if step.parameters), len(steps))
        left, root = sorted(self.layers, key=lambda one: not one.root), self._root
        here: Layer | None = None
        for at in reversed(range(len(steps))):
            step, layer = steps[at], of[at]
            # A layer of one step is entered, and computes nothing that has a gradient.
            if layer is not None and layer is not here and first[layer.name] < at:
                yield "gather", layer
            here = layer
            if step.inside and root is not None:
                yield "gather", root
                root = None
            yield step
            if layer is not None and trained < at == first[layer.name]:
                left.remove(layer)
                yield "reduce", layer
        for layer in left:  # those whose input needs no gradient
            yield "reduce", layer

    def _reduce(self, layer: Layer, reduced: set[str]) -> Iterator[Moment]:
        """Free a layer, and reduce its gradients."""
        parameters = [one for name, one in layer.parameters.items() if name in reduced]
        name, padded = layer.name, sum(one.padded(self.ranks) for one in parameters)
        yield self._set("backward", name, UNREDUCED, sum(one.total for one in parameters))
        self._free(layer)
        self.held[BUFFERS] -= self._input
        self._input = padded
        yield self._add("backward", name, BUFFERS, padded)
        self._arrived += padded // self.ranks
        yield self._add("backward", name, BUFFERS, padded // self.ranks)
        self.held[UNREDUCED] = 0
