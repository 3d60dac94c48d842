"""The case of one audit: what the judge knows so far, and how it asks for more."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from workbench.auditing.judging.tiles import Slopes, Tile
from workbench.auditing.messages import Ask, Copy, Leaf, Loss, Seen
from workbench.auditing.report import Words

Results = list[list[Seen]]  # per run: what each rank saw
Asking = Generator[list[Ask], Results, None]
Deciding = Generator[list[Ask], Results, bool]

LONGER = 1000.0  # nudges where only "does it depend" is asked
DOUBLE = (1e-7, 1e-5)  # length of a nudge, tolerance
SINGLE = (3e-3, 3e-2)
FIRST_RUN = 120.0  # seconds


class CannotMeasure(Exception):
    """A run that is needed cannot be had."""


class Source(NamedTuple):
    """Losses that are switched on together. ``at``: one of each class of equal ones, by number."""

    losses: list[Loss]
    at: list[int]


def near(a: float, b: float, tolerance: float = 1e-3) -> bool:
    return abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-12)


def dot(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.vdot(a, b))


def braces(ranks: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted({*ranks}))) + "}"


def numbered(ranks: Iterable[int]) -> str:
    """Return "rank {2}", or "ranks {0, 1}": a set, as groups are written."""
    once = {*ranks}
    return f"rank{'s' * (len(once) > 1)} {braces(once)}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return the first names of a list, each once."""
    once = [*dict.fromkeys(names)]
    rest = len(once) - most
    return ", ".join(once[:most]) + (f" and {rest} more" if rest > 0 else "")


