"""Bytes that a rank holds, by formula: at rest, and at every moment of an iteration.

Ψ parameters of e bytes, k numbers of the optimizer's state for each, N ranks. At rest:

    level                       parameters   gradients    optimizer state
    0  every rank holds all     e Ψ          e Ψ          k e Ψ
    1  ZeRO 1                   e Ψ          e Ψ          k e Ψ / N
    2  ZeRO 2                   e Ψ          e Ψ / N      k e Ψ / N
    3  FSDP                     e Ψ / N      e Ψ / N      k e Ψ / N

In bfloat16 (e = 2) state and a master copy of the weights are float32: 12 bytes a parameter with
Adam. Worked: Ψ = 1,000, N = 4, float32 and Adam (k = 2): 16,000, 10,000, 7,000 and 4,000 bytes.

In an iteration activations come and go: forward, each layer adds what it keeps; backward, the last
layer first, they go as gradients come. At level 2 a layer's gradient is whole until it is reduced,
and that is while the next one's comes into being: two layers at the most. Level 3 is
sharded_memory.py.

Papers  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020, section 3 and figure 1; Korthikanti et al., "Reducing Activation Recomputation in
        Large Transformer Models", MLSys 2023, for activations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

PARAMETERS, MASTERS, GRADIENTS = "parameters", "master weights", "gradients"
UNREDUCED, OPTIMIZER = "unreduced gradients", "optimizer state"
ACTIVATIONS, BUFFERS = "activations", "communication buffers"


@dataclass(frozen=True)
class Precision:
    """Bytes of one number of each kind."""

    parameter: float = 4
    state: float = 4
    master: float = 0  # of a copy of the parameters, which the optimizer updates


PRECISIONS = {
    "float32": Precision(4, 4),
    "float64": Precision(8, 8),
    "bfloat16": Precision(2, 4, 4),
}


def at_rest(
    parameters: float, ranks: int, level: int, *, states: int, precision: Precision
) -> dict[str, float]:
    """Return the bytes of each kind that each of ``ranks`` holds between two iterations, where
    ``parameters`` divide evenly. ``states``: numbers of the optimizer for each parameter.
    """
    share = {kind: ranks if level >= one else 1 for kind, one in _DIVIDED.items()}
    each = {
        PARAMETERS: precision.parameter,
        GRADIENTS: precision.parameter,
        OPTIMIZER: states * precision.state,
        MASTERS: precision.master,
    }
    held = {kind: parameters * nbytes / share[kind] for kind, nbytes in each.items()}
    return {kind: nbytes for kind, nbytes in held.items() if nbytes}


_DIVIDED = {OPTIMIZER: 1, MASTERS: 1, GRADIENTS: 2, PARAMETERS: 3}  # from which level on


# -- an iteration, moment by moment


@dataclass(frozen=True)
class Rule:
    """The way in which a strategy holds a model, as its file says it (``holds``)."""

    level: int = 0  # what is divided: 0 nothing, 1 the state, 2 gradients too, 3 parameters too
    units: str = "layers"  # what is reduced at once, from level 1 on: a layer, or the "whole" model
    accumulate: int = 1  # backward passes per update
    buckets: bool = False  # does a copy of all gradients lie in the buckets that are sent?
    free: bool = True  # of level 3: is a layer freed after its forward?


@dataclass(frozen=True)
class Step:
    """One operation of a forward pass, or a layer's beginning, which keeps nothing."""

    layer: str
    kept: tuple[tuple[int, int], ...]  # for the backward pass: storages, each with its bytes
    parameters: tuple[str, ...]  # those whose gradient is complete after this step's backward
    inside: bool = True  # of the model, not of the loss


