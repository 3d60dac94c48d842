"""Weights: what is used of a loss, compared with what is due."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import numpy as np

from workbench.auditing.judging.case import Case, Results, dot, near
from workbench.auditing.judging.tiles import OwnSlopes, Row, Slopes, Tile, Unit, Weighed
from workbench.auditing.messages import Ask

DIRECTIONS = (1, 2)


def due_of(
    case: Case, tiles: list[Tile]
) -> Generator[list[Ask], Results, tuple[Slopes, OwnSlopes | None]]:
    """Measure how each loss changes with these tiles; with each copy alone where they are apart."""
    ranks: Sequence[int | None] = tiles[0].ranks if tiles[0].apart else [None]
    asks = [case.nudged(tiles, number, rank) for number in DIRECTIONS for rank in ranks]
    results = iter((yield from case.ask(*asks)))
    own = {number: [case.slope(next(results)) for _ in ranks] for number in DIRECTIONS}
    due = {number: np.sum(own[number], axis=0) for number in DIRECTIONS}
    return due, own if tiles[0].apart else None


def weigh(case: Case, unit: Unit, copy: int, source: int) -> Weighed | None:
    """Return the weight of a source in what a copy uses; None: too small to be measured."""
    noise = case.noise()
    gradient = unit.used[source][copy]
    along = [dot(gradient, unit.direction(number)) for number in unit.due]
    due = [float(one[case.sources[source].at].sum()) for one in unit.due.values()]
    loud, size = max(map(abs, due)), float(np.linalg.norm(gradient))
    if loud < 3 * noise:
        return Weighed(math.inf, False, 0.0) if size > 30 * noise else None
    square = sum(one * one for one in due)
    value = sum(a * b for a, b in zip(along, due, strict=True)) / square
    off = max(abs(a - value * b) for a, b in zip(along, due, strict=True))
    straight = off <= 10 * case.linear_tolerance * max(size, loud) + 3 * noise
    return Weighed(value, straight, 3 * noise / math.sqrt(square))


def row_of(case: Case, unit: Unit, copy: int) -> Row:
    return [weigh(case, unit, copy, source) for source in range(len(case.used))]


def matches(case: Case, unit: Unit, copy: int, guess: Sequence[float], due: Slopes) -> bool:
    """Return whether what a copy uses is this sum of the losses' derivatives, ``due``."""
    whole = range(case.whole_count)
    for number, slopes in due.items():
        want = sum(guess[c] * float(slopes[case.sources[c].at].sum()) for c in whole)
        got = sum(dot(unit.used[c][copy], unit.direction(number)) for c in whole)
        size = sum(float(np.linalg.norm(one[copy])) for one in unit.used)
        allowed = 10 * case.linear_tolerance * max(abs(want), size) + 3 * case.noise()
        if abs(got - want) > allowed:
            return False
    return True


def all_right(case: Case) -> bool:
    """Answer the cheap question, for all tiles at once: are they the gradient of one weighted sum
    of the losses?
    """
    case.expected = []
    if any(one.apart for one in case.tiles):
        return False
    for source, gradients in zip(case.sources, case.used, strict=True):
        first = [(one, gradients[one.copies[0]]) for one in case.tiles]
        along = [sum(dot(u, one.direction(number)) for one, u in first) for number in DIRECTIONS]
        due = [float(case.due[number][source.at].sum()) for number in DIRECTIONS]
        size = math.sqrt(sum(float(np.linalg.norm(u)) ** 2 for _, u in first))
        size = max(size, *map(abs, due))
        value = sum(a * b for a, b in zip(along, due, strict=True))
        value /= max(sum(one * one for one in due), 1e-300)
        allowed = 10 * case.linear_tolerance * size + 3 * case.noise()
        if any(abs(a - value * b) > allowed for a, b in zip(along, due, strict=True)):
            return False
        case.expected.append(value)
    return True


def is_one_row(case: Case, unit: Unit) -> bool:
    """Return whether a unit is right, or wrong in one way, so that it need not be halved."""
    rows = [row_of(case, unit, copy) for copy in unit.copies]
    known = [one for row in rows for one in row if one is not None]
    if all(one.straight for one in known):
        # 0 may be right of one and wrong of the other
        return unit.apart or all(abs(one.value) > 1e-6 for one in known)
    if not unit.apart or unit.own is None:
        return False
    ranks, count = len({rank for rank, _ in case.losses}), len(case.sources)
    return any(
        all(matches(case, unit, copy, [guess] * count, own_of(unit, copy)) for copy in unit.copies)
        for guess in (1.0, 1 / ranks)
    )


def own_of(unit: Unit, copy: int) -> Slopes:
    """Return the slopes of one copy alone."""
    assert unit.own is not None
    return {number: slopes[copy] for number, slopes in unit.own.items()}


def is_delicate(case: Case, unit: Unit) -> bool:
    """Return whether a tile is wrong by little, or by a derivative that is nearly none: what is
    left of differences is too rough for it.
    """
    for copy in unit.copies:
        for source, gradients in enumerate(unit.used):
            weight = weigh(case, unit, copy, source)
            if weight is None or weight.straight:
                continue
            size = float(np.linalg.norm(gradients[copy]))
            at = case.sources[source].at
            due = {number: float(one[at].sum()) for number, one in unit.due.items()}
            off = max(
                abs(dot(gradients[copy], unit.direction(number)) - weight.value * one)
                for number, one in due.items()
            )
            if max(map(abs, due.values())) < 1e-2 * size:
                return True
            if off < 1e-2 * unit.tiles[0].scale * size:
                return True
    return False


def is_mean(case: Case, total: float | None) -> bool:
    return total is not None and near(total, 1)
