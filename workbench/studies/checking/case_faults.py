"""Faults of a case that did not end well, a rule for each: raised, ended, late, and so on."""

from __future__ import annotations

from typing import Any

from workbench.studies.checking.cases import Case, expected
from workbench.studies.checking.rank_pool import Outcome

Fault = tuple[str, str]  # the kind, and a sentence


def first_fault(outcome: Outcome) -> Fault | None:
    """Return what was wrong with a case that did not end well; None if it did."""
    return next(filter(None, (rule(outcome) for rule in _RULES)), None)


def _raised(outcome: Outcome) -> Fault | None:
    """Name a rank that raised an error; first a rank's own error, then reports of another's end."""
    raised = [(rank, r["raised"]) for rank, r in sorted(outcome.reports.items()) if "raised" in r]
    own_errors = [(rank, error) for rank, error in raised if not _consequence(rank, error)]
    if not own_errors and (not raised or outcome.ended or outcome.late):
        return None
    rank, error = (own_errors or raised)[0]
    where = outcome.places(error["line"], error["function"])
    return "raised", f"rank {rank} raised {error['kind']} at {where.words}: {error['text']}"


def _ended(outcome: Outcome) -> Fault | None:
    """Name ranks whose processes ended."""
    if not outcome.ended or outcome.late:
        return None
    words = ", ".join(f"rank {rank} {how}" for rank, how in sorted(outcome.ended.items()))
    return "ended", words


def _late(outcome: Outcome) -> Fault | None:
    """Name ranks that are still running, before those that wait for them."""
    if not outcome.late:
        return None
    running = [stand for stand in outcome.late if stand.peer == -2] or outcome.late
    words = "; ".join(
        f"rank {stand.rank} is still running at {stand.place.words}"
        if stand.doing == "running"
        else f"rank {stand.rank} does not answer: it is in native code"
        if stand.doing == "silent"
        else stand.words
        for stand in running
    )
    waiting = [str(stand.rank) for stand in outcome.late if stand not in running]
    more = f"; ranks that wait meanwhile: {', '.join(waiting)}" if waiting else ""
    return "late", f"not done in time: {words}{more}"


def _outside(outcome: Outcome) -> Fault | None:
    """Name a rank that wrote where it must not."""
    for rank, report in sorted(outcome.reports.items()):
        if "outside" in report:
            what, line = report["outside"]
            where = outcome.places(line, "")
            return "outside", f"rank {rank} wrote {what}, at {where.words}"
    return None


def _shape(outcome: Outcome) -> Fault | None:
    """Name a rank that returned something of another shape or type."""
    for rank, report in sorted(outcome.reports.items()):
        if "shape" in report:
            what, line = report["shape"]
            want = f"{outcome.case.dtype} of shape ({_length(outcome.case, rank)},), or None"
            where = outcome.places(line, "")
            words = f"rank {rank} returned {what} at {where.words}; expected {want}"
            return "shape", words
    return None


def _changed(outcome: Outcome) -> Fault | None:
    """Name a rank that changed what must stay."""
    for rank, report in sorted(outcome.reports.items()):
        if report["changed"]:
            words = f"rank {rank} changed {report['changed'][0]}, which must stay as it is"
            return "changed", words
    return None


def _unreceived(outcome: Outcome) -> Fault | None:
    """Name a message that was sent and never received."""
    if not outcome.left:
        return None
    source, target, where, slots = outcome.left[0]
    more = f", and {len(outcome.left) - 1} more such" if len(outcome.left) > 1 else ""
    count = f" ({slots} slots)" if slots > 1 else ""
    words = f"rank {target} never received what rank {source} sent it{count} at {where.words}{more}"
    return "unreceived", words


# The first that applies is the verdict.
_RULES = (_raised, _ended, _late, _outside, _shape, _changed, _unreceived)


def _consequence(rank: int, error: dict[str, Any]) -> bool:
    """Return whether an error that ``rank`` raised only reports the failure of another rank."""
    reported = error["found_by"] not in (-1, rank) or error["how"] == "aborted"
    return reported or error["kind"] == "PeerLost"


def _length(case: Case, rank: int) -> int:
    want = expected(case, rank)
    return case.whole if want is None else len(want)
