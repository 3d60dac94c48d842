"""Moments and arcs of spans: which moment needs which.

    order        a span needs the one before it in its chain; of a receive and a send that are
                 fused, the send needs the receive's start
    message      a receive needs the arrival of its send. A send departs once its bytes have passed
                 (bytes / bandwidth), until when the next one in its chain cannot begin: a link
                 carries one message at a time. It arrives a latency later
    slots        a send needs the receive of the message four before it: a mailbox holds four
    bucket       the first message of a call that was enqueued needs the computing before that
                 moment, and what computes after it needs the call's last message
    microbatch   a forward needs the activation of its microbatch, a backward the gradient; a send
                 needs the pass of its microbatch
    consumer     other computing needs the messages from point to point that came since the rank
                 computed before; a message needs the computing before it
    meeting      of a call without recorded messages, all ranks need the last that came

Time between a moment and the last of those that it needs is a gap: it is in no row (wake-ups, the
interpreter), and keeps its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workbench.analysis.arrivals import FROM_ROOT, MEETINGS, TO_ROOT
from workbench.analysis.critical_path.moments import COMPUTES, Activity, Moments
from workbench.analysis.critical_path.spans import POINT_TO_POINT, Chain, Span, Spans
from workbench.transports.sizes import SLOTS

LATENCY, BANDWIDTH = "latency", "bandwidth"  # names of a link's activities
MAIN, COMM, SEND, RECV = "main", "comm", "send", "recv"
INPUT = {"forward": "activation", "backward": "gradient"}  # what a pass of a pipeline receives
PASS_OF = {name: kind for kind, name in INPUT.items()}
LATE = 300_000  # ns after its arrival: a receive so late was posted late
HASTE = 200_000  # ns before its arrival: its link was faster than its pace says
NEAR = 16  # spans of a chain that are looked at

Pace = Callable[[int, int], tuple[int, float]]  # of a link: latency in ns, ns per byte
Way = tuple[int, int]  # of a link: from this rank to that one


def unpaced(source: int, target: int) -> tuple[int, float]:
    """Return the pace of links of which nothing is known."""
    return 0, 0.0


@dataclass(slots=True)
class Ends:
    """The moments of one span."""

    start: int
    end: int
    departs: int = -1  # of a send
    arrives: int = -1


@dataclass
class Dependencies:
    """``moments``, and which arcs a change of the experiment changes: of a link's latency, of its
    bandwidth with the bytes, of a rank's computing by row. ``lost``: receives whose send was not
    recorded; ``early``: those that began before it, by clocks that differ; ``hasty``: those that
    began before it can have arrived, by the pace of its link.
    """

    moments: Moments
    ends: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # iteration -> rank, end
    latency: dict[Way, list[int]] = field(default_factory=lambda: defaultdict(list))
    bandwidth: dict[Way, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    computes: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    enclosed: int = 0  # ns of calls that block, inside of rows of computing
    messages: int = 0
    lost: int = 0
    early: int = 0
    hasty: int = 0


class _Chain:
    """The spans of a chain so far, by their ends."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._ends: list[int] = []  # the latest so far: it grows

    def add(self, span: Span) -> None:
        self.spans.append(span)
        self._ends.append(max(span.end, self._ends[-1] if self._ends else span.end))

    def before(self, ns: int) -> Span | None:
        """Return the last span that had ended at this moment."""
        at = bisect_right(self._ends, ns)
        for span in reversed(self.spans[at : at + NEAR]):
            if span.end <= ns:
                return span
        return self.spans[at - 1] if at else None

    def last(self, fits: Callable[[Span], bool]) -> Span | None:
        return next((one for one in reversed(self.spans[-NEAR * 4 :]) if fits(one)), None)


