"""The plan after a server was lost: which rank gives which keys to which server, and where workers
go on. Every rank makes the same plan from what all of them offer.

A server's keys come from itself while it lives, else from its replica chain, else from the option
``restored_from``: workers' latest pulls, or the last checkpoint.

Law    Every key has one owner. In lockstep all keys that are not from a checkpoint have the updates
       of the same iterations, as a worker that is one ahead goes back by one. Otherwise a worker's
       push that one key has and another lacks is done again, for that one alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

Kind = Literal["own", "replica", "pull", "checkpoint", "beginning"]
_LIVE: tuple[Kind, ...] = ("own", "replica")  # they know whose pushes they have
Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Keys that a rank offers, with the updates of ``clock`` iterations of each worker.

    ``of``: the server whose keys they were. ``number``: of the piece, on its rank. ``undoes``: it
    can go back by one update.
    """

    rank: int
    kind: Kind
    of: int
    number: int
    generation: int
    version: int
    ranges: tuple[Range, ...]
    clock: Mapping[int, int]
    undoes: bool = False

    @property
    def slowest(self) -> int:
        """The iterations that all workers have done."""
        return min(self.clock.values())

    def as_fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**vars(self), "clock": list(self.clock.items())}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Piece:
        """Return the piece that was sent as plain values."""
        ranges = tuple((start, stop) for start, stop in fields["ranges"])
        return cls(**{**fields, "ranges": ranges, "clock": dict(fields["clock"])})


@dataclass(frozen=True)
class Take:
    """Keys that a server takes from a piece; ``piece`` None: from ``kind`` itself. ``back``: as
    they were before the last update.
    """

    owner: int
    kind: Kind
    ranges: tuple[Range, ...]
    piece: Piece | None = None
    back: bool = False


@dataclass
class Plan:
    """The keys that each server takes, the iteration with which each worker goes on, and the
    version that follows.
    """

    takes: list[Take]
    go_on: dict[int, int]
    version: int
    synchronous: bool = False

    def clock_of(self, take: Take) -> dict[int, int]:
        """Return for each worker the iterations whose push these keys have."""
        if self.synchronous or take.piece is None:
            return dict(self.go_on)
        clock = take.piece.clock
        return {w: max(at, clock.get(w, at)) for w, at in self.go_on.items()}

    def updates_lost(self, take: Take, saved: int) -> int:
        """Return how many updates these keys lack that no worker does again: of all workers
        together in lockstep, else of each. ``saved``: the iteration of the last checkpoint.
        """
        clock = dict.fromkeys(self.go_on, saved) if take.piece is None else take.piece.clock
        lacking = [max(0, at - clock.get(w, at)) for w, at in self.go_on.items()]
        return max(lacking, default=0) if self.synchronous else sum(lacking)

    @property
    def restored(self) -> list[Take]:
        """The keys that do not come from the server that had them."""
        return [take for take in self.takes if take.kind != "own"]

    @property
    def iteration(self) -> int:
        """The iteration that the furthest worker goes on with."""
        return max(self.go_on.values(), default=0)


def make_plan(
    owned: Mapping[int, Sequence[range]],
    pieces: Sequence[Piece],
    at: Mapping[int, int],
    *,
    synchronous: bool,
    otherwise: Kind,
) -> Plan:
    """Return the plan. ``owned``: the keys of each server from now on. ``at``: the iteration that
    each worker is in, -1 of a fresh one. ``otherwise``: from where keys come that no rank offers.
    """
    spans = [*_spans(owned, pieces)]
    live = {span: [p for p in pieces if p.kind in _LIVE] for span, _, pieces in spans}
    chosen: list[tuple[Range, int, Piece | None]] = []
    clock = _common_clock(spans, live) if synchronous else -1
    for span, owner, candidates in spans:
        fitting = live[span]
        if synchronous:
            fitting = [p for p in fitting if p.slowest == clock or _goes_back(p, clock)]
        if not fitting and otherwise == "pull":
            fitting = [p for p in candidates if p.kind == "pull"]
        best = max(fitting, key=lambda p: _preference(p, owner), default=None)
        chosen.append((span, owner, best))
    if synchronous:
        # Without anything that counts: the iteration that the furthest worker was in.
        clock = clock if clock >= 0 else max(0, *at.values(), 0)
        go_on = dict.fromkeys(at, clock)
    else:
        go_on = {w: _own_clock(w, at, chosen) for w in at}
    takes = _joined(chosen, clock, synchronous, otherwise)
    versions = [p.version - t.back for t in takes if (p := t.piece) is not None]
    version = clock if synchronous else max(versions, default=0)
    return Plan(takes, go_on, version, synchronous)


