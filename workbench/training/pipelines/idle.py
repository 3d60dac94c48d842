"""The reasons of a pipeline's idle time in one iteration, gap by gap, to the nanosecond. Pure.

assets/scenes/pipeline/idle.js does the same for the page, number by number; bubble.py adds this up.

The time of an iteration, on every rank of a replica alike, is from the first action's start to the
last one's end, on any of its ranks. What a rank does not compute in it is idle, gap by gap:

    while it stood still         fault
    after its input was made     communication: the message's way, and the handling of it; the whole
                                 gap where nothing was needed from another rank
    before that, or at the end   waiting for other ranks. How much of all that a rank waits is whose
                                 fault is told by following the schedule again, messages free:
        equal stages             warm-up and drain: what the schedule itself costs
        + each stage its own     imbalance: what stages of different length add
        + each action its own    imbalance too: what single actions add
        + what stood still       fault: what that adds, in actions and before those that had all
                                 they need; at least as long as others stood still meanwhile
        what is left             communication, that of other ranks: it delays the rank that waits

A stage's own time is the median of its actions of a kind in this iteration and replica, less what
their rank stood still in them; equal stages take the run's pads, else the mean over the stages. In
which of a rank's gaps a reason is: first where the schedule, followed with those times, has its
gaps, before the same action; the rest from the first gap on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench.training.pipelines.schedule import Action, Schedule, needs, walk

WHYS = ("warm_up", "imbalance", "communication", "fault")
Span = tuple[int, int]  # ns


class Idle(NamedTuple):
    """An interval in which a rank of the pipeline was idle, in ns."""

    place: int
    why: str
    start: int
    end: int


class Followed(NamedTuple):
    """The waits of each rank when a schedule is followed with given times."""

    before: dict[Action, int]  # ns, before this action
    after: tuple[int, ...]  # by rank, after its last action

    def waits(self, row: Sequence[Action], place: int) -> int:
        return sum(self.before[one] for one in row) + self.after[place]


class Order:
    """A schedule's actions in dependency order: built once, followed often."""

    def __init__(self, schedule: Schedule) -> None:
        present = {action for row in schedule.rows for action in row}
        self.schedule = schedule
        self.steps = [
            (rank, action, needs(action, schedule.stages, present))
            for rank, _, action in walk(schedule.rows, schedule.stages)[0]
        ]

    def follow(
        self, lasts: Mapping[Action, int], late: Mapping[Action, int] | None = None
    ) -> Followed:
        """Start every action as soon as possible, messages free; ``late``: extra delays."""
        free = [0] * self.schedule.ranks
        done: dict[Action, int] = {}
        before = {}
        for rank, action, needed in self.steps:
            start = max([free[rank], *(done[one] for one in needed)])
            before[action] = start - free[rank]
            earliest = lasts[action] + (late.get(action, 0) if late else 0)
            free[rank] = done[action] = start + earliest
        span = max(free)
        return Followed(before, tuple(span - end for end in free))


def own_times(lasts: Mapping[Action, int]) -> dict[tuple[int, str], int]:
    """Return the median of each stage's actions of each kind, in whole ns."""
    took: dict[tuple[int, str], list[int]] = {}
    for action, ns in lasts.items():
        took.setdefault((action.stage, action.kind), []).append(ns)
    return {key: _median(some) for key, some in took.items()}


