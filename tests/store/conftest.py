"""For tests of the collector: memory that records are written to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.recording.events import TRACE_BYTES
from workbench.shared_memory.segments import Segment


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create(TRACE_BYTES, "a test")
    yield segment
    segment.close()


@pytest.fixture(params=["python", "c"])
def mover(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader of the rings: each test that asks for it runs with both."""
    monkeypatch.setenv("WORKBENCH_MOVER", request.param)
    return str(request.param)
