"""A rank that is stopped while a run starts is named, whatever the others wait in by then."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

import workbench as wb
from tests.live import LONG, lenet, over_in_the_end
from tests.pairwise import first
from tests.processes import values
from workbench.process_group import context as group_context


@pytest.mark.parametrize(
    "after", first(2, [0.0, 0.02, 0.06])
)  # seconds: any of them may be in any phase
@pytest.mark.parametrize("rank", first(1, [1, 0]))
def test_a_rank_that_is_stopped_at_the_start_is_named(rank: int, after: float) -> None:
    with over_in_the_end(wb.run(lenet(iterations=LONG, timeout="0.3 s"))) as run:
        time.sleep(after)
        pid = run.pids[rank]
        os.kill(pid, signal.SIGSTOP)
        error = run.wait(timeout=60, check=False).error
    assert isinstance(error, wb.RunTimeout), error
    assert f"rank {rank} (process {pid}) is stopped (SIGSTOP)" in str(error)
    assert "timed out" in str(error) and "DistStoreError" not in str(error)


def test_a_small_timeout_is_not_for_the_forming_of_groups() -> None:
    """It is shorter than that takes on any machine, and no wait of the training itself is long."""
    assert wb.run(lenet(ranks=1, timeout="2 ms", iterations=3)).wait(timeout=60).ok
    run = wb.run(lenet(ranks=3, timeout="1 ms", iterations=3))
    error = run.wait(timeout=60, check=False).error
    assert error is None or isinstance(error, wb.RunTimeout), error
    assert error is None or "did not join" not in str(error)


@pytest.mark.parametrize("timeout", ["0 s", "0 ms"])
def test_a_timeout_of_nothing_is_refused(timeout: str) -> None:
    with pytest.raises(wb.SpecError, match=r"timeout.*(more than|above) 0"):
        lenet(timeout=timeout)
    with pytest.raises(wb.SpecError, match=r"timeout.*(more than|above) 0"):
        wb.ranks(2, timeout=timeout)


def _stays_away(rank: int, size: int) -> str:
    """Rank 1 comes, and goes no further once both have met."""
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, is_master=False)

    def waits(*_: object, **__: object) -> None:
        store.wait(["over"], timedelta(seconds=60))
        raise KeyboardInterrupt

    if rank == 1:
        group_context.InnerGloo = waits  # type: ignore[assignment,misc]
    try:
        dist.init_process_group(
            "workbench", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=1)
        )
    except (wb.RunTimeout, KeyboardInterrupt) as error:
        return str(error)
    finally:
        store.set("over", "")
    return "it was made"


def test_a_rank_that_waits_inside_gloo_is_told_so_and_not_blamed() -> None:
    words = values(_stays_away, 2, backend="")[0]
    assert "rank 0 of group default (2 ranks): all have come" in words and "timed out" in words
