"""The weight of each sample: alike, and 1 in sum where the whole is a mean?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workbench.auditing.judging.case import Case, near
from workbench.auditing.messages import Vector


class Share(NamedTuple):
    """The elements of one loss, and the weight of each in the whole."""

    weight: float
    whose: str
    vector: Vector

    @property
    def total(self) -> float:
        return self.weight * self.vector.count


def shares(case: Case, row: Sequence[float | None]) -> list[Share] | None:
    """Return the elements of all losses under these weights; None: not known."""
    result = []
    for number, source in enumerate(case.sources[: case.whole_count]):
        for at in source.at:
            rank, loss = case.losses[at]
            vectors, weight = case.base[rank].losses[loss].vectors, row[number]
            if weight is None or not vectors or len(vectors) != 1 or vectors[0].weight is None:
                return None
            result.append(Share(weight * vectors[0].weight, case.whose([number]), vectors[0]))
    return result


def total_weight(case: Case, row: Sequence[float | None]) -> float | None:
    """Return the weight of all elements in sum; None: not known."""
    known = shares(case, row)
    return sum(one.total for one in known) if known else None


def judge_samples(case: Case) -> None:
    """Judge how much each element of the losses' vectors counts in the whole."""
    words, row = case.words, case.expected[: case.whole_count]
    if not any(one.any() for one in case.whole.values()):
        return words.blame("no gradient is used: parameters stay as they are")
    if not any(row) or case.bent:
        return None
    known = shares(case, row)
    if known is None:
        if len({f"{one:.3g}" for one in row if one is not None}) > 1:
            each = [f"{w:.3g} ({case.whose([c])})" for c, w in enumerate(row) if w is not None]
            words.ask(f"losses do not count alike: {', '.join(each)}. Is it meant?")
        return None
    dead = [one.whose for one in known if abs(one.weight) < 1e-9]
    if dead:
        words.blame(f"no sample of {', nor of '.join(dict.fromkeys(dead))} counts")
    _judge_alike(case, [one for one in known if abs(one.weight) > 1e-9])
    _judge_total(case, known, bool(dead))
    return None


def _judge_alike(case: Case, alive: list[Share]) -> None:
    """Blame samples that do not count alike."""
    weights = [one.weight for one in alive]
    tolerance = 0.15 if case.single else max(5e-3, 10 * case.left)
    if not alive or near(min(weights), max(weights), tolerance):
        return
    if not all(one.vector.alike for one in alive):
        return
    totals = [one.total for one in alive]
    why = ""
    if near(min(totals), max(totals), 5e-3):
        why = ": means over parts of different size are averaged as if these were equal"
    each = [
        f"{one.weight:.4g} each of the {int(one.vector.count)} of {one.whose}" for one in alive[:6]
    ]
    case.words.blame(f"samples do not count alike: {', '.join(each)}{why}")


def _judge_total(case: Case, known: list[Share], dead: bool) -> None:
    """Blame a factor in all gradients, where it is the size of something."""
    total = sum(one.total for one in known)
    if near(total, 1) or dead:
        return
    is_sum = any(not one.vector.is_mean for one in known)
    size, group = ("", ()) if is_sum else case.explain(total)
    each_is_1 = any(near(abs(one.vector.weight or 0), 1) and one.vector.count > 1 for one in known)
    if size and each_is_1:
        case.words.ask(
            f"every gradient is {total:.4g} times that of the mean over all samples{size}, or that "
            "of a sum, in which each sample counts 1: is a sum meant?",
            ranks=range(case.size),
        )
    elif size:
        case.words.blame(
            f"every gradient is {total:.4g} times that of the mean over all samples{size}",
            ranks=range(case.size),
            group=group,
            factor=total,
        )
    else:
        case.words.note(f"the whole weight of all elements is {total:.4g}: not a mean over them")
