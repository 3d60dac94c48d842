"""Complaints about a tile: copies that use different gradients, rows that are not the others'."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from workbench.auditing.judging.case import Case, near
from workbench.auditing.judging.tiles import Complaint, Row, Tile, Unit, Weighed
from workbench.auditing.judging.weighing import matches, own_of

WRONG = "not the derivative of the loss, nor a multiple of it"
NOT_REDUCED = "not reduced over"
NOT_SUMMED = "not summed over"


def judge_copies(case: Case, unit: Unit, reduced: list[Tile], units: list[Unit]) -> None:
    """Judge copies of one parameter that use different gradients."""
    group = tuple(unit.ranks)
    sizes = [float(np.linalg.norm(unit.whole[copy])) for copy in unit.copies]
    still = [copy for copy in unit.copies if sizes[copy] < 1e-9 * max(sizes)]
    if still:
        unit.complaints += [
            Complaint("is not updated", rank=unit.rank(copy), factor=0.0) for copy in still
        ]
        return
    if len({str([_rounded(one) for one in row]) for row in unit.rows}) == 1:
        return  # they differ by a factor only, which linearity has blamed
    counted = [
        {c for c, one in enumerate(row[: case.whole_count]) if one and abs(one.value) > 1e-4}
        for row in unit.rows
    ]
    straight = all(one is None or one.straight for row in unit.rows for one in row)
    unit.disjoint = _feed_different_losses(case, unit)
    unlike = not unit.is_constant and not unit.disjoint
    if straight and unlike and len({*map(frozenset, counted)}) == 1:
        return
    if unit.disjoint or straight:
        unit.complaints.append(Complaint(_whose_counts(case, unit, counted), group=group))
        return
    if not _alone(case, unit):
        return
    replicas = any({*group} <= {*one.ranks} for one in reduced) or any(
        one is not unit
        and one.apart
        and not one.is_constant
        and {*one.ranks} == {*group}
        and one.disjoint
        for one in units
    )
    if unit.is_constant or replicas:
        text = "each rank uses the derivative by its own copy alone:"
        unit.complaints.append(Complaint(f"{text} {NOT_SUMMED} {case.axis(group)}", group=group))
        return
    for tile in unit.tiles:
        case.words.ask(
            f"{tile.name} begins with equal bits on ranks {case.axis(group)}, works on the same "
            "losses on each and is updated apart: tied weights whose gradients are not summed, or "
            "several weights from one seed?",
            tile.name,
            group,
        )
    unit.asked = True


def _rounded(one: Weighed | None) -> object:
    return one and (f"{one.value:.4g}", one.straight)


def _feed_different_losses(case: Case, unit: Unit) -> bool:
    """Return whether no loss depends on two of the copies."""
    assert unit.own is not None
    noise = 3 * case.noise()
    feeds = [
        {
            c
            for c, at in enumerate(case.first_of)
            if any(abs(slopes[copy][at]) > noise for slopes in unit.own.values())
        }
        for copy in unit.copies
    ]
    return all(not a & b for a, b in combinations(feeds, 2))


def _whose_counts(case: Case, unit: Unit, counted: list[set[int]]) -> str:
    """Return the complaint that a gradient is not reduced, and which losses count where."""
    shared = set.intersection(*counted)
    each = [
        f"rank {unit.rank(copy)} counts "
        + (f"the loss of {case.whose(c - shared)}" if c - shared else "no loss")
        for copy, c in enumerate(counted)
    ]
    all_of_them = f"; all of them count that of {case.whose(shared)}" if shared else ""
    return f"{NOT_REDUCED} {case.axis(unit.ranks)}: {', '.join(each)}{all_of_them}"


def _alone(case: Case, unit: Unit) -> bool:
    """Return whether each copy uses the derivative by itself, and not the sum over copies."""
    if unit.own is None:
        return False
    count, ranks = len(case.sources), len({rank for rank, _ in case.losses})
    known = [one for one in case.expected if one is not None]
    guesses = [known] if len(known) == count else [[1.0] * count, [1 / ranks] * count]
    return any(
        all(matches(case, unit, copy, guess, own_of(unit, copy)) for copy in unit.copies)
        for guess in guesses
    )


def judge_row(case: Case, unit: Unit, copy: int) -> None:
    """Compare a copy's weights with those that most tiles have."""
    if unit.asked:
        return
    known = [(c, one) for c, one in enumerate(unit.rows[copy]) if one is not None]
    strange = [c for c, one in known if one.value == math.inf]
    crooked = [c for c, one in known if not one.straight and c not in strange]
    rank = unit.rank(copy)
    if strange:
        unit.complaints.append(
            Complaint(
                f"takes in the gradient of the loss of {case.whose(strange)}, on which it has no "
                "effect: do the ranks begin apart?",
                rank=rank,
            )
        )
    elif crooked and (group := _not_summed_over(case, unit, copy)):
        text = f"{NOT_SUMMED} {case.axis(group)}: each of these ranks lacks the others' part"
        unit.complaints.append(Complaint(text, rank=rank, group=group))
    elif crooked:
        unit.complaints.append(Complaint(WRONG, made_of(case, unit, copy), rank))
    else:
        _judge_factors(case, unit, rank, known)


