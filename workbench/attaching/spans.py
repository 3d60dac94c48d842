"""Rows of operations that are only observed: one lane for each operation that is under way at the
same time, so that no spans of a lane cross.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.process_group.session import Session
from workbench.recording.events import COLLECTIVE, RECV, SEND, now
from workbench.recording.lane import Lane


class Span:
    """An operation under way. ``peer``: the root's or the other end's world rank; -1: none, or not
    known yet.
    """

    __slots__ = ("_kind", "_lane", "_name", "_nbytes", "_numbers", "_of", "_start", "peer")

    def __init__(
        self,
        of: Spans,
        lane: Lane,
        kind: int,
        peer: int,
        nbytes: int,
        name: int,
        numbers: tuple[int, int],
    ) -> None:
        self._lane: Lane | None = lane
        self._of, self._kind, self.peer = of, kind, peer
        self._nbytes, self._name, self._numbers = nbytes, name, numbers
        self._start = now()

    def came_from(self, rank: int) -> None:
        """Note which rank has sent a message that was awaited from any."""
        if self._lane is None:
            return
        self.peer = self._of.world_rank(rank)
        tag = self._numbers[1]
        self._numbers = self._of.next_message(RECV, self.peer, tag), tag
        self._of.context_of_message(self._lane, self._numbers[0])

    def end(self, start: int = 0, end: int = 0) -> None:
        """Write the row, once. ``start`` and ``end`` in ns where another clock has measured."""
        lane, self._lane = self._lane, None
        if lane is None:
            return
        chunk, slot = (self._numbers[1], 0) if self._kind != COLLECTIVE else (-1, -1)
        step = 0 if self._kind != COLLECTIVE else -1
        lane.write(
            self._kind,
            start or self._start,
            end or now(),
            self.peer,
            step=step,
            chunk=chunk,
            slot=slot,
            nbytes=self._nbytes,
            name=self._name,
        )
        lane.idle()
        self._of.give_back(lane)


class Spans:
    """The operations of one rank in one group, as rows."""

    def __init__(
        self, session: Session, label: str, backend: str, world: Sequence[int] = ()
    ) -> None:
        """Record operations of the group that is ``label`` in the records; ``world[i]`` is the
        world rank of its rank i, if it is not the default group.
        """
        self._session, self._recorder, self._label = session, session.recorder, label
        self._world = world
        name = self._recorder.name
        self._group, self._backend, self._p2p = name(label), name(backend), name("p2p")
        self._numbers = itertools.count()
        self._messages: Counter[tuple[int, int, int]] = Counter()
        self._free: dict[str, list[Lane]] = {"comm": [], "send": [], "recv": []}
        self._lanes: list[Lane] = []

    def world_rank(self, rank: int) -> int:
        """Return the world rank of a rank of the group."""
        return self._world[rank] if rank >= 0 and self._world else rank

    def collective(self, operation: str, nbytes: int, root: int, x: Any) -> Span:
        """Begin a collective: the group's next."""
        lane, number = self._lane("comm"), next(self._numbers)
        collective, where = self._recorder.name(operation), self._recorder.where
        lane.context(collective, self._backend, self._group, number, where)
        peer, shape, dtype = self.world_rank(root), (), 0
        if x is not None:
            shape, dtype = tuple(x.shape), self._recorder.name(str(x.dtype).removeprefix("torch."))
        lane.status(
            COLLECTIVE,
            peer=peer,
            group=self._group,
            collective=collective,
            algorithm=self._backend,
            dtype=dtype,
            op=number,
            shape=shape,
        )
        name = self._recorder.name(self._session.current_label())
        return Span(self, lane, COLLECTIVE, peer, nbytes, name, (number, -1))

    def message(self, way: str, peer: int, tag: int, x: Any) -> Span:
        """Begin a message: the next of this tag to, or from, that rank of the group."""
        kind = SEND if way == "send" else RECV
        lane, peer = self._lane(way), self.world_rank(peer)
        number = self.next_message(kind, peer, tag) if peer >= 0 else -1
        self.context_of_message(lane, number)
        lane.status(kind, peer=peer, group=self._group, collective=self._p2p, op=number)
        name = self._recorder.name(self._session.current_label())
        return Span(self, lane, kind, peer, x.nbytes, name, (number, tag))

    def next_message(self, kind: int, peer: int, tag: int) -> int:
        """Return the number of the next message of this tag to, or from, that rank."""
        key = kind, peer, tag
        number = self._messages[key]
        self._messages[key] += 1
        return number

    def context_of_message(self, lane: Lane, number: int) -> None:
        """Say in the lane which message the next row is of."""
        lane.context(self._p2p, self._backend, self._group, number, self._recorder.where)

    def give_back(self, lane: Lane) -> None:
        """Let the next operation use this lane."""
        self._free[lane.name.partition(":")[0]].append(lane)

    @property
    def under_way(self) -> int:
        """Return the number of operations that have begun and not ended."""
        return len(self._lanes) - sum(map(len, self._free.values()))

    def close(self) -> None:
        """Release the lanes of a group that has ended."""
        spans, self._lanes = self._lanes, []
        self._free = {kind: [] for kind in self._free}
        for lane in spans:
            self._recorder.give_back(lane)

    def _lane(self, kind: str) -> Lane:
        """Return a lane in which nothing is under way. Lists of Python's are safe between threads
        in this use.
        """
        try:
            return self._free[kind].pop()
        except IndexError:
            pass
        place = sum(lane.name.partition(":")[0] == kind for lane in self._lanes)
        whole = kind if self._label == "default" else f"{kind}:{self._label}"
        name = whole if not place else f"{kind}:{self._label} ({place + 1})"
        lane = self._recorder.take_lane(name)
        self._lanes.append(lane)
        return lane
