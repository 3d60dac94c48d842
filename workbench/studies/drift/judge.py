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
5  A loop of one's own need not be plain SGD (it may clip, warm up, decay): where it differs from
   sequential training it is compared with the same loop on one rank. Equal to that, it is another
   algorithm, and no bug; what differs is a bug of its ranks (rank_gradients.py). Where the task
   draws random numbers, or couples the samples of a minibatch, right ranks differ too, and the
   verdict says that a bug cannot be told from that.
6  The kind of bug follows from the gradient of the first update (first_update.py), and from
   whether the loss differs before the first update.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.experiment.optimizers import RULES
from workbench.studies.drift.evidence import EXACT, Evidence, Finding
from workbench.studies.drift.naming import is_named, name_of, unlike

SHRINK = 2.0**15  # half of the way, in digits, from a bug's 1 to rounding's 2^29
JUMP = 2.0**15  # times in one iteration; rounding grows by less than ten
RESUMED = 1e-6  # times the distance to right training: so near to one that resumes is that one
SAME, ROUNDING, BUG, FAILED = "no difference", "rounding", "bug", "failed"
OTHER = "another algorithm"  # than sequential training, on purpose


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
    finding = Finding(
        kind, name_of(evidence, since, torn), _reasons(evidence, drifted, torn, since), since
    )
    if evidence.one_rank is None or evidence.resumed is not None:
        return finding
    return _beside_one_rank(evidence, evidence.one_rank, finding)


def _beside_one_rank(evidence: Evidence, one_rank: Evidence, finding: Finding) -> Finding:
    """Return the verdict on a loop that is not sequential training."""
    rule = RULES[evidence.rule].title
    if one_rank.error is not None:
        why = one_rank.error.splitlines()[-1].strip()
        reason = f"on one rank the loop fails ({why}), so it is compared with {rule} only"
        finding = replace(finding, reasons=(*finding.reasons, reason))
        if is_named(evidence):
            return finding
        return replace(finding, kind=OTHER, which=f"it is not {rule}; or a bug: {finding.which}")
    same = judge(replace(one_rank, one_rank=None, error=None))
    if same.kind in (ROUNDING, SAME):
        how = unlike(evidence, finding.since)
        which = f"equal to the same loop on one rank, but not to {rule}: {how}"
        return Finding(OTHER, which, (*same.reasons, *finding.reasons), finding.since)
    if (evidence.draws or evidence.couples) and all(evidence.identical.values()):
        why = (
            "the task draws random numbers, and the ranks draw others than one process does"
            if evidence.draws
            else "the loss couples the samples of a minibatch (batch normalization, for example), "
            "and each rank has only its own"
        )
        why += "; or a bug of the loop, which cannot be told from that here"
        return Finding(OTHER, why, same.reasons, same.since)
    return same


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
    if evidence.begins_apart:
        reasons.append(
            f"the first loss is off by {evidence.loss64[0]:.1e}, before anything was updated"
        )
    if evidence.first is not None and np.isfinite(evidence.first.cosine):
        reasons.append(
            f"the first update makes a cosine of {evidence.first.cosine:.6f} with the right one"
        )
    return tuple(reasons)


def _updates(count: int) -> str:
    return "one update" if count == 1 else f"{count} updates"
