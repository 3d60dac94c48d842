"""Helpers for tests of recovery: a run that would go on forever, its generations, and its end.

One of few iterations might be over, on busy cores, before a test has done what it is about.
"""

from __future__ import annotations

import workbench as wb
from tests.live import until
from workbench.store.recoveries import Recovery, recoveries_of


def generations(run: wb.Run) -> list[Recovery]:
    return recoveries_of(run.store.metadata)


def ended(run: wb.Run) -> wb.Result:
    """Stop a run, and return its result."""
    run.stop()
    return run.wait(timeout=90)


def wait_for(run: wb.Run, generation: int, iterations: int = 2) -> None:
    """Wait until the ranks have trained in a generation for so many iterations."""
    until(lambda: run.done or len(generations(run)) >= generation, 60, "the ranks regroup")
    assert not run.done, run.result.error
    after = generations(run)[-1].iteration + iterations
    until(lambda: run.done or run.iteration >= after, 60, "the ranks train")
    assert not run.done, run.result.error


def recovered(run: wb.Run) -> wb.Result:
    """Wait until the ranks train in the next generation, and stop them. Returns the result."""
    wait_for(run, 1)
    return ended(run)
