"""A cell that makes no progress, in words: which rank waits for which, in which call, at which
line.

The lanes say what ranks wait for (``Store.doing``); the ranks have been asked where they are. A
rank whose lanes say nothing, but that stays in a call of torch.distributed without computing, waits
too: for a group to form, or over another backend. Nothing here ends a wait: a rank may rightly wait
for one that computes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.common.wait_cycles import circle, circle_words
from workbench.store.event_store import NOW_SCHEMA

SECOND = 1_000_000_000
IDLE = 0.05  # of the time may be computing, so that a rank counts as waiting
_AT = {name: at for at, name in enumerate(NOW_SCHEMA)}


@dataclass(frozen=True)
class Wait:
    """``rank`` has waited for ``peer`` (-1: not known, or for any) since ``since_ns``."""

    rank: int
    peer: int
    lane: str
    op: int
    since_ns: int


def waits(doing: Iterable[Sequence[Any]], running: Collection[int], before_ns: int) -> list[Wait]:
    """Return each running rank's longest wait that began before that moment."""
    result: dict[int, Wait] = {}
    for row in doing:
        kind, since = row[_AT["kind"]], row[_AT["since_ns"]]
        inside = kind == "collective" and row[_AT["rank"]] not in result  # a group's own, in Gloo
        if (kind == "wait" or inside) and row[_AT["rank"]] in running and since < before_ns:
            peer = row[_AT["peer"]] if kind == "wait" else -1
            wait = Wait(row[_AT["rank"]], peer, row[_AT["lane"]], row[_AT["op"]], since)
            known = result.get(wait.rank)
            if known is None or known.peer < 0 or (peer >= 0 and since < known.since_ns):
                result[wait.rank] = wait
    return [result[rank] for rank in sorted(result)]


@dataclass(frozen=True)
class Stay:
    """At one line, in one call of torch.distributed, without computing, since ``since_ns``."""

    line: int
    call: str
    since_ns: int
    cpu_ns: int


def stays(
    known: Mapping[int, Stay], places: Mapping[int, Mapping[str, Any]], now_ns: int
) -> dict[int, Stay]:
    """Return the calls that ranks stay in, from the earlier ones and the ranks' positions."""
    result = {}
    for rank, place in places.items():
        if not place["distributed"]:
            continue
        stay = Stay(place["line"], place["call"], now_ns, place["cpu_ns"])
        before = known.get(rank)
        if (
            before is not None
            and (before.line, before.call) == (stay.line, stay.call)
            and stay.cpu_ns - before.cpu_ns < IDLE * (now_ns - before.since_ns)
        ):
            stay = before
        result[rank] = stay
    return result


def lasts(
    wait: Wait,
    earlier: Mapping[int, Mapping[str, Any]],
    places: Mapping[int, Mapping[str, Any]],
    left_ns: Mapping[int, int],
    before_ns: int,
) -> bool:
    """Return whether two looks found the rank in the same call, and its peer has not left since
    ``before_ns``.

    A receive is older than the rank's wait for it where it was posted ahead, and on busy cores a
    rank might not have taken its peer's last message yet.
    """
    if (peer_left_ns := left_ns.get(wait.peer)) is not None and peer_left_ns >= before_ns:
        return False
    place, before = places.get(wait.rank), earlier.get(wait.rank)
    if place is None:  # it gives no answer
        return True
    if before is None:
        return False
    return (before["line"], before["call"]) == (place["line"], place["call"])


def all_waits(
    of_lanes: Sequence[Wait],
    places: Mapping[int, Mapping[str, Any]],
    staying: Mapping[int, Stay],
    before_ns: int,
) -> list[Wait]:
    """Return waits from the lanes' status, and for other ranks from their position.

    A lane's wait does not block a rank outside a call: it receives in the background.
    """
    facts = {
        wait.rank: wait for wait in of_lanes if wait.rank not in places or places[wait.rank]["call"]
    }
    for rank, stay in staying.items():
        if stay.since_ns < before_ns:
            facts.setdefault(rank, Wait(rank, -1, "", -1, stay.since_ns))
    return [facts[rank] for rank in sorted(facts)]


def deadlock(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Return the ranks that wait in a circle, each for the next; () where none do."""
    return circle({wait.rank: wait.peer for wait in waits})


def explain(
    waits: Sequence[Wait],
    places: Mapping[int, Mapping[str, Any]],
    away: Mapping[int, str],
    now_ns: int,
    silent: Collection[int] = (),
) -> list[str]:
    """Return lines that say which rank waits for which, and where; the last line gives the cause.

    ``places``: where each running rank is (``running.place``). ``silent``: ranks that did not
    answer.
    ``away``: why each of the others sends nothing: "has ended this cell".
    """
    waiting = {wait.rank: wait for wait in waits}
    lines = [
        _waits(waiting[rank], places.get(rank), now_ns)
        if rank in waiting
        else f"rank {rank} {_busy(places[rank])}"
        for rank in sorted({*waiting, *places})
    ]
    lines += [
        f"rank {rank} gives no answer: it is stopped, or in a call that lets nothing else run"
        for rank in sorted(set(silent) - waiting.keys())
    ]
    around = deadlock(waits)
    if around:
        lines.append(
            f"This is a deadlock: {circle_words(around)}. Nobody can go on: interrupt the cell, "
            "and change the order of the calls."
        )
    for rank, words in sorted(away.items()):
        if waiters := [str(wait.rank) for wait in waits if wait.peer == rank]:
            many = len(waiters) > 1
            subject = f"rank{'s' * many} {', '.join(waiters)} wait{'s' * (not many)}"
            lines.append(f"rank {rank} {words}: {subject} for it in vain.")
    return lines


def _waits(wait: Wait, place: Mapping[str, Any] | None, now_ns: int) -> str:
    seconds = (now_ns - wait.since_ns) / SECOND
    awaited = f" for rank {wait.peer}" if wait.peer >= 0 else ""
    return f"rank {wait.rank} has waited {seconds:.0f} s{awaited}{_where(place)}"


def _where(place: Mapping[str, Any] | None) -> str:
    if not place or not place["line"]:
        return ""
    call = f" in {place['call']}" if place["call"] else ""
    return f"{call}, line {place['line']}: {place['source']}"


def _busy(place: Mapping[str, Any]) -> str:
    if not place["line"]:
        return "has not begun the cell"
    return f"is at line {place['line']}: {place['source']}"
