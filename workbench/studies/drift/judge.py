"""Bug or rounding: the rules, over measured differences. Each names its evidence.

1  Rounding shrinks with precision: from float32 to float64 by about 2^29. A bug does not shrink.
   A difference, as a share of the way that training went, that shrinks by less than 2^15 is not
   rounding.
2  Rounding is there after one update, at 1e-7 of it, and grows by a factor per iteration that
   depends on the model. A bug is there at once, at the size of lr·|g|. A bug that waits for the
   first uneven minibatch shows as a jump of the float64 loss.
3  Replicas of synchronous training are bit-identical after every update: all of them computed the
   same sums. Digests that differ are a bug, however small the difference.
4  A training that is right until an iteration may have resumed there, from a checkpoint that lacks
   something: then it equals one process that does the same (resuming.py), within rounding.
5  The kind of bug follows from the gradient of the first update (first_update.py), and from
   whether the loss differs before the first update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from workbench.studies.drift.first_update import MEANS, WHOLE, Match
from workbench.studies.drift.measure import Numbers
from workbench.studies.drift.resuming import WORDS, Resumed

SHRINK = 2.0**15  # half of the way, in digits, from a bug's 1 to rounding's 2^29
EXACT = 1e-12  # a share, or a relative loss, that float64 alone explains
JUMP = 2.0**15  # times in one iteration; rounding grows by less than ten
RESUMED = 1e-6  # times the distance to right training: so near to one that resumes is that one
SAME, ROUNDING, BUG, FAILED = "no difference", "rounding", "bug", "failed"
OTHER = "another algorithm"  # than sequential training, on purpose: a strategy that says so


@dataclass(frozen=True)
class Evidence:
    """One training against the sequential one; "by iteration" from 0, ``shares`` by updates."""

    ranks: int
    loss32: Numbers  # |loss - sequential loss| by iteration
    loss64: Numbers
    level: float  # the sequential loss at the start: what a difference of losses is measured by
    shares32: Mapping[int, float] = field(default_factory=dict)
    shares64: Mapping[int, float] = field(default_factory=dict)
    identical: Mapping[int, bool] = field(default_factory=dict)  # were all digests equal?
    first: Match | None = None
    uneven: int | None = None  # the first iteration whose minibatch the ranks cannot share evenly
    error: str | None = None
    resumed: Resumed | None = None  # the known bug of resuming whose parameters it has
    ours: bool = False  # a strategy of the workbench's own, which has its laws


@dataclass(frozen=True)
class Finding:
    """A verdict with its reasons.

    ``since``: the iteration of the first wrong update; None if that is unknown, or nothing is
    wrong.
    """

    kind: str
    which: str = ""
    reasons: tuple[str, ...] = ()
    since: int | None = None

    @property
    def verdict(self) -> str:
        return f"{self.kind}: {self.which}" if self.which else self.kind


def judge(evidence: Evidence) -> Finding:
    """Return the verdict on one training."""
    if evidence.error is not None:
        lines = [one for one in evidence.error.splitlines() if one.strip()]
        traced = len(lines) > 1 and lines[0].endswith(":")
        message = f"{lines[0]} {lines[-1]}" if traced else next(iter(lines), "")
        return Finding(FAILED, message, tuple(lines[1:]))
    both = [k for k in evidence.shares64 if k in evidence.shares32]
    drifted = [k for k in both if not _shrinks(evidence.shares32[k], evidence.shares64[k])]
    torn = [k for k, same in evidence.identical.items() if not same]
    since = evidence.resumed.at if evidence.resumed else _first_wrong(evidence, drifted, torn)
    if not drifted and not torn and since is None:
        return _no_bug(evidence, both)
    if not torn and since is None and _chaotic(evidence, drifted):
        return Finding(
            ROUNDING,
            "",
            (
                "it grew until nothing of it is left to compare (chaos): judge by the first "
                f"iterations, up to {_before(both, drifted)} updates it shrank as rounding does",
            ),
        )
    kind = OTHER if evidence.ours else BUG
    return Finding(
        kind, _which(evidence, since, torn), _reasons(evidence, drifted, torn, since), since
    )


def _shrinks(share32: float, share64: float) -> bool:
    return not share64 > max(share32 / SHRINK, EXACT)


def _first_wrong(evidence: Evidence, drifted: list[int], torn: list[int]) -> int | None:
    """Return the iteration of the first wrong update; None if it is not known."""
    if 1 in drifted or 1 in torn:
        return 0
    largest = EXACT * max(evidence.level, 1e-300)
    for iteration, now in enumerate(evidence.loss64):
        if now > JUMP * largest:
            return max(iteration - 1, 0)
        largest = max(largest, float(now))
    return None


def _chaotic(evidence: Evidence, drifted: list[int]) -> bool:
    """Return whether float32's rounding grew to the size of training itself, without a float64
    jump.
    """
    return all(evidence.shares32[k] > 1e-3 for k in drifted)


def _before(both: list[int], drifted: list[int]) -> int:
    return max((k for k in both if k < min(drifted)), default=0)


def _no_bug(evidence: Evidence, both: list[int]) -> Finding:
    if not any(evidence.shares32[k] or evidence.shares64[k] for k in both):
        return Finding(SAME, "", ("the same bits in float32 and in float64",))
    last = max(both, default=0)
    sentences = [
        f"after {_updates(last)} {evidence.shares32[last]:.1e} of the way in float32, "
        f"{evidence.shares64[last]:.1e} in float64"
    ]
    if evidence.shares64[last]:
        times = evidence.shares32[last] / evidence.shares64[last]
        sentences.append(
            f"{times:,.0f} times less with 29 more bits: 2^{np.log2(max(times, 1)):.0f}"
        )
    if evidence.identical:
        sentences.append("the replicas are bit-identical")
    return Finding(ROUNDING, "", tuple(sentences))


def _reasons(
    evidence: Evidence, drifted: list[int], torn: list[int], since: int | None
) -> tuple[str, ...]:
    reasons = []
    if drifted:
        k = min(drifted)
        times = evidence.shares32[k] / evidence.shares64[k]
        reasons.append(
            f"after {_updates(k)} {evidence.shares64[k]:.1e} of the way off in float64, and "
            f"{evidence.shares32[k]:.1e} in float32: it does not shrink with precision "
            f"({times:.2f} times less)"
        )
    if evidence.resumed is not None:
        reasons.append(
            "one process that resumes so ends with the same parameters, but for rounding"
        )
    elif since is not None and since > 0:
        reasons.append(
            f"in float64 the loss jumps in iteration {since + 2}; until then only rounding"
        )
    if torn:
        reasons.append(f"the replicas' digests differ after {_updates(min(torn))}")
    if _begins_apart(evidence):
        reasons.append(
            f"the first loss is off by {evidence.loss64[0]:.1e}, before anything was updated"
        )
    if evidence.first is not None and np.isfinite(evidence.first.cosine):
        reasons.append(
            f"the first update makes a cosine of {evidence.first.cosine:.6f} with the right one"
        )
    return tuple(reasons)


def _begins_apart(evidence: Evidence) -> bool:
    return bool(len(evidence.loss64)) and float(evidence.loss64[0]) > 1e-9 * evidence.level


def _which(evidence: Evidence, since: int | None, torn: list[int]) -> str:
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
        if _begins_apart(evidence):
            return "the ranks begin with other parameters, or train on other samples"
        return "the first update is not what any part of the minibatch gives"
    if first.what in (WHOLE, MEANS):
        return _scaled(first, evidence.ranks)
    return f"all ranks take the same part of the minibatch, {_part(first.what)}"


def _torn(evidence: Evidence) -> str:
    if _begins_apart(evidence):
        return "every rank begins with parameters of its own"
    if evidence.first is not None and evidence.first.what.startswith(("part", "block")):
        return "nobody averages: every rank trains for itself"
    return "the ranks end with different parameters"


def _scaled(first: Match, ranks: int) -> str:
    """Describe a first update whose direction is right, or that of unweighted means."""
    if _close(first.scale, ranks) and ranks > 1:
        return "gradients are added, and nobody divides by the number of ranks"
    if _close(first.scale, 1 / ranks) and ranks > 1:
        return (
            "gradients are divided by the number of ranks once too often, or the learning rate is"
        )
    passes = round(first.scale)
    if passes > 1 and _close(first.scale, passes):
        return (
            f"the first update is {passes} times the right one: gradients of {passes} backward "
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


def _updates(count: int) -> str:
    return "one update" if count == 1 else f"{count} updates"
