"""The verdict on one case: is the result right, are replicas identical, and what is wrong where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.formulas import lower_bound
from workbench.laws import sum_error
from workbench.studies.checking.case_faults import first_fault
from workbench.studies.checking.cases import (
    MODES,
    RENDEZVOUS,
    Array,
    Case,
    expected,
    inputs,
    pair_lengths,
    summands,
)
from workbench.studies.checking.rank_pool import Outcome
from workbench.studies.checking.steps import Traffic
from workbench.studies.checking.waiting import Deadlock, Stand
from workbench.studies.checking.wrong_elements import Wrong, first_wrong

REPLICATED = ("all_reduce", "all_gather", "broadcast")  # every rank ends with the same
RIGHT, WRONG, NOT_RUN = "right", "wrong", "not run"


# Rank, chunk, contributor -> how often the contribution is in the rank's chunk.
Parts = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one case.

    ``how``: right, wrong, deadlock, raised, late, ended, unreceived, shape, outside, changed, not
    run.
    ``words`` describes the fault, unless it is right. ``error``: the error of sums, as a share of
    the
    bound in LAWS; at most 1 is right.
    """

    case: Case
    how: str
    words: str = ""
    error: float = 0.0
    identical: bool = True
    sent: tuple[int, ...] = ()  # bytes, by rank
    steps: int = 0
    deadlock: Deadlock | None = None
    wrong: tuple[Wrong, ...] = ()
    parts: Parts = ()
    output: str = ""
    op: int = -1
    broke: bool = False  # its ranks could not run another case

    @property
    def ok(self) -> bool:
        return self.how == RIGHT

    @property
    def bound(self) -> float:
        """The least number of bytes that the busiest rank must send."""
        itemsize = np.dtype(self.case.dtype).itemsize
        if self.case.uneven:  # everything meant for other ranks, sent once
            lengths = pair_lengths(self.case)
            return float((lengths.sum(axis=1) - lengths.diagonal()).max() * itemsize)
        nbytes = self.case.whole * itemsize
        return lower_bound(self.case.ranks, nbytes, self.case.operation)

    @property
    def within(self) -> bool:
        """Whether no rank sends more than it must. Chunks of unequal size are allowed."""
        cuts = self.case.operation != "all_to_all"  # where the caller gives the sizes
        slack = 2 * self.case.ranks * np.dtype(self.case.dtype).itemsize * cuts
        return max(self.sent, default=0) <= self.bound + slack

    @property
    def times(self) -> float:
        """Bytes that the busiest rank sends, as a multiple of the bound."""
        return max(self.sent, default=0) / self.bound if self.bound else 0.0


VerdictMaker = Callable[..., Verdict]  # takes ``how``, ``words`` and other fields of Verdict


def judge(outcome: Outcome, costs: Traffic) -> Verdict:
    """Return the verdict on an outcome. The fault that came first counts."""
    case = outcome.case
    sent = tuple(costs.sent.get(outcome.op, {}).get(rank, 0) for rank in range(case.ranks))
    verdict = Verdict(
        case,
        RIGHT,
        sent=sent,
        steps=costs.steps.get(outcome.op, 0),
        op=outcome.op,
        output=_printed(outcome),
        broke=outcome.broke,
    )

    def is_(how: str, words: str, **more: Any) -> Verdict:
        return Verdict(**{**vars(verdict), "how": how, "words": words, **more})

    if (stands := _never_received(outcome)) and (first := stands[0]):
        words = f"rank {first.peer} never receives what rank {first.rank} sends it"
        return is_("unreceived", f"{words} at {first.place.words}")
    if outcome.deadlock is not None:
        return is_("deadlock", outcome.deadlock.words, deadlock=outcome.deadlock)
    if (fault := first_fault(outcome)) is not None:
        return is_(*fault)
    return _result(outcome, is_)


def _never_received(outcome: Outcome) -> tuple[Stand, ...]:
    """Return the ranks that wait in a send to a rank that has returned.

    Without rendezvous this would not be a deadlock, but messages that are never received.
    """
    deadlock = outcome.deadlock
    if deadlock is None or deadlock.cycle or outcome.case.mode != RENDEZVOUS:
        return ()
    return deadlock.stands if all(stand.doing == "send" for stand in deadlock.stands) else ()


