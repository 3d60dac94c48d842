"""What came of one case: is it right, are replicas identical, what is wrong where, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.checking.cases import OWNER, RENDEZVOUS, Array, Case, expected, inputs, pairs
from workbench.checking.crew import Outcome
from workbench.checking.steps import Traffic
from workbench.checking.waiting import Deadlock, Stand
from workbench.control import ABORTED
from workbench.formulas import lower_bound
from workbench.laws import sum_error

REPLICATED = ("all_reduce", "all_gather", "broadcast")  # every rank ends with the same
RIGHT, WRONG, NOT_RUN = "right", "wrong", "not run"


@dataclass(frozen=True)
class Wrong:
    """The first wrong stretch of what a rank holds."""

    rank: int
    first: int
    last: int
    words: str  # what is wrong with it
    lacks: tuple[int, ...] = ()
    extra: tuple[tuple[int, int], ...] = ()  # rank, how many times


# Of each rank, of each of n chunks: how many times each rank's part is in.
Parts = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class Judged:
    """One case and what came of it. ``how``: right, wrong, deadlock, raised, late, ended,
    unreceived, shape, outside, changed, not run. ``words`` says more, unless it is right.
    ``error``: of sums, as a share of LAWS' bound; at most 1 is right."""

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
    broke: bool = False  # its ranks were of no use any more

    @property
    def ok(self) -> bool:
        return self.how == RIGHT

    @property
    def bound(self) -> float:
        """Bytes that the busiest rank must send at least."""
        itemsize = np.dtype(self.case.dtype).itemsize
        if self.case.uneven:  # all that is for others, once
            parts = pairs(self.case)
            return float((parts.sum(axis=1) - parts.diagonal()).max() * itemsize)
        nbytes = self.case.whole * itemsize
        return lower_bound(self.case.ranks, nbytes, self.case.operation)

    @property
    def within(self) -> bool:
        """Does no rank send more than it must? Chunks that are not all of one size are allowed."""
        cuts = self.case.operation != "all_to_all"  # there the parts are given
        slack = 2 * self.case.ranks * np.dtype(self.case.dtype).itemsize * cuts
        return max(self.sent, default=0) <= self.bound + slack

    @property
    def times(self) -> float:
        """How many times what it must the busiest rank sends."""
        return max(self.sent, default=0) / self.bound if self.bound else 0.0


Verdict = Callable[..., Judged]  # what happened, in words, and fields of Judged


def judged(found: Outcome, rows: Traffic) -> Judged:
    """The outcome's verdict: what went wrong first comes first."""
    case = found.case
    sent = tuple(rows.sent.get(found.op, {}).get(rank, 0) for rank in range(case.ranks))
    verdict = Judged(
        case, RIGHT, sent=sent, steps=rows.steps.get(found.op, 0), op=found.op,
        output=_printed(found), broke=found.broke,
    )  # fmt: skip

    def is_(how: str, words: str, **more: Any) -> Judged:
        return Judged(**{**vars(verdict), "how": how, "words": words, **more})

    if (stands := _for_nobody(found)) and (first := stands[0]):
        words = f"rank {first.peer} never receives what rank {first.rank} sends it"
        return is_("unreceived", f"{words} at {first.place.words}")
    if found.deadlock is not None:
        return is_("deadlock", found.deadlock.words, deadlock=found.deadlock)
    return _broken(found, is_) or _result(found, is_)


def _for_nobody(found: Outcome) -> tuple[Stand, ...]:
    """Ranks that wait in a send until somebody takes it who has returned: no deadlock, were it not
    for the rendezvous."""
    deadlock = found.deadlock
    if deadlock is None or deadlock.cycle or found.case.mode != RENDEZVOUS:
        return ()
    return deadlock.stands if all(one.doing == "send" for one in deadlock.stands) else ()


