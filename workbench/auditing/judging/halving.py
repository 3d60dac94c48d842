"""Halving: groups of tiles that are measured together, halves of those that are not one row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator

import numpy as np

from workbench.auditing.judging.case import Case, Results, near
from workbench.auditing.judging.samples import total_weight
from workbench.auditing.judging.tiles import OwnSlopes, Row, Slopes, Tile, Unit, unit_of
from workbench.auditing.judging.weighing import (
    DIRECTIONS,
    due_of,
    is_delicate,
    is_one_row,
    row_of,
)
from workbench.auditing.messages import Ask

_IN_A_ROW = 4  # single wrong tiles, after which only samples of a group are asked
Key = tuple[bool, tuple[int, ...], bool, object, int | None, str]
Halving = Generator[list[Ask], Results, None]


class Halves:
    """The search for tiles that are alike, in the order of use."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.units: list[Unit] = []
        self.skipped: list[Tile] = []  # wrong tiles that were not asked by themselves
        self._bad = 0
        self._whole = [*case.used, case.whole]

    def search(self) -> Halving:
        """Measure all tiles in groups. The largest that is left after all others costs no run."""
        case = self.case
        groups = defaultdict[Key, list[Tile]](list)
        for tile in case.tiles:
            groups[self._kin(tile)].append(tile)

        def size(key: Key) -> tuple[int, int]:
            return -99 if key[4] is None else key[4], len(groups[key])

        start = max((key for key in groups if not key[0]), key=size, default=None)
        if start and (case.single or size(start)[0] < max(map(size, groups))[0]):
            start = None  # too small to be what is left of the whole
        left = dict(case.due)
        for key in sorted(groups, key=lambda one: one == start):
            if key == start:
                due, own = dict(left), None
            else:
                due, own = yield from due_of(case, groups[key])
            left = {number: left[number] - due[number] for number in DIRECTIONS}
            yield from self._halve(groups[key], due, own, derived=key == start)
        for unit in self.units:
            unit.rows = [row_of(case, unit, copy) for copy in unit.copies]

    def _kin(self, tile: Tile) -> Key:
        """Return what tiles must share to be asked for together: copies apart or not, whose losses
        they took in, size.
        """
        case, copies = self.case, tile.copies if tile.apart else tile.copies[:1]
        took = tuple(tuple(bool(one[copy].any()) for one in case.used) for copy in copies)
        size = max(float(np.linalg.norm(case.whole[copy])) for copy in tile.copies) * tile.scale
        first = tile.copies[0]
        odd = case.single or (
            not tile.apart
            and any(
                np.abs(one[copy] - one[first]).max()
                > 10 * case.linear_tolerance * np.abs(one[copy]).max()
                for one in case.used
                for copy in tile.copies
            )
        )
        decades = round(float(np.log10(size)) / 2) if size else None
        ranks = tuple(tile.ranks) if tile.apart else ()
        constant = tile.is_constant and tile.apart
        return tile.apart, ranks, constant, took, decades, tile.key if odd else ""

    def _unit(self, tiles: list[Tile], due: Slopes, own: OwnSlopes | None) -> Unit:
        return unit_of(tiles, due, own, self.case.used, self.case.whole)

    def _halve(
        self, tiles: list[Tile], due: Slopes, own: OwnSlopes | None, *, derived: bool = False
    ) -> Halving:
        """Keep tiles that are one row as a unit, else look at halves. ``derived``: the slopes are
        differences of others.
        """
        case, unit = self.case, self._unit(tiles, due, own)
        if len(tiles) == 1 and derived and is_delicate(case, unit):
            unit.due, unit.own = yield from due_of(case, tiles)
        right = is_one_row(case, unit)
        if len(tiles) == 1 or right:
            self.units.append(unit)
            self._bad = 0 if right else self._bad + 1
            return
        tiles = sorted(tiles, key=self._place)  # what is wrong lies mostly on one side of a place
        if self._bad >= _IN_A_ROW and len(tiles) > _IN_A_ROW:
            sample = [tiles[len(tiles) // 2], tiles[-1]]
            asked = []
            for one in sample:
                slopes, apart = yield from due_of(case, [one])
                asked.append(self._unit([one], slopes, apart))
            if not any(is_one_row(case, one) for one in asked):
                self.units += asked
                self.skipped += [one for one in tiles if one not in sample]
                return
        first, second = tiles[: len(tiles) // 2], tiles[len(tiles) // 2 :]
        first_due, first_own = yield from due_of(case, first)
        yield from self._halve(first, first_due, first_own)
        rest = {number: one - first_due[number] for number, one in due.items()}
        rest_own = None
        if own is not None and first_own is not None:
            rest_own = {
                number: [a - b for a, b in zip(one, first_own[number], strict=True)]
                for number, one in own.items()
            }
        yield from self._halve(second, rest, rest_own, derived=True)

    def _place(self, tile: Tile) -> int:
        return min(self.case.leaf[copy].place or 0 for copy in tile.copies)


def agree(case: Case, units: list[Unit]) -> None:
    """Take as right the row that most tiles agree on, before all one that is a mean."""
    votes, exact = Counter[tuple[float | None, ...]](), dict[object, Row]()
    for unit in units:
        row = unit.rows[0]
        if unit.apart or not all(one is None or one.straight for one in row):
            continue
        key = tuple(None if one is None else float(f"{one.value:.4g}") for one in row)
        votes[key] += len(unit.tiles)
        exact.setdefault(key, row)

    def rank(key: tuple[float | None, ...]) -> tuple[bool, int]:
        return not near(total_weight(case, key) or 0, 1), -votes[key]

    case.expected = [None] * len(case.sources)
    for key in sorted(votes, key=rank):
        case.expected = [
            (None if theirs is None else theirs.value) if mine is None else mine
            for mine, theirs in zip(case.expected, exact[key], strict=True)
        ]