class Case:
    """All that is known of one job."""

    def __init__(self, size: int, *, update: int = 1, salt: int = 0) -> None:
        self.size, self.update, self.salt = size, update, salt
        self.words = Words()
        self.runs = 0
        self.seconds = FIRST_RUN
        self.base: list[Seen] = []
        self.lens: list[Seen] = []
        self.losses: list[Loss] = []
        self.stepped = False  # an optimizer of torch's made the update
        self.rate: float | None = None  # of an update by hand
        self.single = False
        self.eps, self.tolerance = DOUBLE
        self.level = 0.0  # of the largest loss
        self.tiles: list[Tile] = []
        self.leaf: dict[Copy, Leaf] = {}
        self.whole: dict[Copy, np.ndarray] = {}  # what is used
        self.loudest = 0.0  # of its largest component
        self.old: dict[Copy, np.ndarray] = {}  # the part of it that no loss gives
        self.due: Slopes = {}  # of all tiles together
        self.classes: list[list[Loss]] = []  # losses that are one and the same
        self.first_of: list[int] = []  # the number of one loss of each class
        self.sources: list[Source] = []
        self.whole_count = 0  # the first so many sources are all losses, once
        self.used: list[dict[Copy, np.ndarray]] = []  # per source
        self.expected: list[float | None] = []  # weight of each source
        self.bent = False  # gradients are not linear in the losses
        self.left = 0.0  # of the whole, after its parts
        self.linear_tolerance = 0.0
        self.factors: dict[Copy, float] = {}
        self.doubted: set[str] = set()

    # -- asking --

    def ask(self, *asks: Ask) -> Generator[list[Ask], Results, Results]:
        """Have these runs made; return what each rank saw in each."""
        results = yield [replace(one, seconds=self.seconds) for one in asks]
        self.runs += len(asks)
        for one, seen in zip(asks, results, strict=True):
            failed = [
                f"rank {rank}: {each.error.strip().splitlines()[-1]}"
                for rank, each in enumerate(seen)
                if each.error and (not one.until or rank in one.until)
            ]
            if failed:
                raise CannotMeasure(f"the script failed: {'; '.join(dict.fromkeys(failed))}")
        return results

    def until(self) -> dict[int, int]:
        """Return how many losses each rank has: a run may end with the last."""
        counts: dict[int, int] = {}
        for rank, _ in self.losses:
            counts[rank] = counts.get(rank, 0) + 1
        return counts

    def nudged(
        self, tiles: Iterable[Tile], number: int, only: int | None = None, times: float = 1.0
    ) -> Ask:
        """Return a run with these tiles nudged along a direction, on all their copies or on those
        of one rank.
        """
        nudge = {
            copy: (tile.key_of(number), times * self.eps * tile.scale)
            for tile in tiles
            for copy in tile.copies
            if only is None or copy[0] == only
        }
        return Ask(nudge=nudge, until=self.until())

    def slope(self, results: list[Seen], times: float = 1.0) -> np.ndarray:
        """Return how each loss changed in a run with a nudge."""
        values = self.values(results)
        if len(values) != len(self.losses):
            self.words.abstains.append("a nudge changed how many losses there are")
            return np.zeros(len(self.losses))
        result: np.ndarray = (values - self.values(self.base)) / (times * self.eps)
        return result

    def values(self, results: list[Seen]) -> np.ndarray:
        """Return the losses of a run."""
        for rank, seen in enumerate(results):
            if seen.lost:
                self.words.abstains.append(
                    f"rank {rank} overwrote {seen.lost[0]} after its first use: its derivative "
                    "cannot be measured. Load or set parameters before they are first used"
                )
        return np.array([one.value for seen in results for one in seen.losses])

    def moved(self, results: list[Seen]) -> set[int]:
        """Return the ranks whose losses differ in a run from what they are."""
        change = self.values(results)
        if len(change) != len(self.losses):
            return {rank for rank, _ in self.losses}
        change = change - self.values(self.base)
        return {rank for (rank, _), one in zip(self.losses, change, strict=True) if one}

    def noise(self) -> float:
        """Return what a slope may be by rounding alone."""
        return (2e-3 if self.single else 1e-7) * max(self.level, 1e-3)

    # -- names --

    def whose(self, sources: Iterable[int]) -> str:
        """Return whose losses these are, in words."""
        losses = [loss for number in sources for loss in self.sources[number].losses]
        ranks, parts = {rank for rank, _ in losses}, {number for _, number in losses}
        every_rank = {rank for rank, _ in self.losses}
        words = "every rank" if ranks == every_rank and len(ranks) > 1 else numbered(ranks)
        if parts != {number for _, number in self.losses}:
            words += f", microbatch {braces(parts)}"
        return words

    def groups(self) -> dict[tuple[int, ...], str]:
        """Return the groups of ranks that exist, and which axis of a mesh each is, or ""."""
        named: dict[tuple[int, ...], str] = {}
        for seen in self.base:
            for description, ranks in seen.groups:
                label = description.removeprefix("mesh_") if "mesh_" in description[:5] else ""
                key = tuple(sorted(ranks))
                named[key] = named.get(key) or label
        return named

    def axis(self, ranks: Iterable[int]) -> str:
        """Return a group in words."""
        name = self.groups().get(tuple(sorted({*ranks})), "")
        return braces(ranks) + (f" (axis {name})" if name else "")

    def explain(self, factor: float) -> tuple[str, tuple[int, ...]]:
        """Return which sizes a factor is, in words, and the group of ranks that has that size."""
        sizes: dict[str, tuple[int, tuple[int, ...]]] = {
            "microbatches": (max(number for _, number in self.losses) + 1, ())
        }
        for ranks, name in self.groups().items():
            words = name or ("ranks" if len(ranks) == self.size else f"the group {braces(ranks)}")
            sizes[words] = len(ranks), ranks
        sizes = {name: one for name, one in sizes.items() if one[0] > 1}
        tolerance = 0.15 if self.single else 1e-3
        for many in (1, 2):
            for names in combinations(sizes, many):
                product = float(np.prod([sizes[name][0] for name in names]))
                if near(product, factor, tolerance) or near(product * factor, 1, tolerance):
                    words = " x ".join(f"{name} = {sizes[name][0]}" for name in names)
                    group = next((sizes[name][1] for name in names if sizes[name][1]), ())
                    return f" ({'' if factor > 1 else '1 / '}{words})", group
        return "", ()
