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
