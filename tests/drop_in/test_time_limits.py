"""What does not come in time: which call says so, when, and with an error of which kind."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tests.drop_in.both import all_here, compare, raised
from tests.processes import values
from workbench.common.errors import RunTimeout

# By these words PyTorch's own tests of barriers tell a time limit from another error.
SEARCHED = re.compile(r" (Timed out|closed|timeout) ")
SHORT, LONG = timedelta(seconds=0.4), timedelta(seconds=60)
GROUPS = timedelta(seconds=4)  # long enough for Gloo's ranks to find each other on busy cores
SOON = 30.0  # seconds: far less than the long limit, far more than the short ones


def late(action: Callable[[], Any]) -> list[Any]:
    """Was it given up, soon, and by an error that is a RuntimeError, as those of torch are, and
    whose words programs look for?
    """
    start = time.monotonic()
    try:
        action()
    except RuntimeError as error:
        if isinstance(error, RunTimeout):
            assert SEARCHED.search(str(error)) and "timed out" in str(error), error
        return ["RuntimeError", time.monotonic() - start < SOON]
    except Exception as error:
        return [type(error).__name__, time.monotonic() - start < SOON]
    return ["nothing", time.monotonic() - start < SOON]


def _while_others_wait(rank: int, name: str, action: Callable[[], Any]) -> Any:
    """Rank 0 does it; the others come when it is over."""
    store = c10d._get_default_store()
    outcome = None
    if rank == 0:
        outcome = late(action)
        store.set(name, "over")
    store.wait([name], LONG)
    return outcome


def _operations(rank: int, n: int) -> dict[str, Any]:
    """Limits of groups: all of rank 0's calls at once, each in a group of its own."""
    calls: dict[str, Callable[[Any], Any]] = {
        "all_reduce": lambda g: dist.all_reduce(torch.ones(3), group=g),
        "async all_reduce": lambda g: _wait(dist.all_reduce(torch.ones(3), group=g, async_op=True)),
        "all_gather_object": lambda g: dist.all_gather_object([None] * n, 1, group=g),
        "barrier": lambda g: dist.barrier(group=g),
        "recv": lambda g: dist.recv(torch.ones(3), 1, group=g),
        "recv from any rank": lambda g: dist.recv(torch.ones(3), group=g),
    }
    groups = {name: dist.new_group(timeout=GROUPS) for name in calls}

    def given_up(name: str) -> list[Any]:
        return late(lambda: calls[name](groups[name]))

    outcomes: dict[str, Any] = {}

    def all_of_them() -> None:
        with ThreadPoolExecutor(len(calls)) as threads:
            outcomes.update(zip(calls, threads.map(given_up, calls), strict=True))
        # A group in which an operation was given up is over.
        outcomes["after it"] = given_up("all_reduce")

    _while_others_wait(rank, "all of them", all_of_them)
    return outcomes


def _wait(work: Any, timeout: timedelta | None = None) -> None:
    work.wait(timeout) if timeout is not None else work.wait()


def _calls(rank: int, n: int) -> dict[str, Any]:
    """Limits of a single call, in groups whose own limit is long."""
    outcomes = {}
    group = dist.new_group(timeout=LONG)
    outcomes["barrier(timeout=)"] = _while_others_wait(
        rank, "barrier", lambda: dist.barrier(group=group, timeout=SHORT)
    )
    group = dist.new_group(timeout=LONG)
    outcomes["wait(timeout) for a collective"] = _while_others_wait(
        rank,
        "wait",
        lambda: _wait(dist.all_reduce(torch.ones(3), group=group, async_op=True), SHORT),
    )
    group = dist.new_group(timeout=LONG)
    outcomes["wait(timeout) for a message"] = _while_others_wait(
        rank, "message", lambda: _wait(dist.irecv(torch.ones(3), 1, group=group), SHORT)
    )
    group = dist.new_group(timeout=LONG)
    c10d._set_pg_timeout(SHORT, group)
    outcomes["after _set_pg_timeout"] = _while_others_wait(
        rank, "set", lambda: dist.all_reduce(torch.ones(3), group=group)
    )
    group = dist.new_group(timeout=LONG)
    group.set_timeout(SHORT)
    outcomes["after set_timeout"] = _while_others_wait(
        rank, "set_timeout", lambda: dist.all_reduce(torch.ones(3), group=group)
    )
    group = dist.new_group(timeout=LONG)
    outcomes["monitored_barrier, all there"] = raised(
        lambda: group.monitored_barrier(LONG, wait_all_ranks=True)
    )
    outcomes["monitored_barrier, alone"] = _while_others_wait(
        rank, "monitored", lambda: group.monitored_barrier(SHORT)
    )
    return outcomes


@pytest.mark.full
def test_what_does_not_come_in_time() -> None:
    compare([_operations, _calls], 2)


def _one_is_missing(rank: int, n: int, backend: str) -> list[Any]:
    import workbench  # noqa: F401 (makes the backend known)

    limit, size = timedelta(seconds=1), str(n + 1)
    os.environ["WORLD_SIZE"] = size
    outcome = late(lambda: dist.init_process_group(backend, timeout=limit))
    return [*outcome, dist.is_initialized()]


@pytest.mark.parametrize("backend", ["workbench", "gloo"])
def test_a_group_that_a_rank_never_joins(backend: str) -> None:
    assert values(_one_is_missing, 2, backend, backend="") == [["RuntimeError", True, False]] * 2


def _one_dies(rank: int, n: int) -> list[Any]:
    x = torch.ones(1000)
    dist.all_reduce(x)
    all_here(c10d._get_default_store(), "summed", n)  # Gloo's may still read what was sent
    if rank == n - 1:
        os._exit(0)
    return late(lambda: [dist.all_reduce(x) for _ in range(3)])


@pytest.mark.parametrize("backend", ["workbench", "gloo"])
def test_the_death_of_a_rank_is_a_runtime_error(backend: str) -> None:
    ends = values(_one_dies, 3, backend=backend, group_timeout=LONG.total_seconds())
    assert ends == [["RuntimeError", True]] * 2 + [None]
