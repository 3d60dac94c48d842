"""Where there are more ranks than cores, a server that wakes its workers keeps its core."""

from __future__ import annotations

import os

import pytest

import workbench as wb
from tests.live import LONG, over_in_the_end, until
from tests.training.parameter_servers.served import served

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize("workers", [1, CORES])
def test_workers_that_are_woken_wait_for_a_core(workers: int) -> None:
    exp = served("asp", workers=workers, iterations=LONG, pad_compute="2 ms")
    with over_in_the_end(wb.run(exp)) as run:
        until(lambda: run.done or run.iteration > 3, 60, "the workers train")
        policies = [os.sched_getscheduler(run.pids[rank]) for rank in range(exp.ranks)]
    crowded = exp.ranks > CORES
    assert policies[0] == os.SCHED_OTHER
    assert policies[1:] == [os.SCHED_BATCH if crowded else os.SCHED_OTHER] * workers