class Builder:
    """Makes moments and arcs of spans. ``pace``: of the links, as the experiment emulates them;
    ``since``: sends before this moment can lie outside of the rows, ns. ``without``: kinds of
    dependency that are left out, for tests.
    """

    def __init__(
        self,
        spans: Spans,
        pace: Pace = unpaced,
        slots: int = SLOTS,
        *,
        since: int = 0,
        without: Sequence[str] = (),
    ) -> None:
        self.spans, self.pace, self.slots, self.without = spans, pace, slots, without
        self.since = since
        self.result = Dependencies(Moments())
        self.moments = self.result.moments
        self._of: dict[int, Ends] = {}  # by id of a span
        self._needs: dict[int, list[int]] = defaultdict(list)  # moments that a span's start needs
        self._chains: dict[Chain, _Chain] = defaultdict(_Chain)

    def build(self) -> Dependencies:
        """Return all of it."""
        sends = self._pairs()
        self._add_moments(sends)
        fresh: dict[int, list[Span]] = defaultdict(list)  # that a rank's computing will need
        begun: set[tuple[object, ...]] = set()
        for span in self.spans.work:
            chain = self._chains[span.chain]
            self._in_order(span, chain)
            if span.kind in COMPUTES:
                if not span.continues:
                    self._consume(span, fresh[span.rank])
            elif span.chain[0] != MAIN:
                self._begin(span, begun)
                if span.chain[0] in (RECV, COMM):
                    fresh[span.rank].append(span)
            chain.add(span)
        for receive, send in sends.items():
            self._deliver(self._by_id[receive], send)
        self._meet()
        self._add_gaps()
        return self.result

    # ---- moments

    def _pairs(self) -> dict[int, Span]:
        """Return the send of each receive, by the receive's id."""
        self._by_id = {id(one): one for one in self.spans.work}
        waiting: dict[tuple[object, ...], list[Span]] = defaultdict(list)
        for one in self.spans.work:
            if one.kind == "send":
                waiting[one.rank, one.peer, one.message].append(one)
        pairs: dict[int, Span] = {}
        for one in self.spans.work:
            if one.kind == "recv":
                self.result.messages += 1
                sent = waiting.get((one.peer, one.rank, one.message))
                if not sent:
                    self.result.lost += one.start >= self.since
                elif sent[0].start > one.start:
                    self.result.early += 1
                else:
                    pairs[id(one)] = sent.pop(0)
        return pairs

    def _add_moments(self, sends: dict[int, Span]) -> None:
        received = {id(send): self._by_id[one].start for one, send in sends.items()}
        boxes: dict[tuple[object, ...], list[Span]] = defaultdict(list)
        takers = {id(send): self._by_id[one] for one, send in sends.items()}
        for span in self.spans.work:
            ends = Ends(*(self.moments.add(ns, span.rank) for ns in (span.start, span.end)))
            self._of[id(span)] = ends
            if span.kind == "send":
                plane = span.rank, span.peer, span.group, span.collective == POINT_TO_POINT
                self._depart(span, ends, received.get(id(span)))
                box = boxes[plane]
                if len(box) >= self.slots and (taker := takers.get(id(box[-self.slots]))):
                    self._flow(span, taker)
                box.append(span)
            else:
                about = Activity(span.rank, span.kind, span.name, span.peer, span.seq, span.queued)
                arc = self.moments.join(ends.start, ends.end, span.end - span.start, about)
                if span.kind in COMPUTES:
                    self._in_row(span, arc)
            if span.chain[0] == MAIN and span.kind in COMPUTES:
                self.result.ends.setdefault(span.iteration, []).append((span.rank, ends.end))

    def _in_row(self, span: Span, arc: int) -> None:
        rows = self.result.computes[span.rank]
        if not span.continues:
            rows.append([])
        elif rows[-1]:
            before = self.moments.arcs[rows[-1][-1]].target
            self.result.enclosed += span.start - self.moments.recorded[before]
        rows[-1].append(arc)

    def _flow(self, span: Span, taker: Span) -> None:
        if "slots" not in self.without and taker.end <= span.start and id(taker) in self._of:
            self._needs[id(span)].append(self._of[id(taker)].end)

    def _depart(self, span: Span, ends: Ends, received: int | None) -> None:
        """Add when a send departs and arrives: as emulated, but never after it was seen to be."""
        moments, way = self.moments, (span.rank, span.peer)
        latency, per_byte = self.pace(*way)
        seen = span.end if received is None else min(span.end, received)
        departs = min(span.start + round(span.nbytes * per_byte), max(seen, span.start))
        ends.departs = moments.add(departs)
        moving = Activity(span.rank, "link", BANDWIDTH, span.peer, span.seq)
        arc = moments.join(ends.start, ends.departs, departs - span.start, moving)
        self.result.bandwidth[way].append((arc, span.nbytes))
        writing = Activity(span.rank, span.kind, span.name, span.peer, span.seq)
        moments.join(ends.departs, ends.end, span.end - departs, writing)
        arrives = departs + latency if received is None else min(departs + latency, received)
        self.result.hasty += received is not None and received + HASTE < departs + latency
        flying = Activity(span.rank, "link", LATENCY, span.peer, span.seq)
        ends.arrives = moments.add(max(arrives, departs))
        arc = moments.join(ends.departs, ends.arrives, max(arrives, departs) - departs, flying)
        self.result.latency[way].append(arc)
        if not latency and received is not None and span.end > departs:  # while it still wrote
            handed = moments.add(max(departs, min(span.end, received)))
            moments.join(ends.arrives, handed, moments.recorded[handed] - departs, writing)
            ends.arrives = handed

    # ---- what a span needs

    def _in_order(self, span: Span, chain: _Chain) -> None:
        if "order" in self.without:
            return
        last = chain.spans[-1] if chain.spans else span
        fused = last.kind == "recv" and span.kind == "send" and last.start == span.start
        if fused:
            self._needs[id(span)].append(self._of[id(last)].start)
        else:
            self._need(span, chain.before(span.start))

    def _need(self, span: Span, other: Span | None) -> None:
        if other is not None and other.end <= span.start:
            self._needs[id(span)].append(self._of[id(other)].end)

    def _begin(self, span: Span, begun: set[tuple[object, ...]]) -> None:
        """Let a message beside computing need the computing that it hangs on."""
        main = self._chains[MAIN, span.rank]
        if span.chain[0] == COMM:
            if span.call not in begun and "bucket" not in self.without:
                begun.add(span.call)
                self._need(span, main.before(min(span.start, self.spans.enqueued[span.call])))
        elif span.chain[0] == SEND and "consumer" not in self.without:
            kind = PASS_OF.get(span.name) if span.microbatch >= 0 else None
            if kind is None:
                self._need(span, main.before(span.start))
            elif "microbatch" not in self.without:
                self._need(span, main.last(lambda one: _is_pass(one, kind, span)))

    def _consume(self, span: Span, fresh: list[Span]) -> None:
        """Let computing need what has come for it, and forget that."""
        wanted = INPUT.get(span.kind) if span.microbatch >= 0 else None
        left = []
        for one in fresh:
            for_pass = one.microbatch >= 0 and one.name in PASS_OF
            mine = not for_pass or (one.name == wanted and one.microbatch == span.microbatch)
            kind = {COMM: "bucket"}.get(one.chain[0], "microbatch" if for_pass else "consumer")
            if one.end > span.start or not mine:
                left.append(one)
            elif kind not in self.without:
                self._need(span, one)
        fresh[:] = left[-NEAR * 16 :]

    def _deliver(self, receive: Span, send: Span) -> None:
        if "message" in self.without:
            return
        arrives = self._of[id(send)].arrives
        self._needs[id(receive)].append(arrives)
        arrived = self.moments.recorded[arrives]
        if receive.chain[0] == RECV and receive.start - arrived > LATE:
            other = self._chains[MAIN, receive.rank].before(receive.start)
            if other is not None and other.end > arrived:  # it was posted late
                self._need(receive, other)

    def _meet(self) -> None:
        """Let the ranks of calls without messages need those that they wait for."""
        calls: dict[tuple[object, ...], list[Span]] = defaultdict(list)
        for one in self.spans.bare:
            calls[one.call[1:]].append(one)
        for parts in calls.values():
            if len(parts) < 2 or "meeting" in self.without:
                continue
            for one in parts:
                awaited = _awaited(one, parts)
                if awaited is not None and awaited is not one and awaited.start <= one.end:
                    self._wait_for(one, awaited)

    def _wait_for(self, one: Span, awaited: Span) -> None:
        """Shorten a call to what it takes once the rank that it waits for has come."""
        ends, came = self._of[id(one)], self._of[id(awaited)].start
        (arc,) = self.moments.into(ends.end)
        rest = one.end - max(one.start, awaited.start)
        self.moments.ns[arc] = rest
        self.moments.join(came, ends.end, rest, self.moments.arcs[arc].activity)

    def _add_gaps(self) -> None:
        for span in self.spans.work:
            needs = self._needs.get(id(span))
            if needs:
                start = self._of[id(span)].start
                gap = span.start - max(self.moments.recorded[one] for one in needs)
                about = Activity(span.rank, "gap", f"before {span.kind}", seq=span.seq)
                for one in dict.fromkeys(needs):
                    self.moments.join(one, start, gap, about)


def _is_pass(one: Span, kind: str, message: Span) -> bool:
    same = one.kind == kind and one.microbatch == message.microbatch
    return same and one.end <= message.start


def _awaited(one: Span, parts: Sequence[Span]) -> Span | None:
    """Return the part whose rank this one waits for in a call without messages."""
    last = max(parts, key=lambda part: part.start)
    root = next((part for part in parts if part.rank == one.peer), None)
    if one.collective in MEETINGS:
        return last
    if one.collective in FROM_ROOT:
        return root
    return last if one.collective in TO_ROOT and one.rank == one.peer else None
