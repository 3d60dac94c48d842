"""A worker group: rank processes, the memory that they share with the driver, and their records.

A run, ``wb.ranks``, ``wb.check`` and the timing of algorithms have one each.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from workbench.launchers.processes import rank_handle
from workbench.launchers.processes.launcher import RankHandle
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment

if TYPE_CHECKING:
    from workbench.store.event_store import Store

Handle = TypeVar("Handle", bound=RankHandle)


class WorkerGroup(Generic[Handle]):
    """``size`` ranks at most. ``handles``, ``traces``: by rank, of those that were taken last.

    ``recorder``: the driver's own.
    """

    def __init__(
        self, size: int, take: Callable[[Sequence[int]], Sequence[Handle]], store: Store
    ) -> None:
        """Start no rank yet. ``take``: returns a fresh process for each of these ranks."""
        from workbench.store.collector import Collector  # with polars

        self.size, self._take = size, take
        self.control = Control.create(size)
        self.handles: dict[int, Handle] = {}
        self.traces: dict[int, Segment] = {}
        self._own = [trace_segment("the driver")]
        self.recorder = Recorder.into_segment(self._own[0], -1)
        self.collector = Collector(store, {-1: self._own[0].memory})
        self._speak: dict[int, Handle] = {}  # those that may have something to say yet

    def take(self, ranks: Sequence[int]) -> Sequence[Handle]:
        """Take a fresh process and a new trace for each rank, instead of those that it had."""
        handles = self._take(ranks)
        for one in handles:  # all of them, before anything can fail: ``end`` must know them
            if one.rank in self.handles:
                self.handles[one.rank].close()
            self.handles[one.rank] = self._speak[one.rank] = one
        for one in handles:
            trace = self.traces[one.rank] = trace_segment(f"rank {one.rank}")
            self.collector.add(one.rank, trace.memory)
        return handles

    def begin(self, one: Handle, order: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a fresh rank its first order, with the control block and its trace."""
        trace = self.traces[one.rank]
        one.order({"rank": one.rank, **order}, fds=[self.control.segment.fd, trace.fd, *fds])
        trace.close()  # the collector reads its memory

    def start(self, order: Mapping[str, Any]) -> None:
        """Take all ranks, and send them the same first order."""
        for one in self.take(range(self.size)):
            self.begin(one, order)

    def order(self, message: Mapping[str, Any]) -> None:
        """Send all ranks a message."""
        for one in self.handles.values():
            one.order(message)

    def hear(self, seconds: float) -> list[tuple[int, dict[str, Any], bytearray]]:
        """Return the messages that have come, each with its rank and its bytes; wait so long for
        the first.
        """
        messages = []
        with selectors.PollSelector() as selector:  # it takes no descriptor
            for one in [*self._speak.values()]:
                with contextlib.suppress(ValueError):  # closed by another thread
                    selector.register(one.socket, selectors.EVENT_READ, one)
            for key, _ in selector.select(seconds):
                heard = key.data.hear()
                if heard is None:  # its launcher reports how it ended
                    self._speak.pop(key.data.rank, None)
                messages += [(key.data.rank, *message) for message in heard or ()]
        return messages

    @property
    def pids(self) -> dict[int, int]:
        return {rank: one.pid for rank, one in self.handles.items()}

    @property
    def ended(self) -> dict[int, int]:
        return rank_handle.ended(self.handles.values())

    def end(self, patience: float | None = 0.0) -> None:
        """End the ranks, and read the rest of their records. ``patience``: seconds until those
        that live are killed; None: do not wait for their ends.
        """
        for one in self.handles.values():
            one.close()
        if patience is not None:
            rank_handle.end([*self.handles.values()], patience)
        self.collector.stop()

    def release(self) -> None:
        """Give memory and descriptors back; handles and control words stay, to be read."""
        for trace in (*self.traces.values(), *self._own):
            trace.close()
        self.traces, self._own, self.recorder = {}, [], Recorder.off(-1)
        self.control.unshare()

    def close(self, patience: float = 0.0) -> None:
        """End the ranks and release what they shared."""
        self.end(patience)
        self.release()