def _broken(found: Outcome, is_: Verdict) -> Judged | None:
    """What did not come to a good end."""
    reports, place = sorted(found.reports.items()), found.places
    raised = [(rank, r["raised"]) for rank, r in reports if "raised" in r]
    own = [one for one in raised if not _consequence(one[1])]
    if own or (raised and not found.ended and not found.late):
        rank, error = (own or raised)[0]
        where = place(error["line"], error["function"])
        return is_(
            "raised", f"rank {rank} raised {error['kind']} at {where.words}: {error['text']}"
        )
    if found.ended and not found.late:
        words = ", ".join(f"rank {rank} {how}" for rank, how in sorted(found.ended.items()))
        return is_("ended", words)
    if found.late:
        running = [stand for stand in found.late if stand.peer == -2] or found.late
        words = "; ".join(
            f"rank {stand.rank} is still running at {stand.place.words}"
            if stand.doing == "running"
            else f"rank {stand.rank} does not answer: it is in native code"
            if stand.doing == "silent"
            else stand.words
            for stand in running
        )
        waiting = [str(stand.rank) for stand in found.late if stand not in running]
        more = f"; ranks that wait meanwhile: {', '.join(waiting)}" if waiting else ""
        return is_("late", f"not done in time: {words}{more}")
    for rank, report in reports:
        if "outside" in report:
            what, line = report["outside"]
            return is_("outside", f"rank {rank} wrote {what}, at {place(line, '').words}")
    for rank, report in reports:
        if "shape" in report:
            what, line = report["shape"]
            want = f"{found.case.dtype} of shape ({_length(found.case, rank)},), or None"
            return is_(
                "shape",
                f"rank {rank} returned {what} at {place(line, '').words}; expected {want}",
            )
    for rank, report in reports:
        if report["changed"]:
            words = f"rank {rank} changed {report['changed'][0]}, which must stay as it is"
            return is_("changed", words)
    if found.left:
        source, target, where, slots = found.left[0]
        more = f", and {len(found.left) - 1} more such" if len(found.left) > 1 else ""
        count = f" ({slots} slots)" if slots > 1 else ""
        words = (
            f"rank {target} never received what rank {source} sent it{count} at {where.words}{more}"
        )
        return is_("unreceived", words)
    return None


def _consequence(error: dict[str, Any]) -> bool:
    """Does it only say that somebody else failed?"""
    heard = "(found by rank" in error["text"] or ABORTED in error["text"]
    return heard or error["kind"] == "PeerLost"


def _length(case: Case, rank: int) -> int:
    want = expected(case, rank)
    return case.whole if want is None else len(want)


def _result(found: Outcome, is_: Verdict) -> Judged:
    case = found.case
    if case.operation == "barrier":
        return _barrier(found, is_)
    wrong: list[Wrong] = []
    worst = 0.0
    got: dict[int, Array] = {}
    for rank in range(case.ranks):
        want = expected(case, rank)
        if want is None or (case.operation == "reduce" and rank != case.root):
            continue
        got[rank] = np.frombuffer(bytes(found.results[rank]), case.dtype)
        error = _error(case, rank, got[rank], want)
        worst = max(worst, error)
        if error > 1:
            wrong.append(_stretch(case, rank, got[rank], want))
    identical = (
        case.operation not in REPLICATED or len({one.tobytes() for one in got.values()}) <= 1
    )
    if not wrong:
        return is_(RIGHT, "", error=worst, identical=identical)
    first = wrong[0]
    words = f"rank {first.rank}'s {first.words}"
    if len(wrong) > 1:
        words += f" ({len(wrong)} of {case.ranks} ranks are wrong)"
    return is_(
        WRONG, words, error=worst, identical=identical, wrong=tuple(wrong), parts=_parts(case, got)
    )


