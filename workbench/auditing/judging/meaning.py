"""Wrong derivatives that may be meant: a stop-gradient does the same on one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from workbench.auditing.judging.case import LONGER, Asking, Case, Deciding, listed
from workbench.auditing.judging.copies import WRONG, row_is_empty
from workbench.auditing.judging.tiles import Tile

Plan = Callable[[Case], Asking]


def ask_what_is_meant(case: Case, plan: Plan) -> Asking:
    """Turn wrong derivatives into questions where they are not a matter of ranks. ``plan`` judges
    the program on one rank.
    """
    wrong = [one for one in case.tiles if any(each.text == WRONG for each in one.complaints)]
    case.doubted = {one.name for one in wrong}
    if all(_is_reduced_right(case, one) for one in wrong) and (yield from _is_at_home(case)):
        _ask(
            case,
            wrong,
            "the gradient is not the derivative of the loss, on each rank by itself, without "
            "communication: a detach, a backward of your own, a recomputation that draws other "
            "numbers? Is it meant?",
        )
        return
    if case.size > 1:
        yield from _compare_with_one_rank(case, wrong, plan)
    _note_where_it_begins(case)


def _is_reduced_right(case: Case, tile: Tile) -> bool:
    """Return whether what is wrong is what backward gave, and not its reduction."""
    if len(tile.copies) == 1 and case.size == 1:
        return True
    return all("reduction is right" in one.more for one in tile.complaints)


def _is_at_home(case: Case) -> Deciding:
    """Return whether no loss depends on another rank."""
    for rank in range(case.size):
        ask = case.nudged(case.tiles, 1, only=rank, times=LONGER)
        (results,) = yield from case.ask(ask)
        if case.moved(results) - {rank}:
            return False
    return True


def _ask(case: Case, tiles: list[Tile], words: str) -> None:
    names = listed([one.name for one in tiles])
    for tile in tiles:
        case.words.ask(f"{names}: {words}", tile.name, tile.ranks)
        tile.complaints = []


def _compare_with_one_rank(case: Case, wrong: list[Tile], plan: Plan) -> Asking:
    """Look whether the same program on one rank uses the same wrong derivatives."""
    one = Case(1, salt=case.salt, update=case.update)
    one.seconds = case.seconds
    asking = plan(one)
    try:
        asks = next(asking)
        while True:
            results = yield [replace(each, alone=True) for each in asks]
            case.runs += len(asks)
            asks = asking.send(results)
    except StopIteration:
        pass
    if one.words.abstains:
        case.words.note(f"the program on one rank, for comparison: {one.words.abstains[0]}")
        return
    same = [
        tile
        for tile in wrong
        if tile.name in one.doubted
        and all("reduction is right" in e.more or len(tile.copies) == 1 for e in tile.complaints)
    ]
    if not same:
        return
    alone = {name: gradient for (_, name), gradient in one.whole.items()}
    equal = all(_is_equal(case.whole[tile.copies[0]], alone[tile.name]) for tile in same)
    _ask(
        case,
        same,
        "the gradient is not the derivative of the loss, neither here nor in the same program on "
        f"one rank{', where it is the same gradient' * equal}: a detach, a backward of your own? "
        "Is it meant?",
    )


def _is_equal(here: np.ndarray, alone: np.ndarray) -> bool:
    same_shape = here.shape == alone.shape
    return same_shape and bool(np.abs(here - alone).max() <= 1e-6 * np.abs(here).max())


def _note_where_it_begins(case: Case) -> None:
    """Note the last wrong and the first right tile, in the order of use."""
    for rank, seen in enumerate(case.base):
        places = sorted(
            (leaf.place, name) for name, leaf in seen.leaves.items() if leaf.place is not None
        )
        order = [
            tile
            for _, name in places
            for tile in case.tiles
            if (rank, name) in tile.copies and not row_is_empty(tile.rows[rank, name])
        ]
        bad = [i for i, tile in enumerate(order) if tile.complaints]
        if bad and bad[-1] + 1 < len(order):
            last, first = order[bad[-1]].name, order[bad[-1] + 1].name
            case.words.note(
                f"in the order of use on rank {rank}, {last} is the last that is wrong and "
                f"{first} is right: look at what lies between"
            )
            return
