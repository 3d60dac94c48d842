"""Helpers for tests of runs that fail: a run that is over with its test, and how it failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

import workbench as wb
from tests.live import (
    LONG,
    PATIENCE,
    gone,
    lenet,
    over_in_the_end,
)

SOON = 1.0  # seconds: a killed rank is reported, the ranks of a driver that ended are gone


@contextlib.contextmanager
def started(**fields: Any) -> Iterator[wb.Run]:
    """A run that would go on forever; over when the test is."""
    with over_in_the_end(wb.run(lenet(**{"iterations": LONG, "ranks": 3, **fields}))) as run:
        yield run


def failure(run: wb.Run) -> tuple[wb.WorkbenchError, float]:
    """Return what the run fails with, and after how many seconds."""
    begin = time.monotonic()
    with pytest.raises(wb.WorkbenchError) as caught:
        run.wait(timeout=PATIENCE)
    assert caught.value.result is run.result
    assert not run.result.ok and run.result.error is caught.value
    assert gone(run.pids.values()), "a rank is still there"
    return caught.value, time.monotonic() - begin