def _judge_factors(case: Case, unit: Unit, rank: int, known: list[tuple[int, Weighed]]) -> None:
    """Complain about losses that count more or less than in most tiles."""
    factors, off = 0, []
    for c, one in known:
        due = case.expected[c]
        if not due:
            continue
        factors += 1
        factor, error = one.value / due, one.error / abs(due)
        least = 0.2 if case.single else max(1e-3, 30 * case.linear_tolerance, error)
        if not near(factor, 1, least):
            off.append((c, factor))
    if not off:
        return
    first = off[0][1]
    if all(near(factor, first, 1e-2) for _, factor in off):
        which = "" if len(off) == factors else f"the loss of {case.whose([c for c, _ in off])} "
        if abs(first) > 1e-6:
            size, group = case.explain(first)
            text = f"counts {which}{first:.4g} times what the others do{size}"
            unit.complaints.append(Complaint(text, rank=rank, group=group, factor=first))
        else:
            text = f"does not count {which or 'any loss'}".rstrip()
            unit.complaints.append(Complaint(text, rank=rank, factor=0.0))
        return
    each = ", ".join(f"{factor:.3g} ({case.whose([c])})" for c, factor in off)
    unit.complaints.append(
        Complaint(f"counts the losses by {each} of what the others do", rank=rank)
    )


def made_of(case: Case, unit: Unit, copy: int) -> str:
    """Return which ranks' own gradients are in a wrong one, in words; "" where it is not known."""
    if len(unit.tiles) > 1:
        return ""
    return made_of_tile(case, unit.tiles[0], copy)


def _not_summed_over(case: Case, unit: Unit, copy: int) -> tuple[int, ...]:
    """Return the group of a copy's rank over which a sum is missing: each copy uses the sum of some
    ranks' own gradients, no rank's in two sums, and the group has one rank of each. () for none.
    """
    if len(unit.tiles) > 1:
        return ()
    tile, rank = unit.tiles[0], unit.rank(copy)
    sums = set[frozenset[int]]()
    for one in range(len(tile.copies)):
        _, _, weights = _by_own(case, tile, one)
        if weights is None:
            return ()
        used = np.abs(weights) > 1e-6 * np.abs(weights).max()
        if np.ptp(weights[used]) > 1e-6 * np.abs(weights).max():
            return ()
        sums.add(frozenset(np.array(tile.ranks)[used].tolist()))
    if len(sums) < 2 or sum(map(len, sums)) != len(tile.ranks):
        return ()
    return next(
        (
            group
            for group in case.groups()
            if rank in group
            and len(group) == len(sums)
            and all(len(one & {*group}) == 1 for one in sums)
        ),
        (),
    )


def _by_own(
    case: Case, tile: Tile, copy: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return what a copy uses; the copies' own gradients, a column each; and the weights that make
    the one of the others, None where nothing does.
    """
    whole = case.whole[tile.copies[copy]].ravel()
    own = [case.leaf[one].parts for one in tile.copies]
    columns = [one.ravel() for one in own if one is not None and one.shape == tile.shape]
    if len(own) < 2 or len(columns) < len(own):
        return whole, None, None
    matrix = np.stack(columns, 1)
    weights = np.linalg.lstsq(matrix, whole, rcond=None)[0]
    met = np.linalg.norm(whole - matrix @ weights) < 1e-6 * np.linalg.norm(whole)
    return whole, matrix, weights if met else None


def made_of_tile(case: Case, tile: Tile, copy: int) -> str:
    """Return the same of one tile: by least squares over the whole, else element by element."""
    whole, matrix, weights = _by_own(case, tile, copy)
    if matrix is None:
        return ""
    if weights is not None:
        if np.ptp(weights) < 1e-6 * np.abs(weights).max():
            return (
                f"the reduction is right ({weights[0]:.3g} of each rank's own), what backward gave "
                "is not"
            )
        return "it is " + " + ".join(
            f"{one:.3g} of rank {rank}'s own"
            for one, rank in zip(weights, tile.ranks, strict=True)
            if abs(one) > 1e-9
        )
    return _pieces(matrix, whole, tile.ranks) or "it is not a sum of the ranks' own gradients"


def _pieces(matrix: np.ndarray, whole: np.ndarray, ranks: Iterable[int]) -> str:
    """Return which elements of a gradient are which rank's own."""
    count = matrix.shape[1]
    for factor in (1.0, 1 / count):
        same = np.abs(whole[:, None] - factor * matrix) <= 1e-9 * np.abs(whole).max()
        if len(whole) > 1 and same.any(1).all() and not same.all(0).any():
            counts = np.bincount(same.argmax(1), minlength=count)
            return "pieces of it are " + " and ".join(
                f"{factor:.3g} x rank {rank}'s own ({n} elements)"
                for rank, n in zip(ranks, counts, strict=True)
                if n
            )
    return ""


def row_is_empty(row: Row) -> bool:
    return all(one is None for one in row)
