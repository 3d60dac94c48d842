"""Losses: which are one and the same, which are switched on by themselves, what is linear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from workbench.auditing.judging.case import (
    LONGER,
    Asking,
    Case,
    Source,
    braces,
    dot,
    near,
    numbered,
)
from workbench.auditing.judging.finding_tiles import used
from workbench.auditing.messages import Ask, Copy, Loss

_MANY = 8  # sources: beyond, each rank's and each microbatch's losses are one


def find_classes(case: Case) -> None:
    """Group losses that are one and the same on several ranks, as in tensor parallelism."""
    values = case.values(case.base)
    case.classes, case.first_of = [], []
    for i, loss in enumerate(case.losses):
        for kin, j in zip(case.classes, case.first_of, strict=True):
            alike = loss[1] == case.losses[j][1] and near(values[i], values[j], 1e-9)
            if alike and all(
                abs(due[i] - due[j]) <= case.tolerance * abs(due[i]) + case.noise()
                for due in case.due.values()
            ):
                kin.append(loss)
                break
        else:
            case.classes.append([loss])
            case.first_of.append(i)


def ask_for_same_samples(case: Case) -> Asking:
    """Ask about equal losses of ranks that do not depend on each other."""
    for kin in [one for one in case.classes if len(one) > 1 and one[0][1] == 0]:
        ranks = [rank for rank, _ in kin]
        if _gather_shards(case, ranks):
            case.words.ask(
                f"ranks {braces(ranks)} have equal losses, and shard parameters that each of them "
                "gathers: did they train on the same samples?",
                ranks=ranks,
            )
            continue
        asks = [case.nudged(case.tiles, 1, only=rank, times=LONGER) for rank in ranks]
        results = yield from case.ask(*asks)
        pairs = zip(ranks, results, strict=True)
        if any(case.moved(one) & ({*ranks} - {rank}) for rank, one in pairs):
            case.words.note(f"ranks {braces(ranks)} compute one loss together")
        else:
            case.words.ask(
                f"ranks {braces(ranks)} have equal losses, and none depends on another rank: did "
                "they train on the same samples?",
                ranks=ranks,
            )


def _gather_shards(case: Case, ranks: list[int]) -> bool:
    """Return whether each of these ranks gathers parameters that they shard."""
    gathered = False
    for tile in case.tiles:
        parts = case.leaf[tile.copies[0]].parts
        if tile.shards and parts is not None and parts.size > np.prod(tile.shape):
            gathered = True
        if tile.shards is not None and len({*ranks} & {*tile.ranks}) > 1:
            return False
    return gathered


def find_sources(case: Case) -> None:
    """Choose what is switched on by itself: each loss; where these are many, each rank's losses
    and each microbatch's.
    """
    felt = [
        (kin, at) for kin, at in zip(case.classes, case.first_of, strict=True) if _is_felt(case, at)
    ]
    if len(felt) <= _MANY:
        kinds = [[[one] for one in felt]]
    else:
        keys: list[Callable[[list[Loss]], object]] = [lambda kin: tuple(r for r, _ in kin)]
        if len({kin[0][1] for kin in case.classes}) > 1:
            keys.append(lambda kin: kin[0][1])
        kinds = []
        for key in keys:
            grouped = defaultdict[object, list[tuple[list[Loss], int]]](list)
            for kin, at in felt:
                grouped[key(kin)].append((kin, at))
            kinds.append([*grouped.values()])
    case.whole_count = len(kinds[0])
    case.sources = [
        Source([loss for kin, _ in group for loss in kin], [at for _, at in group])
        for kind in kinds
        for group in kind
    ]


def _is_felt(case: Case, at: int) -> bool:
    """Return whether any tile has an effect on a loss; others are of other exercises in the same
    script.
    """
    rank, number = case.losses[at]
    vectors = case.base[rank].losses[number].vectors
    off = bool(vectors) and vectors is not None and vectors[0].weight == 0
    return off or any(abs(due[at]) > 3 * case.noise() for due in case.due.values())


def switch_on(case: Case) -> Asking:
    """Measure what each source gives of the update, with small seeds: clipping must not begin."""
    for small in (2.0**-7,) if case.single else (2.0**-10, 2.0**-30):
        asks = [Ask(scale=dict.fromkeys(one.losses, small), rest=0.0) for one in case.sources]
        results = yield from case.ask(*asks)
        case.used = [
            {copy: (u - case.old.get(copy, 0)) / small for copy, u in used(case, one).items()}
            for one in results
        ]
        if _is_linear(case):
            break


def _is_linear(case: Case) -> bool:
    """Compare the whole with the sum of its parts. A factor that is not 1 is clipping; what is left
    is rounding, or compression.
    """
    case.factors, case.left = {}, 0.0
    for copy, whole in case.whole.items():
        parts = np.sum([one[copy] for one in case.used[: case.whole_count]], axis=0)
        if np.abs(parts).max() > 1e-12 and np.abs(whole).max() > 1e-12:
            factor = case.factors[copy] = dot(whole, parts) / dot(parts, parts)
            rest = float(np.linalg.norm(whole - factor * parts) / np.linalg.norm(whole))
            case.left = max(case.left, rest)
    return case.left < 0.05 and all(1e-3 < one < 1.01 for one in case.factors.values())


def judge_linearity(case: Case) -> None:
    """Say what scales the whole: clipping by one norm, by norms of parts, or nothing linear."""
    case.linear_tolerance = max(case.tolerance, 3 * case.left)
    factors = [*case.factors.values()]
    if case.left >= 0.05 or not all(1e-7 < one < 1e3 for one in factors):
        case.bent, case.linear_tolerance = True, case.tolerance
        case.words.note(
            "gradients are not linear in the losses, even where these are small (normalized, "
            "clipped by value, compressed?): judged as a whole, as if all losses counted alike"
        )
        case.sources, case.whole_count = [Source(case.losses, case.first_of)], 1
        case.used = [case.whole]
    elif factors and max(factors) - min(factors) > max(1e-2, 10 * case.left) * max(factors):
        _blame_parts(case)
    elif factors and not near(float(np.median(factors)), 1, 1e-2):
        case.words.note(
            f"all gradients are scaled by one factor, {np.median(factors):.4g}: clipping by norm"
        )
    if case.left > 1e-6 and not case.bent:
        case.words.note(
            f"the arithmetic is good to {case.left:.1g} only (rounding, or compression): what is "
            "smaller is not seen"
        )


def _blame_parts(case: Case) -> None:
    """Blame factors that differ."""
    by_factor = defaultdict[str, list[Copy]](list)
    for copy, factor in case.factors.items():
        by_factor[f"{factor:.3g}"].append(copy)
    names = {name for _, name in case.factors}
    parts = []
    for factor_text, copies in by_factor.items():
        ranks, mine = {rank for rank, _ in copies}, {name for _, name in copies}
        where = ", ".join(sorted(mine)[:3])
        if mine == names:
            where = numbered(ranks)
        parts.append(f"{factor_text} on {where}")
    every = sorted({rank for rank, _ in case.factors})
    case.words.blame(
        f"parts of one gradient are scaled by different factors ({'; '.join(parts)}): clipped by "
        "norms of parts, and not by the norm of the whole",
        ranks=every,
        group=every if len(every) > 1 else (),
    )
