"""The plan of an audit: which runs to ask for, in which order."""

from __future__ import annotations

import time

import numpy as np

from workbench.auditing.judging.case import SINGLE as COARSE
from workbench.auditing.judging.case import Asking, CannotMeasure, Case
from workbench.auditing.judging.copies import WRONG, judge_copies, judge_row
from workbench.auditing.judging.finding_tiles import (
    find_old,
    find_tiles,
    has_changed,
    scale_nudges,
    tell_copies_apart,
    used,
)
from workbench.auditing.judging.halving import Halves, agree
from workbench.auditing.judging.meaning import ask_what_is_meant
from workbench.auditing.judging.samples import judge_samples
from workbench.auditing.judging.sources import (
    ask_for_same_samples,
    find_classes,
    find_sources,
    judge_linearity,
    switch_on,
)
from workbench.auditing.judging.tiles import Complaint
from workbench.auditing.judging.weighing import DIRECTIONS, all_right
from workbench.auditing.judging.words import put_into_words
from workbench.auditing.messages import Ask, Leaf, Seen

_TIMES = 3.0  # the length of a nudge of the second size


def judge(case: Case) -> Asking:
    """Ask for all runs, and put what they say into words."""
    yield from measure(case)
    put_into_words(case)


def measure(case: Case) -> Asking:
    """Ask for runs until it is known whether the update is right, or that it cannot be."""
    try:
        yield from _measure(case)
    except CannotMeasure as error:
        case.words.abstains.append(str(error))


def _measure(case: Case) -> Asking:
    yield from _look_first(case)
    if case.words.abstains:
        return
    yield from _measure_due(case)
    if case.words.abstains:
        return
    yield from find_old(case)
    find_classes(case)
    yield from ask_for_same_samples(case)
    find_sources(case)
    yield from switch_on(case)
    judge_linearity(case)
    if not all_right(case):
        yield from _tile_by_tile(case)
    judge_samples(case)


def _look_first(case: Case) -> Asking:
    """Run the script twice as it is: find losses and tiles, and what the lens says."""
    began = time.monotonic()
    (case.base,) = yield from case.ask(Ask(first=True))
    case.seconds = min(case.seconds, 5 + 10 * (time.monotonic() - began))
    (case.lens,) = yield from case.ask(Ask(lens=True))
    for hint in sorted({one for seen in case.lens for one in seen.hints}):
        if hint.startswith("!"):
            case.words.blame(hint.removeprefix("!"))
        else:
            case.words.note(hint)
    case.losses = [(r, m) for r, seen in enumerate(case.base) for m in range(len(seen.losses))]
    case.level = max([abs(one.value) for seen in case.base for one in seen.losses] or [0.0])
    case.stepped = any(seen.steps for seen in case.base)
    if not case.losses:
        case.words.abstains.append(
            "no backward pass from a loss was seen before the end: an audit needs a script that "
            "trains, with loss.backward() and an update"
        )
    elif any(not _is_same(a, b) for a, b in zip(case.base, case.lens, strict=True)):
        case.words.abstains.append(
            "two runs from the same start differ, so nothing can be measured: random numbers or "
            "times decide. Set a seed (torch.manual_seed), and use deterministic algorithms"
        )
    if case.words.abstains:
        return
    case.single = any(
        leaf.dtype != "torch.float64" for seen in case.base for leaf in seen.leaves.values()
    )
    if case.single:
        case.eps, case.tolerance = COARSE
        case.words.note("parameters are not float64: measured to about 3 % only")
    find_tiles(case)
    if not case.tiles:
        case.words.abstains.append("no parameter was seen in use")
        return
    case.whole = used(case, case.base)
    yield from tell_copies_apart(case)
    scale_nudges(case)


def _measure_due(case: Case) -> Asking:
    """Nudge all tiles at once, along two directions, and along one by another length."""
    asks = [case.nudged(case.tiles, number) for number in DIRECTIONS]
    *runs, longer = yield from case.ask(*asks, case.nudged(case.tiles, 1, times=_TIMES))
    case.due = {number: case.slope(run) for number, run in zip(DIRECTIONS, runs, strict=True)}
    again = case.slope(longer, _TIMES)
    if case.words.abstains:
        return
    allowed = 300 * case.tolerance * np.abs(case.due[1]).max() + 30 * case.noise()
    if not np.abs(again - case.due[1]).max() <= allowed:
        case.words.abstains.append(
            "nudges of two lengths give two derivatives: the losses are too coarse (a lower "
            "precision?), or not smooth here"
        )


def _is_same(a: Seen, b: Seen) -> bool:
    """Return whether a rank saw the same twice. A buffer to receive into holds anything."""

    def numbers(seen: Seen) -> list[np.ndarray]:
        leaves = [one for one in seen.leaves.values() if _is_trained(one)]
        grads = [one.grad for one in leaves if one.grad is not None]
        return [np.array([one.value for one in seen.losses]), *[o.after for o in leaves], *grads]

    first, second = numbers(a), numbers(b)
    return len(first) == len(second) and all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(first, second, strict=True)
    )


def _is_trained(leaf: Leaf) -> bool:
    return leaf.parameter or leaf.optimized or has_changed(leaf)


def _tile_by_tile(case: Case) -> Asking:
    """Find groups of tiles that are alike; one row is what most agree on, the others are judged
    by it.
    """
    halves = Halves(case)
    yield from halves.search()
    agree(case, halves.units)
    reduced = [
        one for one in case.tiles if not one.apart and len(one.copies) > 1 and not one.is_constant
    ]
    for unit in halves.units:
        if unit.apart:
            judge_copies(case, unit, reduced, halves.units)
        if not unit.complaints:
            for copy in unit.copies:
                judge_row(case, unit, copy)
        by_copy = unit.apart or len(unit.tiles) == 1
        for tile in unit.tiles:
            tile.rows = {
                copy: unit.rows[number if by_copy else 0] for number, copy in enumerate(tile.copies)
            }
            tile.complaints = (
                [*unit.complaints]
                if by_copy
                else [
                    Complaint(one.text, one.more, rank, one.group, one.factor)
                    for one in unit.complaints
                    for rank in tile.ranks
                ]
            )
    for tile in halves.skipped:
        tile.rows = {copy: [None] * len(case.sources) for copy in tile.copies}
    if halves.skipped:
        case.words.note(
            f"{len(halves.skipped)} tiles were not asked one by one: those before, between and "
            "after them are wrong"
        )
    if any(one.text == WRONG for tile in case.tiles for one in tile.complaints):
        yield from ask_what_is_meant(case, measure)