@dataclass(frozen=True)
class Unit:
    """Parameters that are reduced at once."""

    name: str
    parameters: Mapping[str, int]  # bytes by name
    itemsize: int

    def padded(self, ranks: int) -> int:
        """Return the bytes of all of them, with what is added so that all parts are of one size."""
        return self._share(ranks) * ranks * self.itemsize

    def part(self, rank: int, ranks: int) -> int:
        """Return the bytes that this rank updates."""
        share, elements = self._share(ranks), sum(self.parameters.values()) // self.itemsize
        return self.itemsize * max(0, min(share, elements - rank * share))

    def _share(self, ranks: int) -> int:
        return -(-(sum(self.parameters.values()) // self.itemsize) // ranks)


@dataclass(frozen=True)
class Moment:
    """The bytes of each kind at one moment, and what has happened."""

    doing: str  # "forward", "backward", ...
    layer: str
    added: str  # the kind that has grown; "" for none
    held: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.held.values())


@dataclass
class Rank:
    """A rank that goes through iterations in theory. ``states``: numbers of the optimizer for each
    parameter; ``frozen``: bytes of parameters that are not trained.
    """

    rule: Rule
    units: Sequence[Unit]
    rank: int
    ranks: int
    states: int
    frozen: int = 0
    held: Counter[str] = field(default_factory=Counter)
    _arrived: set[str] = field(default_factory=set)  # names of parameters with a gradient

    def moments(self, passes: Sequence[Sequence[Step]]) -> Iterator[Moment]:
        """Yield the moments of two iterations, the first one without optimizer state until its end.
        ``passes``: the steps of each forward and backward pass of an iteration.
        """
        level = self.rule.level
        all_bytes = sum(sum(unit.parameters.values()) for unit in self.units)
        padded = sum(unit.padded(self.ranks) for unit in self.units)
        part = sum(unit.part(self.rank, self.ranks) for unit in self.units)
        yield self._grown("start", "", PARAMETERS, padded if level else all_bytes + self.frozen)
        if self.rule.buckets:
            yield self._grown("start", "", BUFFERS, all_bytes)
        for _ in range(2):
            if level:  # zeroed, and kept
                yield self._grown("forward", "", GRADIENTS, part)
            if level == 1:
                yield self._grown("forward", "", UNREDUCED, padded - part)
            for steps in passes:
                yield from self._forward(steps)
                yield from self._backward(steps)
            yield self._grown("update", "", OPTIMIZER, self.states * (part if level else all_bytes))
            if not level:
                self.held[GRADIENTS] = 0
                self._arrived.clear()

    def _grown(self, doing: str, layer: str, kind: str, nbytes: int) -> Moment:
        self.held[kind] = nbytes
        return Moment(doing, layer, kind, dict(self.held))

    def _forward(self, steps: Iterable[Step]) -> Iterator[Moment]:
        known = set[int]()
        for step in steps:
            fresh = {one: nbytes for one, nbytes in step.kept if one not in known}
            known |= set(fresh)
            nbytes = self.held[ACTIVATIONS] + sum(fresh.values())
            yield self._grown("forward", step.layer, ACTIVATIONS, nbytes)

    def _backward(self, steps: Sequence[Step]) -> Iterator[Moment]:
        uses = Counter(one for step in steps for one, _ in step.kept)
        whole = _Whole(self.units, self.ranks)
        for step in reversed(steps):
            for one, nbytes in step.kept:
                uses[one] -= 1
                if not uses[one]:
                    self.held[ACTIVATIONS] -= nbytes
            for name in step.parameters:
                yield from self._arrive(name, step.layer, whole)
        if self.rule.level == 2:
            for unit in whole.left():  # with parameters that were not used
                whole.hold(unit)
                yield self._grown("backward", unit.name, UNREDUCED, whole.nbytes)
                whole.reduce()
            self.held[UNREDUCED] = 0

    def _arrive(self, name: str, layer: str, whole: _Whole) -> Iterator[Moment]:
        """Go through the arrival of a parameter's gradient."""
        unit = whole.unit_of[name]
        if self.rule.level == 2:
            whole.hold(unit)
            yield self._grown("backward", layer, UNREDUCED, whole.nbytes)
            whole.complete(unit)
            self.held[UNREDUCED] = whole.nbytes
        elif not self.rule.level and name not in self._arrived:
            self._arrived.add(name)
            nbytes = self.held[GRADIENTS] + unit.parameters[name]
            yield self._grown("backward", layer, GRADIENTS, nbytes)


class _Whole:
    """Whole gradients in a backward pass of level 2: the last unit is reduced first, and dropped as
    the next one is.
    """

    def __init__(self, units: Sequence[Unit], ranks: int) -> None:
        self.unit_of = {name: unit for unit in units for name in unit.parameters}
        self._missing = {unit.name: len(unit.parameters) for unit in units}
        self._following, self._ranks = [*units], ranks
        self._held: dict[str, int] = {}
        self._reducing = ""  # the unit that is being reduced

    @property
    def nbytes(self) -> int:
        return sum(self._held.values())

    def hold(self, unit: Unit) -> None:
        self._held[unit.name] = unit.padded(self._ranks)

    def complete(self, unit: Unit) -> None:
        """Note one more gradient of this unit; reduce those that have all."""
        self._missing[unit.name] -= 1
        while self._following and not self._missing[self._following[-1].name]:
            self.reduce()

    def left(self) -> Iterator[Unit]:
        """Yield the units that are still to be reduced, each reduced before the next."""
        while self._following:
            yield self._following[-1]

    def reduce(self) -> None:
        """Reduce the next unit, after the one that is being reduced."""
        self._held.pop(self._reducing, None)
        self._reducing = self._following.pop().name