def _spans(
    owned: Mapping[int, Sequence[range]], pieces: Sequence[Piece]
) -> Iterator[tuple[Range, int, list[Piece]]]:
    """Yield ranges that are the same to all, each with its owner and the pieces that have it."""
    events: dict[int, list[tuple[bool, Piece]]] = defaultdict(list)
    for piece in pieces:
        for start, stop in piece.ranges:
            events[start].append((True, piece))
            events[stop].append((False, piece))
    owners: dict[int, int | None] = {}
    for owner, ranges in owned.items():
        for one in ranges:
            owners[one.start] = owner
            owners.setdefault(one.stop, None)
    open_pieces: dict[tuple[int, int], Piece] = {}
    holder: int | None = None
    for start, stop in pairwise(sorted({*events, *owners})):
        for begins, piece in sorted(events.get(start, ()), key=lambda event: event[0]):
            if begins:
                open_pieces[piece.rank, piece.number] = piece
            else:
                open_pieces.pop((piece.rank, piece.number), None)
        holder = owners.get(start, holder)
        if holder is not None:
            yield (start, stop), holder, list(open_pieces.values())


def _common_clock(
    spans: Sequence[tuple[Range, int, list[Piece]]], live: Mapping[Range, Sequence[Piece]]
) -> int:
    """Return the iterations that all keys can have the updates of; -1: nothing counts them."""
    newest = []
    for span, _, pieces in spans:
        if live[span]:
            newest.append(max(p.slowest for p in live[span]))
        elif pulls := [p.version for p in pieces if p.kind == "pull"]:
            newest.append(max(pulls))
    return min(newest, default=-1)


def _goes_back(piece: Piece, clock: int) -> bool:
    return piece.undoes and piece.slowest == clock + 1


def _preference(piece: Piece, owner: int) -> tuple[int, ...]:
    """Return what makes a piece the better one: where it is there already, nothing is sent."""
    mine = piece.kind == "own" and piece.of == piece.rank
    return (piece.generation, mine, piece.version, piece.rank == owner, -piece.rank, -piece.number)


def _own_clock(
    worker: int, at: Mapping[int, int], chosen: Sequence[tuple[Range, int, Piece | None]]
) -> int:
    """Return the iteration with which a worker goes on: the first that some keys lack. Where some
    are lost, it is the first that not all servers had acknowledged.
    """
    live = [p.clock[worker] for _, _, p in chosen if p and p.kind in _LIVE and worker in p.clock]
    if at[worker] >= 0 and any(p is None or p.kind not in _LIVE for _, _, p in chosen):
        live.append(at[worker])
    return min(live, default=max(0, at[worker]))


def _joined(
    chosen: Sequence[tuple[Range, int, Piece | None]],
    clock: int,
    synchronous: bool,
    otherwise: Kind,
) -> list[Take]:
    """Return what is taken, a take for each server and piece."""
    ranges: dict[tuple[int, int, int], list[Range]] = defaultdict(list)
    which: dict[tuple[int, int, int], Piece | None] = {}
    for span, owner, piece in chosen:
        key = (owner, -1, 0) if piece is None else (owner, piece.rank, piece.number)
        mine = ranges[key]
        if mine and mine[-1][1] == span[0]:
            mine[-1] = mine[-1][0], span[1]
        else:
            mine.append(span)
        which[key] = piece
    missing: Kind = "beginning" if otherwise == "pull" else otherwise
    return [
        Take(
            key[0],
            missing if piece is None else piece.kind,
            tuple(ranges[key]),
            piece,
            back=bool(synchronous and piece and piece.kind in _LIVE and piece.slowest > clock),
        )
        for key, piece in which.items()
    ]
