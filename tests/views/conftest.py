"""For tests of the feed: its thread ends with the last page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import until
from tests.views.feeding import begin, leave_all, threads


@pytest.fixture(autouse=True)
def pages_are_left() -> Iterator[None]:
    """Close what a failed test has left open: the next one looks at threads, too."""
    begin()
    yield
    leave_all()


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads(), 5, "the feed's thread has ended")
