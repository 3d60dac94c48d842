"""Forks in the graph of a model: layers that can be computed at the same time.

    input --> stem --+--> left  --+--> head --> loss        rank 0: stem, left, head
                     +--> right --+                         rank 1: right

A *side* is a set of layers without a way out of it and in again. The layers that neither lead to it
nor follow from it can be computed while it is: they are its *rival*. The best side is the one where
the shorter of the two takes longest, by measured seconds. Only what enters a side and what leaves
it is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.training.splitting.traced import Traced


@dataclass(frozen=True, eq=False)
class Fork:
    """A traced model and the numbers of the layers of a side."""

    traced: Traced
    side: frozenset[int]

    @cached_property
    def before(self) -> tuple[int, ...]:
        """The layers that lead to the side."""
        layers, ways = set[int](), sources(self.traced)
        for layer in reversed(range(len(ways))):
            if any(layer in ways[one] for one in (*self.side, *layers)) and layer not in self.side:
                layers.add(layer)
        return tuple(sorted(layers))

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """The layers that follow from the side."""
        layers = set[int]()
        for layer, ways in enumerate(sources(self.traced)):
            if layer not in self.side and (ways & self.side or ways & layers):
                layers.add(layer)
        return tuple(sorted(layers))

    @cached_property
    def rival(self) -> tuple[int, ...]:
        """The layers that can be computed at the same time as the side."""
        others = {*self.before, *self.behind, *self.side}
        return tuple(one for one in range(len(self.traced.layers)) if one not in others)

    def values(self, makers: Collection[int], users: Collection[int]) -> tuple[str, ...]:
        """Return the values that these layers (-1: the model's arguments) make and those use."""
        places = self.traced.layer_of
        return tuple(
            name
            for name, place in places.items()
            if place in makers
            and any(places.get(user.name) in users for user in self.traced.nodes[name].users)
        )

    def part(self, layers: Sequence[int]) -> Traced:
        """Return these layers alone, for ``sliced.piece``."""
        return replace(self.traced, layers=tuple(self.traced.layers[one] for one in layers))

    def refusal(self) -> str:
        """Return why this side cannot be; "" where it can."""
        names = [self.traced.names[one] for one in sorted(self.side)]
        if both := {*self.before} & {*self.behind}:
            between = listed(repr(self.traced.names[one]) for one in sorted(both))
            return f"what leaves {listed(map(repr, names))} comes back to it through {between}"
        if not self.rival:
            return f"nothing can be computed at the same time as {listed(map(repr, names))}"
        if not self.values(self.side, self.behind):
            return f"the model does not use what {listed(map(repr, names))} computes"
        outside = {*range(-1, len(self.traced.layers))} - self.side
        inside = self.values(outside, self.side) + self.values(self.side, outside)
        for name in inside:
            kind = self.traced.kinds.get(name, "tensor")
            if kind != "tensor":
                return f"{name!r} would have to be sent, and is a {kind}: only tensors are"
            if self.traced.writers.get(name):
                return f"{name!r} would have to be sent, and is changed in place"
        for parameter, users in self.traced.users.items():
            if {*users} & self.side and {*users} - self.side:
                return f"both sides use the parameter {parameter!r}"
        return ""


def sources(traced: Traced) -> list[frozenset[int]]:
    """Return for each layer the layers whose values it uses itself."""
    places, result = traced.layer_of, [set[int]() for _ in traced.layers]
    for name, place in places.items():
        for user in traced.nodes[name].users:
            at = places.get(user.name, place)
            if place >= 0 and at != place:
                result[at].add(place)
    return [frozenset(one) for one in result]


def find(traced: Traced, seconds: Sequence[float]) -> Fork:
    """Return the fork that saves most. ``seconds``: of each layer. Raises SpecError where the
    model's graph has none.
    """
    best, most = None, 0.0
    starts = [_branch(traced, one) for one in range(len(traced.layers))]
    while True:
        sides = {one | (best.side if best else frozenset()) for one in starts if one}
        saved = {
            fork: min(sum(seconds[i] for i in fork.side), sum(seconds[i] for i in fork.rival))
            for fork in (Fork(traced, side) for side in sorted(sides, key=sorted))
            if not fork.refusal()
        }
        fork = max(saved, key=lambda one: saved[one], default=None)
        if fork is None or saved[fork] <= most:
            break
        best, most = fork, saved[fork]
    if best is None:
        raise SpecError.at(
            "strategy",
            "computes two branches of a model at the same time, and each layer of this model "
            f"follows the one before: {listed(traced.names[:4])} ... Cut it into stages",
        )
    return best


def fork_of(traced: Traced, names: Sequence[str]) -> Fork:
    """Return the fork whose side are the layers of these modules. Raises SpecError."""
    side, unknown = set[int](), list[str]()
    for name in names:
        inside = [
            i for i, one in enumerate(traced.names) if one == name or one.startswith(f"{name}.")
        ]
        side |= {*inside}
        unknown += [] if inside else [name]
    fork = Fork(traced, frozenset(side))
    if unknown:
        raise SpecError.at("options.branch", f"no such layer: the model has {traced.names}", names)
    if why := fork.refusal():
        raise SpecError.at("options.branch", why, names)
    return fork


def _branch(traced: Traced, start: int) -> frozenset[int]:
    """Return the layers from ``start`` on that use nothing but each other and what leads to it."""
    ways = sources(traced)
    before, result = set[int](), {start}
    for layer in reversed(range(start)):
        if layer in ways[start] or any(layer in ways[one] for one in before):
            before.add(layer)
    for layer in range(start + 1, len(ways)):
        if ways[layer] & result and ways[layer] <= result | before:
            result.add(layer)
    return frozenset(result)
