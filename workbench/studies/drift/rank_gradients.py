"""The gradient that a loop used, as made up of the gradients of its ranks.

A right loop uses the gradient that the same loop uses on one rank. One that does not is compared
with its ranks' own gradients: their sum or mean, one rank's alone, or a sum under other weights. A
difference in some parameters only is told of these parameters only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.studies.drift.first_update import (
    EQUAL,
    MEANS,
    NAMED,
    WHOLE,
    Match,
    Start,
    Vector,
    best_match,
)
from workbench.studies.drift.probe import Gradients

ALIKE, WEIGHTS, LEFT_OUT = "the same samples", "other weights", "other samples"
TINY = 1e-3  # of the whole gradient's length: a shorter one is measured by that


@dataclass(frozen=True, kw_only=True)
class RankMatch(Match):
    """A match with the gradient that one rank uses, which also names parameters and ranks."""

    only: tuple[str, ...] = ()  # the parameters that it is about; () for all
    ranks: tuple[int, ...] = ()  # those whose update is wrong
    weights: tuple[float, ...] = ()  # of the ranks' gradients, in the used one; () if not known
    proper: tuple[float, ...] = ()  # and in the right one
    passes: int = 0  # backward passes of a rank before the update


def match_ranks(used: Gradients, alone: Gradients, start: Start) -> RankMatch:
    """Return what a loop's first update was made of. ``alone``: the gradients on one rank."""
    right, slices = alone.used[0], dict(_slices(start.parameters))
    wrong = tuple(rank for rank, one in enumerate(used.used) if _off(one, right, slices))
    mine = used.used[wrong[0] if wrong else 0]
    off = _off(mine, right, slices)
    only = tuple(off) if len(off) < len(slices) else ()
    keep = np.concatenate([np.arange(right.size)[slices[name]] for name in only or slices])
    # In the units of what was used: a bound on the norm, or a learning rate, is in both.
    unit = _projection(right, alone.own[0]) if alone.own else 0.0
    own = [unit * one[keep] for one in used.own] if unit else []
    match = _match(mine[keep], right[keep], own, start, keep)
    return replace(match, only=only, ranks=wrong, passes=used.passes)


def _match(
    mine: Vector, right: Vector, own: Sequence[Vector], start: Start, keep: Vector
) -> RankMatch:
    candidates = {WHOLE: right}
    alike = len(own) > 1 and all(_near(one, own[0], own[0]) for one in own)
    if alike:
        known = {n: g[keep] for n, g in start.gradients.items() if n not in (WHOLE, MEANS)}
        same = best_match(own[0], {WHOLE: right, **known})
        candidates[same.what if same.what not in ("", WHOLE) else ALIKE] = own[0]
    elif own:
        candidates[MEANS] = sum(own, np.zeros_like(right)) / len(own)
        candidates |= {f"part {rank}": one for rank, one in enumerate(own)}
    best = best_match(mine, candidates)
    weights, proper = _weights(mine, own), _weights(right, own)
    what = best.what
    if what == MEANS and not proper and abs(best.scale - 1) < NAMED:
        what = LEFT_OUT
    of_means = not proper or abs(sum(proper) - 1) < NAMED  # else a rank's gradient is not a mean
    if weights and not alike and (not what or (what == MEANS and not of_means)):
        what = WEIGHTS
    return RankMatch(
        what=what,
        scale=best.scale,
        left=best.left,
        cosine=best.cosine,
        weights=weights,
        proper=proper,
    )


def _weights(update: Vector, own: Sequence[Vector]) -> tuple[float, ...]:
    """Return the weights under which the ranks' gradients add up to an update; () if none do."""
    if not own:
        return ()
    columns = np.stack(own, axis=1)
    weights = np.linalg.lstsq(columns, update, rcond=None)[0]
    left = float(np.linalg.norm(update - columns @ weights))
    return tuple(map(float, weights)) if left <= EQUAL * float(np.linalg.norm(update)) else ()


def _projection(vector: Vector, onto: Vector) -> float:
    return float(vector @ onto) / (float(onto @ onto) or 1.0)


def _slices(parameters: Mapping[str, Vector]) -> Iterator[tuple[str, slice]]:
    at = 0
    for name, value in parameters.items():
        yield name, slice(at, at + value.size)
        at += value.size


def _off(mine: Vector, right: Vector, slices: Mapping[str, slice]) -> list[str]:
    """Return the parameters in which two gradients differ by more than rounding."""
    return [name for name, at in slices.items() if not _near(mine[at], right[at], right)]


def _near(mine: Vector, right: Vector, whole: Vector) -> bool:
    length = max(float(np.linalg.norm(right)), TINY * float(np.linalg.norm(whole)))
    return float(np.linalg.norm(mine - right)) <= EQUAL * length
