"""The name of a bug: which mistake gives an update like this one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.common.names import listed
from workbench.studies.drift.evidence import EXACT, Evidence
from workbench.studies.drift.first_update import MEANS, WHOLE, Match
from workbench.studies.drift.rank_gradients import ALIKE, LEFT_OUT, WEIGHTS, RankMatch
from workbench.studies.drift.resuming import WORDS


def name_of(evidence: Evidence, since: int | None, torn: list[int]) -> str:
    """Return a description of the bug."""
    if evidence.resumed is not None:
        return f"{WORDS[evidence.resumed.lost]}: right until iteration {evidence.resumed.at}"
    if since:
        if evidence.uneven == since:
            return (
                "means over parts of different size are averaged as if the parts were equal: right "
                f"until iteration {since + 1}, the first whose minibatch the ranks cannot share "
                "evenly"
            )
        return f"right until iteration {since + 1}, whose update is the first wrong one"
    if torn:
        return _torn(evidence)
    first = evidence.first
    if first is None or not first.what:
        if evidence.begins_apart:
            return "the ranks begin with other parameters, or train on other samples"
        return f"the first update is not what any part of the minibatch gives{_only(first)}"
    if first.what in (WHOLE, MEANS):
        return f"{_scaled(first, evidence.ranks)}{_only(first)}"
    if isinstance(first, RankMatch) and first.what in (ALIKE, WEIGHTS, LEFT_OUT):
        return f"{_combined(first)}{_only(first)}"
    return f"all ranks take the same part of the minibatch, {_part(first.what)}"


def _only(first: Match | None) -> str:
    """Name the parameters that a finding is about, if these are not all."""
    names = first.only if isinstance(first, RankMatch) else ()
    return f" (only in {listed(names)})" if names else ""


def _combined(first: RankMatch) -> str:
    """Describe an update that the ranks' own gradients give under other weights, or of others."""
    if first.what == ALIKE:
        return "all ranks take the same samples of the minibatch"
    if first.what == LEFT_OUT:
        return (
            "the ranks' gradients are averaged, but they are not those of the whole minibatch: "
            "samples are left out or taken twice"
        )
    used = ", ".join(f"{one:.3g}" for one in first.weights)
    right = ", ".join(f"{one:.3g}" for one in first.proper)
    should = f"; right is {right}" if right else ""
    return f"the ranks' gradients are added with the weights {used}{should}"


def _torn(evidence: Evidence) -> str:
    if evidence.begins_apart:
        return "every rank begins with parameters of its own"
    first = evidence.first
    own = first is not None and first.what.startswith(("part", "block"))
    if isinstance(first, RankMatch) and 0 < len(first.ranks) < evidence.ranks and own:
        right = [rank for rank in range(evidence.ranks) if rank not in first.ranks]
        return (
            f"only {_ranks(right)} the reduced gradient, the others update with their own: "
            "does the loop reduce to one rank, and not to all?"
        )
    if own:
        return f"the gradients are not averaged: each rank trains alone{_only(first)}"
    return f"the ranks end with different parameters{_only(first)}"


def _ranks(ranks: Sequence[int]) -> str:
    names = listed([str(rank) for rank in ranks])
    return f"rank {names} has" if len(ranks) == 1 else f"ranks {names} have"


def _scaled(first: Match, ranks: int) -> str:
    """Describe a first update whose direction is right, or that of unweighted means."""
    passes = first.passes if isinstance(first, RankMatch) else 1
    if _close(first.scale, ranks) and ranks > 1:
        added = "gradients are added, and not divided by the number of ranks"
        if passes > 1:
            added += f", of {passes} backward passes each"
        return added
    if _close(first.scale, 1 / ranks) and ranks > 1:
        return (
            "gradients are divided by the number of ranks once too often, or the learning rate is"
        )
    times = round(first.scale)
    if times > 1 and _close(first.scale, times):
        return (
            f"the first update is {times} times the right one: gradients of {times} backward "
            "passes are added and not divided, or the learning rate is too large"
        )
    if not _close(first.scale, 1):
        return (
            f"the first update is {first.scale:.4g} times the right one: is it the learning rate?"
        )
    if first.what == MEANS:
        return "means over parts of different size are averaged as if the parts were equal"
    if first.left > EXACT:
        return (
            f"it computes with about {-np.log10(first.left):.0f} digits, whatever the dtype: "
            "something in it is converted or compressed"
        )
    return "the first update is right, what follows is not"


def _close(scale: float, target: float) -> bool:
    return abs(scale - target) <= 0.02 * target


def _part(what: str) -> str:
    kind, rank = what.split()
    return f"rank {rank}'s" if kind == "part" else f"block {rank} of it"


def is_named(evidence: Evidence) -> bool:
    """Return whether the first update, or replicas that differ, show a bug of the ranks."""
    first = evidence.first
    if not all(evidence.identical.values()) or first is None:
        return True
    return first.what not in ("", WHOLE) or _close(first.scale, evidence.ranks)


def unlike(evidence: Evidence, since: int | None) -> str:
    """Say how a loop's training differs from sequential training."""
    first = evidence.first
    if since:
        return f"they part at the update of iteration {since + 1}"
    if first is not None and not np.isfinite(first.cosine):
        return "it updates nothing in its first iteration"
    if first is None or first.what != WHOLE:
        return "its first update has another direction"
    if _close(first.scale, 1):
        return "the first update is the same, later ones are not"
    passes = round(first.scale)
    added = passes > 1 and _close(first.scale, passes)
    why = f" (gradients of {passes} backward passes, added and not divided?)" if added else ""
    return f"its first update is {first.scale:.4g} times as large{why}"
