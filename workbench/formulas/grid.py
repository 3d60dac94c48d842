"""A mesh of ranks: axes with sizes, the slowest first, and the lines of ranks along them.

    "pp 2, dp 2, tp 2" of 8 ranks            rank = 4 pp + 2 dp + tp

                  dp 0            dp 1
    pp 0      ranks 0, 1      ranks 2, 3     tp line 0 is ranks 0, 1; dp line 0 is 0, 2;
    pp 1      ranks 4, 5      ranks 6, 7     pp line 0 is 0, 4

A line is the ranks that differ in some axes only, here in one. Neighbors on the fastest axis have
neighboring numbers, so they are on one host where hosts have some ranks each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod

from workbench.common.errors import SpecError

AXES = ("pp", "dp", "fsdp", "tp")
PLANNED = ("cp", "ep")  # axes that have a name, and no code yet
DATA = ("dp", "fsdp")  # axes whose ranks take other samples


@dataclass(frozen=True)
class Grid:
    """The axes of a mesh, the slowest first. Axes of size 1 are left out."""

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, text: str, ranks: int) -> Grid:
        """Return the mesh that ``text`` says, "pp 2, tp 2"; "": all ranks on fsdp. Raises
        SpecError for a mesh that is not one of ``ranks`` ranks.
        """
        axes = tuple(_axis(part, text) for part in text.split(",") if part.strip())
        if not axes:
            return cls((("fsdp", ranks),) if ranks > 1 else ())
        names = [name for name, _ in axes]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise _refused(f"axis {twice} is there twice: write each once", text)
        grid = cls(axes)
        if grid.ranks != ranks:
            sizes = " x ".join(f"{name} {size}" for name, size in axes)
            raise _refused(f"{sizes} = {grid.ranks} ranks, and there are {ranks}", text)
        return grid

    def __str__(self) -> str:
        return ", ".join(f"{name} {size}" for name, size in self.axes)

    @property
    def ranks(self) -> int:
        return prod(size for _, size in self.axes)

    def size(self, *axes: str) -> int:
        """Return how many ranks a line along these axes has; 1 for axes that are not there."""
        return prod(size for name, size in self.axes if name in axes)

    def place(self, rank: int, *axes: str) -> int:
        """Return a rank's number in its line along these axes."""
        number, stride = 0, 1
        for name, size in reversed(self.axes):
            rank, own = divmod(rank, size)
            if name in axes:
                number, stride = number + own * stride, stride * size
        return number

    def others(self, *axes: str) -> tuple[str, ...]:
        """Return the axes that are not among these."""
        return tuple(name for name, _ in self.axes if name not in axes)

    def lines(self, *axes: str) -> list[list[int]]:
        """Return all lines along these axes: each the ranks in the order of their places."""
        apart = self.others(*axes)
        result: list[list[int]] = [[] for _ in range(self.size(*apart))]
        for rank in range(self.ranks):
            result[self.place(rank, *apart)].append(rank)
        return result

    def line(self, rank: int, *axes: str) -> list[int]:
        """Return the line of a rank along these axes."""
        return self.lines(*axes)[self.place(rank, *self.others(*axes))]


def name_of_line(axes: Iterable[str]) -> str:
    """Return the name of lines along several axes: "dp+fsdp"."""
    return "+".join(axes)


def meshes(ranks: int, axes: Iterable[str] = AXES) -> list[Grid]:
    """Return every mesh of these ranks with some of the axes, in their recommended order."""
    names = [*axes]
    sizes = [size for size in range(1, ranks + 1) if ranks % size == 0]
    return [
        Grid(tuple((name, size) for name, size in zip(names, each, strict=True) if size > 1))
        for each in product(sizes, repeat=len(names))
        if prod(each) == ranks
    ]


def _axis(part: str, text: str) -> tuple[str, int]:
    name, _, size = part.strip().partition(" ")
    if name in PLANNED:
        raise _refused(f"axis {name} is not supported yet: take {', '.join(AXES)}", text)
    if name not in AXES:
        raise _refused(
            f"axes are {', '.join(AXES)}, each with its size, not {part.strip()!r}", text
        )
    if not size.strip().isascii() or not size.strip().isdigit() or int(size) < 2:
        raise _refused(f"axis {name} needs 2 ranks or more; leave out an axis of 1", text)
    return name, int(size)


def _refused(why: str, text: str) -> SpecError:
    return SpecError.at("mesh", why, text)
