"""The measured costs of a model's layers: records without any of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Kept(NamedTuple):
    """A tensor that autograd keeps for the backward; it may be a view of a larger storage."""

    storage: int  # numbered from 0 within a profile
    start: int  # where in the storage, in elements
    nbytes: int
    storage_nbytes: int
    maker: int  # the layer that made the storage; -1: it came with the model's arguments


@dataclass(frozen=True)
class LayerCost:
    """One layer: bytes and seconds of one microbatch."""

    name: str
    op: str
    parameters: int  # bytes; of parameters that two layers share, under the first
    activations: int  # bytes that autograd keeps and no layer before keeps too
    output: int  # bytes of what later layers use of it
    forward_s: float
    backward_s: float  # gradients of its inputs and of its parameters
    kept: tuple[Kept, ...]  # all that autograd keeps for its backward

    @property
    def seconds(self) -> float:
        return self.forward_s + self.backward_s


@dataclass(frozen=True)
class Value:
    """A value that one layer gives to later ones."""

    name: str
    maker: int  # the layer that made it; -1: it is an argument of the model
    uses: tuple[int, ...]  # the layers that use it
    nbytes: int
    gradient: bool  # whether a gradient comes back


@dataclass(frozen=True)
class Profile:
    """A model's layers with their measured costs; it holds none of the model's tensors."""

    layers: tuple[LayerCost, ...]
    values: tuple[Value, ...]
    refusals: tuple[str | None, ...]  # by boundary: why the model cannot be cut there

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers)

    @property
    def seconds(self) -> float:
        """The time of a forward and a backward of one microbatch through the whole model."""
        return sum(layer.seconds for layer in self.layers)

    def crossing(self, boundary: int) -> tuple[Value, ...]:
        """Return the values that cross the boundary after layer ``boundary``."""
        return tuple(v for v in self.values if v.maker <= boundary < max(v.uses, default=-1))

    def activations(self, first: int, last: int) -> int:
        """Return the bytes that a stage of these layers keeps for one microbatch.

        A storage counts whole and once. Of a storage made before the stage, only the values sent
        count: each arrives in a storage of its own.
        """
        whole: dict[int, int] = {}
        parts: dict[tuple[int, int], int] = {}
        for layer in self.layers[first : last + 1]:
            for one in layer.kept:
                if one.maker >= first or first == 0:
                    whole[one.storage] = one.storage_nbytes
                else:
                    part = one.storage, one.start
                    parts[part] = max(parts.get(part, 0), one.nbytes)
        return sum(whole.values()) + sum(parts.values())

    def held(self, first: int, last: int) -> int:
        """Return the bytes that a stage of these layers holds for one microbatch.

        Includes received values with a gradient that no layer keeps, such as the operands of a sum.
        """
        if first == 0:
            return self.activations(first, last)
        kept = {
            (one.maker, one.nbytes)
            for layer in self.layers[first : last + 1]
            for one in layer.kept
            if one.maker < first
        }
        arrived = (v for v in self.crossing(first - 1) if v.gradient)
        return self.activations(first, last) + sum(
            v.nbytes for v in arrived if (v.maker, v.nbytes) not in kept
        )