def _result(outcome: Outcome, is_: VerdictMaker) -> Verdict:
    case = outcome.case
    if case.operation == "barrier":
        return _barrier(outcome, is_)
    wrong: list[Wrong] = []
    worst = 0.0
    got: dict[int, Array] = {}
    for rank in range(case.ranks):
        want = expected(case, rank)
        if want is None or (case.operation == "reduce" and rank != case.root):
            continue
        got[rank] = np.frombuffer(bytes(outcome.results[rank]), case.dtype)
        error = _error(case, rank, got[rank], want)
        worst = max(worst, error)
        if error > 1:
            wrong.append(first_wrong(case, rank, got[rank], want))
    identical = (
        case.operation not in REPLICATED or len({values.tobytes() for values in got.values()}) <= 1
    )
    if not wrong:
        return is_(RIGHT, "", error=worst, identical=identical)
    return is_(
        WRONG,
        _of_ranks(case, wrong),
        error=worst,
        identical=identical,
        wrong=tuple(wrong),
        parts=_parts(case, got),
    )


def _parts(case: Case, got: dict[int, Array]) -> Parts:
    """Return whose contributions are in each chunk; in a wrong one, in its first wrong element."""
    if not (case.tagged and case.operation == "all_reduce" and case.elements >= case.ranks):
        return ()
    n = case.ranks

    def counts(chunk: Array) -> tuple[int, ...]:
        bad = np.flatnonzero((chunk != 1).any(axis=1))
        return tuple(int(count) for count in chunk[bad[0] if len(bad) else 0])

    return tuple(
        tuple(counts(chunk) for chunk in np.array_split(summands(case, got[rank]), n))
        for rank in range(n)
    )


def _barrier(outcome: Outcome, is_: VerdictMaker) -> Verdict:
    entered = {rank: report["entered"] for rank, report in outcome.reports.items()}
    last = max(entered, key=lambda rank: entered[rank])
    for rank, report in sorted(outcome.reports.items()):
        if report["left"] < entered[last]:
            early = (entered[last] - report["left"]) / 1e6
            words = f"rank {rank} left {early:.2f} ms before rank {last} had come"
            return is_(WRONG, words)
    return is_(RIGHT, "")


def _error(case: Case, rank: int, got: Array, want: Array) -> float:
    """Return the error; at most 1 is right. For sums it is the share of the rounding bound."""
    if got.shape != want.shape:
        return float("inf")
    if case.adds and case.reduce == "SUM":
        share = slice(None)
        if case.operation == "reduce_scatter":
            share = slice(rank * case.elements, (rank + 1) * case.elements)
        return sum_error(got, [x[share] for x in inputs(case)])
    return 0.0 if np.array_equal(got, want, equal_nan=want.dtype.kind == "f") else float("inf")


def accept_rounding(cases: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts, with errors that rounding explains in both modes described as rounding.

    Digits are in opposite order in the two modes, so a missing contribution would be a large error
    in
    one of them.
    """
    small = {
        verdict.case
        for verdict in cases
        if verdict.wrong and all(stretch.rounded for stretch in verdict.wrong)
    }
    explained = {case for case in small if {replace(case, mode=mode) for mode in MODES} <= small}
    return [_as_rounded(verdict) if verdict.case in explained else verdict for verdict in cases]


def _as_rounded(verdict: Verdict) -> Verdict:
    wrong = tuple(
        Wrong(stretch.rank, stretch.first, stretch.last, stretch.rounded)
        for stretch in verdict.wrong
    )
    return replace(verdict, words=_of_ranks(verdict.case, wrong), wrong=wrong, parts=())


def _of_ranks(case: Case, wrong: Sequence[Wrong]) -> str:
    words = f"rank {wrong[0].rank}'s {wrong[0].words}"
    return words + f" ({len(wrong)} of {case.ranks} ranks are wrong)" * (len(wrong) > 1)


def _printed(outcome: Outcome) -> str:
    """Return the start of what the ranks printed, and the number of characters."""
    lines = []
    for rank, report in sorted(outcome.reports.items()):
        if not (count := report.get("characters", 0)):
            continue
        kept = report["output"][:1000]
        shown = [line if len(line) <= 120 else f"{line[:119]}…" for line in kept.splitlines()[:10]]
        lines += [f"[rank {rank}] {line}" for line in shown]
        if count > sum(map(len, shown)) + len(shown):
            lines.append(f"[rank {rank}] ... {count:,} characters in all")
    return "\n".join(lines)
