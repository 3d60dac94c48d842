"""A lane whose records are written by the compiled mover: the same bytes at the same places.

The mover writes the rows of a message through the lane's journal, without Python; all other code
writes through ``write`` as through any lane's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from workbench.native import compiled
from workbench.recording.events import NOWHERE, Where
from workbench.recording.lane import Lane, LaneMemory, Names


class CompiledLane(Lane):
    """The log of one thread at a time. ``journal`` is its writer."""

    def _open(self) -> None:
        place, native = self._place, compiled()
        assert native is not None
        rows, contexts = place.rows, place.contexts
        self.journal: Any = native.Journal(
            weakref.ref(self),
            self._number,
            self._first,
            place.page,
            place.meter is not None,
            place.knocks,
            *(rows.memory, rows.at, rows.records, rows.seq, rows.grow is not None),
            *(contexts.memory, contexts.at, contexts.records, contexts.seq),
            contexts.grow is not None,
        )
        self.write = self.journal.write

    def again(self, context_id: int) -> None:
        self.journal.again(context_id)

    def idle(self) -> None:
        self.journal.idle()

    def next_block(self, contexts: int, number: int) -> memoryview | None:
        """Make a log longer: the journal asks for its next block."""
        log = self._place.contexts if contexts else self._place.rows
        if log.grow is None:
            return None
        log.memory = log.grow(number)
        return log.memory

    def mute(self, lost: Callable[[], None] | None) -> None:
        self.journal.leave(lost)

    def leave(self, lost: Callable[[], None]) -> int:
        self.idle()
        self._place.rows.seq, self._place.contexts.seq = self.journal.leave(lost)
        return self._place.rows.seq - self._first

    def context(
        self,
        collective: int = 0,
        algorithm: int = 0,
        group: int = 0,
        op: int = -1,
        where: Where = NOWHERE,
        generation: int = -1,
    ) -> int:
        generation = self.recorder.generation if generation < 0 else generation
        iteration, stage, version = where.iteration, where.stage, where.version
        number: int = self.journal.context(
            collective,
            algorithm,
            group,
            generation,
            where.microbatch,
            op,
            iteration,
            stage,
            version,
        )
        return number

    def status(
        self,
        kind: int,
        *,
        peer: int = -1,
        group: int = 0,
        collective: int = 0,
        algorithm: int = 0,
        dtype: int = 0,
        op: int = -1,
        step: int = -1,
        chunk: int = -1,
        shape: tuple[int, ...] = (),
        values: tuple[float, ...] = (),
    ) -> None:
        self.journal.status(
            kind, peer, group, collective, algorithm, dtype, op, step, chunk, shape, values
        )


def open_lane(recorder: Names, name: str, number: int, place: LaneMemory, written: int = 0) -> Lane:
    """Return a lane that writes to ``place``, by the mover where there is one."""
    kind = CompiledLane if compiled() is not None else Lane
    return kind(recorder, name, number, place, written)