def _parts(case: Case, got: dict[int, Array]) -> Parts:
    """Whose parts are in each chunk; in one that is wrong, of its first wrong element."""
    if not (case.tagged and case.operation == "all_reduce" and case.elements >= case.ranks):
        return ()
    n = case.ranks

    def counts(chunk: Array) -> tuple[int, ...]:
        bad = np.flatnonzero(chunk != sum(case.base**rank for rank in range(n)))
        value = int(chunk[bad[0] if len(bad) else 0])
        return tuple(value // case.base**rank % case.base for rank in range(n))

    return tuple(
        tuple(counts(chunk) for chunk in np.array_split(got[rank], n)) for rank in range(n)
    )


def _barrier(found: Outcome, is_: Verdict) -> Judged:
    entered = {rank: report["entered"] for rank, report in found.reports.items()}
    last = max(entered, key=lambda rank: entered[rank])
    for rank, report in sorted(found.reports.items()):
        if report["left"] < entered[last]:
            early = (entered[last] - report["left"]) / 1e6
            words = f"rank {rank} left {early:.2f} ms before rank {last} had come"
            return is_(WRONG, words)
    return is_(RIGHT, "")


def _error(case: Case, rank: int, got: Array, want: Array) -> float:
    """At most 1 where it is right: of sums, the share of the bound that rounding takes."""
    if got.shape != want.shape:
        return float("inf")
    if case.adds and case.reduce == "SUM":
        parts = slice(None)
        if case.operation == "reduce_scatter":
            parts = slice(rank * case.elements, (rank + 1) * case.elements)
        return sum_error(got, [x[parts] for x in inputs(case)])
    return 0.0 if np.array_equal(got, want, equal_nan=want.dtype.kind == "f") else float("inf")


def _stretch(case: Case, rank: int, got: Array, want: Array) -> Wrong:
    """The first run of elements that are wrong in the same way."""
    different = np.flatnonzero(got != want)
    if case.dtype.startswith("float") and case.adds:  # rounding is not wrong
        different = np.flatnonzero(
            ~np.isclose(got, want, rtol=1e-2 if "16" in case.dtype else 1e-4)
        )
    first = int(different[0]) if len(different) else 0
    same = 1
    alike = got - want if case.tagged else np.zeros_like(got)
    while (
        same < len(different)
        and different[same] == first + same
        and alike[first + same] == alike[first]
    ):
        same += 1
    last = first + same - 1
    value, right = got[first], want[first]
    name, one = _elements(first, last, len(got), case), first == last
    if case.tagged and case.adds:
        digits = [int(value) // case.base**r % case.base for r in range(case.ranks)]
        lacks = tuple(r for r, count in enumerate(digits) if count == 0)
        extra = tuple((r, count) for r, count in enumerate(digits) if count > 1)
        if lacks or extra:
            return Wrong(rank, first, last, f"{name} {_lacks(lacks, extra, one)}", lacks, extra)
    if case.tagged:
        holds = f"{name} {'holds' if one else 'hold'} {_whose(value)}"
        return Wrong(rank, first, last, f"{holds} instead of {_whose(right)}")
    return Wrong(rank, first, last, f"element {first} is {value:g}, expected {right:g}")


def _elements(first: int, last: int, count: int, case: Case) -> str:
    """ "elements 250 to 499 of 1,000 (part 1 of 4)"."""
    if first == last:
        name = f"element {first} of {count:,}"
    else:
        name = f"elements {first} to {last} of {count:,}"
    p = case.ranks
    if count >= p > 1:
        whole, extra = divmod(count, p)
        ends = [i * whole + min(i, extra) for i in range(p + 1)]
        if first in ends[:-1] and last + 1 in ends and last > first:
            a, b = ends.index(first), ends.index(last + 1) - 1
            name += f" (chunk {a} of {p})" if a == b else f" (chunks {a} to {b} of {p})"
    return name


def _lacks(lacks: tuple[int, ...], extra: tuple[tuple[int, int], ...], one: bool) -> str:
    words, s = [], "s" if one else ""
    if lacks:
        words.append(
            f"lack{s} the part of rank{'s' * (len(lacks) > 1)} {', '.join(map(str, lacks))}"
        )
    if extra:
        words.append(
            f"hold{s} " + ", ".join(f"rank {rank}'s part {count} times" for rank, count in extra)
        )
    return " and ".join(words)


def _whose(value: Any) -> str:
    owner, element = divmod(int(value), OWNER)
    return f"rank {owner}'s element {element}"


def _printed(found: Outcome) -> str:
    """What the ranks printed: the start of it, and how much there was."""
    lines = []
    for rank, report in sorted(found.reports.items()):
        if not (count := report.get("characters", 0)):
            continue
        kept = report["output"][:1000]
        shown = [line if len(line) <= 120 else f"{line[:119]}…" for line in kept.splitlines()[:10]]
        lines += [f"[rank {rank}] {line}" for line in shown]
        if count > sum(map(len, shown)) + len(shown):
            lines.append(f"[rank {rank}] ... {count:,} characters in all")
    return "\n".join(lines)
