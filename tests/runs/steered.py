"""Helpers for tests of a steered run: one that would go on for ever, held and left to settle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import polars as pl

import workbench as wb
from tests.live import LONG, gone, lenet, of, trained, training
from workbench import laws


@contextlib.contextmanager
def started(**fields: Any) -> Iterator[wb.Run]:
    """A run that would go on for ever, trained a little; stopped, and found right, in the end.

    Its rows are read as they come: for nobody the collector takes longer than `settle` waits.
    """
    run = wb.run(lenet(**{"iterations": LONG, **fields}))
    reader = run.store.tap()
    try:
        yield training(run, 1)
    except BaseException:
        for rank in run.pids:
            run.kill(rank)
        run.wait(timeout=90, check=False)
        raise
    run.stop()
    result = run.wait(timeout=90)
    del reader
    assert result.ok and gone(run.pids.values())
    assert len(set(result.digests.values())) == 1
    assert run.dropped == 0 and laws.check_events(run.events) == []


def sends(run: wb.Run) -> pl.DataFrame:
    return of(trained(run.events), kind="send")


def hold(run: wb.Run) -> None:
    """Pause, and wait until no rank moves any more."""
    run.pause()
    settle(run)


def settle(run: wb.Run, quiet: float = 0.25) -> None:
    """Until nothing has been recorded for so many seconds."""
    deadline = time.monotonic() + 10
    rows, since = -1, time.monotonic()
    while time.monotonic() - since < quiet or not run.held:
        assert time.monotonic() < deadline, "the ranks do not come to a stand"
        if len(run.store) != rows:
            rows, since = len(run.store), time.monotonic()
        time.sleep(0.01)
