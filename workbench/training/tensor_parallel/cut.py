"""A tensor's cut over ranks, and its changes on the way through a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx


class Mixes(Exception):
    """This operation needs channels that other ranks have. Says which operation."""


class Other(Exception):
    """``source`` must be cut in another way to pass: so many times as many blocks, so many times as
    many channels a unit (0: one, whatever there was).
    """

    def __init__(self, source: str, blocks: int = 1, unit: int = 1) -> None:
        self.source, self.blocks, self.unit = source, blocks, unit


class AlsoSplit(Exception):
    """This other operand must be split alike."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node


@dataclass(frozen=True)
class Split:
    """A tensor cut along ``dim``: ``blocks`` parts one after the other, each of ``units`` units of
    ``unit`` elements. A rank has a run of units, the same in each block; the first ranks have one
    more where that does not divide. ``source``: the layer that left it so.
    """

    dim: int
    blocks: int
    units: int
    unit: int
    source: str

    @property
    def size(self) -> int:
        return self.blocks * self.units * self.unit

    def same(self, other: Split) -> bool:
        return replace(self, source=other.source) == other

    def run(self, rank: int, ranks: int) -> range:
        """Return the units of a rank."""
        each, more = divmod(self.units, ranks)
        start = rank * each + min(rank, more)
        return range(start, start + each + (rank < more))

    def local(self, rank: int, ranks: int) -> int:
        """Return the number of elements along ``dim`` on a rank."""
        return self.blocks * len(self.run(rank, ranks)) * self.unit

    def places(self, rank: int, ranks: int) -> torch.Tensor:
        """Return a rank's indices in the whole tensor."""
        run = self.run(rank, ranks)
        cut = torch.arange(self.size).view(self.blocks, self.units, self.unit)
        return cut[:, run.start : run.stop].reshape(-1)


@dataclass(frozen=True)
class Pieces:
    """A tuple of tensors, each cut like ``each``."""

    each: Split


@dataclass(frozen=True)
class Sizes:
    """The shape of a split tensor with this number of dims."""

    of: Split
    dims: int


Cut = Split | Pieces | Sizes


@dataclass
class Passage:
    """The findings on the way from some layers to the next ones."""

    cuts: dict[fx.Node, Cut] = field(default_factory=dict)
    sizes: list[tuple[fx.Node, tuple[int, ...], Split]] = field(
        default_factory=list
    )  # arguments (a path into ``node.args``) that become a rank's own size
    whole: list[tuple[fx.Node, fx.Node]] = field(
        default_factory=list
    )  # (operation, operand) where an operand is whole on every rank


def words(node: fx.Node) -> str:
    """Return the name of an operation for messages."""
    if node.op == "output":
        return "the model's output"
    if node.op == "call_function":
        return getattr(node.target, "__name__", str(node.target))
    return str(node.target)


def shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["shape"])


def dim_argument(node: fx.Node, place: int, name: str, default: int) -> int:
    """Return the dim that an operation names, by place or by name, as a number from 0."""
    value = node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
    if not isinstance(value, int):
        raise Mixes(words(node))
    return value % max(len(shape(node.args[0])), 1)


def split_input(node: fx.Node, way: Passage) -> Split:
    """Return how the first input of an operation is split."""
    cut = way.cuts[node.args[0]]  # type: ignore[index]
    assert isinstance(cut, Split)
    return cut
