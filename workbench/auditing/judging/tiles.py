"""Tiles: a piece of a parameter, with the ranks that hold the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.auditing.messages import Copy, Leaf, direction

Slopes = dict[int, np.ndarray]  # direction -> how each loss changes along it
OwnSlopes = dict[int, list[np.ndarray]]  # the same for each copy alone
Row = list["Weighed | None"]  # of one copy, a loss each


@dataclass(frozen=True)
class Weighed:
    """The weight of a loss in what a copy uses. ``straight``: it is a multiple of what is due."""

    value: float
    straight: bool
    error: float


@dataclass(frozen=True)
class Complaint:
    """A complaint about a tile. ``text`` groups tiles; ``rank``: of one copy alone."""

    text: str
    more: str = ""
    rank: int | None = None
    group: tuple[int, ...] = ()
    factor: float = 1.0


class Tile:
    """A piece of one parameter. ``copies``: the ranks that hold it, and its name there."""

    def __init__(self, name: str, copies: Sequence[Copy], leaf: Leaf, salt: int) -> None:
        self.name, self.copies = name, list(copies)
        self.shape, self.owner = leaf.before.shape, leaf.owner
        self.shards = leaf.shards
        flat = leaf.before.ravel()
        self.is_constant = flat.size < 2 or bool(np.ptp(flat) == 0)
        self.key = f"{salt}:{name}@{copies[0][0]}"
        self.apart = False  # copies use different gradients
        self.scale = 1.0
        self.complaints: list[Complaint] = []
        self.rows: dict[Copy, Row] = {}

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, _ in self.copies]

    @property
    def home(self) -> str:
        """The module that it is in."""
        return self.name.rpartition(".")[0]

    def key_of(self, number: int) -> str:
        return f"{self.key}#{number}"

    def direction(self, number: int) -> np.ndarray:
        return self.scale * direction(self.key_of(number), self.shape)


@dataclass
class Unit:
    """Tiles that are measured together, as if they were one.

    What holds of them along two directions holds of each. ``used``: what each source gives of each
    copy; tiles whose copies are alike count by their first copy.
    """

    tiles: list[Tile]
    due: Slopes
    own: OwnSlopes | None
    used: list[dict[int, np.ndarray]]  # per source: number of the copy -> gradient
    whole: dict[int, np.ndarray]  # the same of all losses together
    asked: bool = False
    disjoint: bool = False
    complaints: list[Complaint] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # per copy

    @property
    def apart(self) -> bool:
        return self.tiles[0].apart

    @property
    def is_constant(self) -> bool:
        return self.tiles[0].is_constant

    @property
    def copies(self) -> range:
        """Numbers of copies that are judged by themselves."""
        return range(len(self.whole))

    @property
    def ranks(self) -> list[int]:
        return [self.rank(number) for number in self.copies]

    def rank(self, number: int) -> int:
        return self.tiles[0].copies[number][0]

    def direction(self, number: int) -> np.ndarray:
        if len(self.tiles) == 1:
            return self.tiles[0].direction(number).ravel()
        return np.concatenate([one.direction(number).ravel() for one in self.tiles])


def unit_of(
    tiles: list[Tile],
    due: Slopes,
    own: OwnSlopes | None,
    used: Sequence[dict[Copy, np.ndarray]],
    whole: dict[Copy, np.ndarray],
) -> Unit:
    """Return a unit of these tiles."""
    count = len(tiles[0].copies) if tiles[0].apart or len(tiles) == 1 else 1

    def joined(of: dict[Copy, np.ndarray]) -> dict[int, np.ndarray]:
        return {j: np.concatenate([of[t.copies[j]].ravel() for t in tiles]) for j in range(count)}

    return Unit(tiles, due, own, [joined(one) for one in used], joined(whole))
