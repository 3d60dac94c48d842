"""Helpers for tests of a steered run: one that would go on forever, held and left to settle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import polars as pl

import workbench as wb
from tests.live import LONG, asleep, gone, lenet, of, trained, training, until
from workbench import laws


@contextlib.contextmanager
def started(**fields: Any) -> Iterator[wb.Run]:
    """A run that would go on forever, trained a little; stopped, and found right, in the end.

    Its rows are read as they come: a collector without a reader takes longer than `settle` waits.
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


def settle(run: wb.Run, looks: int = 25) -> None:
    """Until so many looks, 10 ms apart, have seen all ranks asleep, and no row has come meanwhile.

    Looks, not time: a rank without a core for a moment records nothing, and is in the midst of
    something.
    """
    rows = still = 0

    def stand() -> bool:
        nonlocal rows, still
        if len(run.store) != rows:
            rows, still = len(run.store), 0
        elif run.held and asleep(run.pids.values()):
            still += 1
        time.sleep(0.005)  # and as long between two calls
        return still >= looks

    until(stand, what="the ranks come to a stand")
