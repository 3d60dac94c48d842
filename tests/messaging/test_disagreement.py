"""Ranks that disagree: an error on every rank that says which passed what."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.live import crowding
from tests.pairwise import first
from tests.processes import values

SOON = 2.0  # seconds until all ranks have the error


def _all_reduce(
    elements: int, dtype: torch.dtype = torch.float32, op: str = "SUM", **options: Any
) -> Any:
    x = torch.ones(elements, dtype=dtype)
    return dist.all_reduce(x, op=getattr(dist.ReduceOp, op), **options)


# What rank 0 does, what the last rank does, and what the message must contain of either.
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str, str]] = {
    "elements": (
        lambda: _all_reduce(1000),
        lambda: _all_reduce(1001),
        "1,000 float32",
        "1,001 float32",
    ),
    "large and small": (
        lambda: _all_reduce(10),
        lambda: _all_reduce(500_000),
        "10 float32",
        "500,000 float32",
    ),
    "dtypes": (
        lambda: _all_reduce(64),
        lambda: _all_reduce(64, torch.int32),
        "64 float32",
        "64 int32",
    ),
    "reductions": (
        lambda: _all_reduce(9),
        lambda: _all_reduce(9, op="MAX"),
        "all_reduce(SUM)",
        "all_reduce(MAX)",
    ),
    "adding and moving": (
        lambda: _all_reduce(70_000),
        lambda: dist.broadcast(torch.ones(70_000), 0),
        "all_reduce(SUM) of 70,000 float32",
        "broadcast of 70,000 float32",
    ),
    "two that differ": (
        lambda: dist.barrier(),
        lambda: dist.broadcast(torch.ones(7), 0),
        "barrier",
        "broadcast of 7 float32",
    ),
    "elements of another": (
        lambda: dist.broadcast(torch.ones(8), 1),
        lambda: dist.broadcast(torch.ones(7), 1),
        "broadcast of 8 float32",
        "broadcast of 7 float32",
    ),
    "roots": (
        lambda: dist.broadcast(torch.ones(8), 0),
        lambda: dist.broadcast(torch.ones(8), 1),
        "broadcast of 8 float32 from rank 0",
        "broadcast of 8 float32 from rank 1",
    ),
    "roots of a sum": (
        lambda: dist.reduce(torch.ones(5000), 1),
        lambda: dist.reduce(torch.ones(5000), 0),
        "reduce(SUM) of 5,000 float32 to rank 1",
        "reduce(SUM) of 5,000 float32 to rank 0",
    ),
    "parts": (
        lambda: dist.all_gather([torch.ones(4)] * dist.get_world_size(), torch.ones(4)),
        lambda: dist.all_gather([torch.ones(5)] * dist.get_world_size(), torch.ones(5)),
        "all_gather of 4 float32",
        "all_gather of 5 float32",
    ),
    "dtypes that move": (
        lambda: dist.broadcast(torch.ones(6), 0),
        lambda: dist.broadcast(torch.ones(6, dtype=torch.int64), 0),
        "broadcast of 6 float32 from rank 0",
        "broadcast of 6 int64 from rank 0",
    ),
    "ours and Gloo's": (
        lambda: dist.broadcast(torch.ones(70_000), 0),
        lambda: _all_reduce(70_000, torch.complex64),
        "broadcast of 70,000 float32",
        "all_reduce",
    ),
}


def _disagree(rank: int, n: int, case: str, asynchronous: bool) -> list[Any]:
    """Return what this rank hears, and after how long. Goes on calling until it hears something."""
    first, last, _, _ = CASES[case]
    start = time.monotonic()
    try:
        _all_reduce(3)  # here a slow rank may hear of it already
        if case in ("adding and moving", "ours and Gloo's") and rank == 0:
            time.sleep(0.2)  # the other one waits by then
        if rank == n - 1:
            last()
        else:
            first()
        for _ in range(100):
            work = _all_reduce(5, async_op=asynchronous)
            if work is not None:
                work.wait()
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


@pytest.mark.parametrize("n", first(1, [3, 2]))
@pytest.mark.parametrize("case", first(4, CASES))
def test_every_rank_learns_which_passed_what(case: str, n: int) -> None:
    heard = values(_disagree, n, case, n == 3, timeout=20)
    _, _, first, last = CASES[case]
    for rank, (kind, words, seconds) in enumerate(heard):
        assert kind == "CollectiveError", (rank, kind, words)
        assert first in words and last in words, (rank, words)
        assert f"rank {n - 1}" in words, words
        assert seconds < SOON * crowding(), (rank, seconds)
    # which passed what: the one that differs is named with what it passed
    assert any(re.search(rf"rank {n - 1}[^,]*{re.escape(last)}", words) for _, words, _ in heard)


def _uneven(rank: int, n: int, elements: int) -> list[Any]:
    """Every rank gives each other one so many; the last one says that it gives one less."""
    own = elements - (rank == n - 1)
    x, out = torch.ones(own * (n - 1) + elements), torch.ones(elements * n)
    sends = [own if r != rank else elements for r in range(n)]
    start = time.monotonic()
    try:
        dist.all_to_all_single(out, x, [elements] * n, sends)
        dist.barrier()
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


@pytest.mark.parametrize("elements", first(1, [65_537, 5]))  # less than a slot; a slot and a crumb
def test_what_one_sends_to_another_in_all_to_all_is_compared(elements: int) -> None:
    heard = values(_uneven, 3, elements, timeout=20)
    for kind, words, seconds in heard:
        assert (kind, seconds < SOON * crowding()) == ("CollectiveError", True), (
            kind,
            words,
            seconds,
        )
        assert "rank 2" in words, words


def _order(rank: int, n: int) -> list[Any]:
    a, b = torch.ones(50_000), torch.ones(20)
    dist.barrier()  # else two may disagree and end while the third has yet to join them
    start = time.monotonic()
    try:
        for x in (a, b) if rank else (b, a):
            dist.all_reduce(x)
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


def test_another_order_of_calls_is_named() -> None:
    for kind, words, seconds in values(_order, 3, timeout=20):
        assert (kind, seconds < SOON * crowding()) == ("CollectiveError", True), words
        assert "50,000 float32" in words and "20 float32" in words


def _skips_one(rank: int, n: int) -> list[Any]:
    start = time.monotonic()
    try:
        if rank:
            dist.all_reduce(torch.ones(11))
        for _ in range(3):
            dist.all_reduce(torch.ones(12))
        dist.barrier()
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


def test_a_skipped_call_is_named() -> None:
    for kind, words, seconds in values(_skips_one, 2, timeout=20):
        assert (kind, seconds < SOON * crowding()) == ("CollectiveError", True), words
        assert "11 float32" in words and "12 float32" in words


def _message(rank: int, n: int, elements: int, dtype: str, early: bool) -> list[Any]:
    start = time.monotonic()
    try:
        if rank == 0:
            dist.send(torch.ones(1000), 1, tag=4)
            dist.barrier()
        else:
            if early:
                time.sleep(0.2)
            dist.recv(torch.zeros(elements, dtype=getattr(torch, dtype)), 0, tag=4)
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


@pytest.mark.parametrize("early", first(1, [False, True]))
@pytest.mark.parametrize(
    ("elements", "dtype"), first(2, [(999, "float32"), (1000, "int32"), (2000, "float32")])
)
def test_a_message_of_another_size_or_dtype_is_named(
    elements: int, dtype: str, early: bool
) -> None:
    for kind, words, seconds in values(_message, 2, elements, dtype, early, timeout=20):
        assert (kind, seconds < SOON * crowding()) == ("CollectiveError", True), words
        assert "rank 0 sent p2p of 1,000 float32" in words
        assert f"rank 1 receives p2p of {elements:,} {dtype}" in words
