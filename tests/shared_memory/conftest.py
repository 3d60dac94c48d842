"""A machine that needs fences, which this one does not; and what its tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workbench.common.errors import CollectiveError
from workbench.recording import events
from workbench.recording.events import DATA_AT
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory import ordering
from workbench.shared_memory.segments import Segment

ERROR = CollectiveError("it broke")
ROWS_AT, CONTEXTS_AT = DATA_AT, DATA_AT + events.ROWS * 64
NAMES = slice(events.NAMES_AT, events.NAMES_AT + 64)


class Weak:
    """A machine that needs fences. At each it notes what ``look`` returns; then the next of
    ``later`` happens: stores of another process that are seen from here on, not before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ordering, "WEAK", True)
        monkeypatch.setattr(ordering, "_fence", self._fence)
        monkeypatch.setenv("WORKBENCH_MOVER", "python")
        self.look: Callable[[], Any] = lambda: None
        self.later: list[Callable[[], Any]] = []
        self.seen: list[Any] = []

    def _fence(self) -> None:
        self.seen.append(self.look())
        if self.later:
            self.later.pop(0)()


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> Weak:
    return Weak(monkeypatch)


def new_recorder() -> tuple[Recorder, Segment]:
    segment = trace_segment("a test")
    return Recorder.into_segment(segment, 0), segment