def equal_times(
    own: Mapping[tuple[int, str], int], pads_ns: Sequence[float] | None = None
) -> dict[str, int]:
    """Return the time of each kind of action on every stage: the pads, or the mean over stages."""
    if pads_ns is not None:
        forward, first, weights = (_whole(one) for one in pads_ns)
        return {"F": forward, "I": first, "W": weights, "B": first + weights}
    each: dict[str, list[int]] = {}
    for (_, kind), ns in own.items():
        each.setdefault(kind, []).append(ns)
    return {kind: sum(some) // len(some) for kind, some in each.items()}


def split(
    order: Order,
    spans: Mapping[Action, Span],
    frozen: Mapping[int, Sequence[Span]] | None = None,
    pads_ns: Sequence[float] | None = None,
) -> list[Idle]:
    """Return all idle time of one iteration of one replica, by rank and time.

    ``spans``: when each action of the schedule was done. ``frozen``: when ranks were frozen.
    """
    schedule, frozen = order.schedule, frozen or {}
    begin, end = min(a for a, _ in spans.values()), max(b for _, b in spans.values())
    still = [one for some in frozen.values() for one in some]
    took = {one: b - a for one, (a, b) in spans.items()}
    net = {
        one: ns - covered(spans[one], frozen.get(schedule.rank_of[one.stage], ()))
        for one, ns in took.items()
    }
    own = own_times(net)
    equal = equal_times(own, pads_ns)
    followed = [
        order.follow({one: equal[one.kind] for one in spans}),
        order.follow({one: own[one.stage, one.kind] for one in spans}),
        order.follow(net),
    ]
    cut = [
        [
            _Gap(gap, ready, following, frozen.get(place, ()), still)
            for gap, ready, following in _gaps(schedule, spans, place, begin, end)
        ]
        for place in range(schedule.ranks)
    ]
    late = {gap.next: gap.late for gaps in cut for gap in gaps if gap.next and gap.late}
    followed.append(order.follow(took, late) if still else followed[-1])
    result: list[Idle] = []
    for place, (row, gaps) in enumerate(zip(schedule.rows, cut, strict=True)):
        waits = [one.waits(row, place) for one in followed]
        wishes = [
            _reasons(
                [
                    one.after[place] if gap.next is None else one.before[gap.next]
                    for one in followed
                ],
                gap.others,
            )
            for gap in gaps
        ]
        left = _shared(sum(gap.waited for gap in gaps), waits, sum(gap.others for gap in gaps))
        for gap, parts in zip(gaps, _dealt(gaps, wishes, left), strict=True):
            result += gap.laid(place, parts)
    return result


def _reasons(waits: Sequence[int], others: int) -> list[int]:
    """Return what each way of following the schedule adds to the one before it.

    In order: warm-up and drain, imbalance, fault.
    """
    equal, own, net, took = waits
    uneven = max(equal, own, net)
    return [equal, uneven - equal, max(others, took - uneven)]


def _shared(waited: int, waits: Sequence[int], others: int) -> list[int]:
    """Split a rank's waiting time by _WAITS: warm-up first; the rest is communication."""
    result = []
    for most in _reasons(waits, others):
        result.append(min(waited, most))
        waited -= result[-1]
    return [*result, waited]


_WAITS = ("warm_up", "imbalance", "fault", "communication")


class _Gap:
    """A gap, cut where its rank was frozen and where its input was ready."""

    def __init__(
        self,
        gap: Span,
        ready: int,
        following: Action | None,
        frozen: Sequence[Span],
        still: Sequence[Span],
    ) -> None:
        self.next = following
        ready = min(gap[1], max(gap[0], ready))
        self.stood = [("fault", *one) for one in _within(gap, frozen)]
        self.ways = [("communication", *one) for one in _without((ready, gap[1]), frozen)]
        self.late = covered((ready, gap[1]), frozen)  # the input was ready, but the rank was frozen
        self.waits = _without((gap[0], ready), frozen)
        self.waited = sum(b - a for a, b in self.waits)
        self.others = sum(covered(one, still) for one in self.waits)

    def laid(self, place: int, parts: Sequence[int]) -> list[Idle]:
        """Return the gap's causes as consecutive intervals without holes."""
        result = [*self.stood, *self.ways]
        left = list(parts)
        for a, b in self.waits:
            for n, why in enumerate(_WAITS):
                some = min(left[n], b - a)
                if some:
                    result.append((why, a, a + some))
                left[n] -= some
                a += some
        return [Idle(place, *one) for one in sorted(result, key=lambda one: one[1])]


def _dealt(
    gaps: Sequence[_Gap], wishes: Sequence[Sequence[int]], parts: Sequence[int]
) -> list[list[int]]:
    """Distribute a rank's waiting time over its gaps: where the schedule has it, then in order."""
    room, left = [gap.waited for gap in gaps], list(parts)
    dealt = [[0] * len(parts) for _ in gaps]
    for wished in (True, False):
        for n in range(len(parts)):
            for gap, parts_of_gap in enumerate(dealt):
                most = wishes[gap][n] if wished and n < len(wishes[gap]) else 0
                some = min(room[gap], left[n], most if wished else left[n])
                parts_of_gap[n] += some
                room[gap] -= some
                left[n] -= some
    return dealt


def _gaps(
    schedule: Schedule, spans: Mapping[Action, Span], place: int, begin: int, end: int
) -> Iterable[tuple[Span, int, Action | None]]:
    """Yield the gaps of a rank: span, when the next action's input was ready, and that action."""
    free = begin
    for action in sorted(schedule.rows[place], key=lambda one: spans[one]):
        start, stop = spans[action]
        if start > free:
            result = [
                spans[one][1]
                for one in needs(action, schedule.stages, spans)
                if schedule.rank_of[one.stage] != place
            ]
            yield (free, start), max(result, default=free), action
        free = max(free, stop)
    if end > free:
        yield (free, end), end, None


def covered(span: Span, others: Iterable[Span]) -> int:
    """Return how much of ``span`` lies in any of ``others``."""
    return sum(b - a for a, b in _within(span, others))


def _within(span: Span, others: Iterable[Span]) -> list[Span]:
    """Return the intervals of ``span`` that lie in any of ``others``, in order."""
    at, result = span[0], []
    for a, b in sorted(others):
        a, b = max(at, a), min(span[1], b)
        if b > a:
            result.append((a, b))
            at = b
    return result


def _without(span: Span, others: Iterable[Span]) -> list[Span]:
    """Return the intervals of ``span`` that lie in none of ``others``, in order."""
    at, result = span[0], []
    for a, b in _within(span, others):
        if a > at:
            result.append((at, a))
        at = b
    return [*result, (at, span[1])] if span[1] > at else result


def _median(some: Sequence[int]) -> int:
    ordered, middle = sorted(some), len(some) // 2
    return ordered[middle] if len(some) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _whole(ns: float) -> int:
    return int(ns + 0.5)
