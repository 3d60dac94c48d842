"""Mailboxes in shared memory and over Gloo: the same laws, nothing forged, nothing leaked."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import crowding
from tests.pairwise import first
from tests.processes import run, values
from workbench import laws
from workbench.process_group.session import DEFAULT_SLOT

SLOT = "1024"  # bytes, so that tensors take several slots
HOSTS: dict[str, Callable[[int], str]] = {
    "one host": lambda rank: "a",
    "a host each": lambda rank: str(rank),
    "two hosts": lambda rank: "ab"[rank // 2],
}


def _traffic(rank: int, n: int) -> dict[str, int]:
    """Some of everything. Returns what the transports moved, and what the group says it sent."""
    from workbench.process_group.live_groups import bytes_sent
    from workbench.process_group.session import session

    group: Any = dist.group.WORLD
    total = sum(range(n))
    for algorithm in ("ring", "naive", "one_shot"):
        session().all_reduce = algorithm
        for elements in (0, 1, n - 1, n, n + 1, 1000, 4097):
            for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
                x = torch.full((elements,), rank, dtype=dtype)
                dist.all_reduce(x, async_op=elements == 1000)
                dist.barrier()
                assert (x == total).all(), (algorithm, elements, dtype)
    into, right, left = torch.zeros(9000), (rank + 1) % n, (rank - 1) % n
    for tag in range(3):
        work = dist.isend(torch.full((9000,), float(rank)), right, tag=tag)
        dist.recv(into, left, tag=tag)
        work.wait()
        assert (into == left).all()
    if rank == 0:
        for _ in range(n - 1):
            x = torch.zeros(700)
            assert (x == dist.recv(x, tag=8)).all()
    else:
        dist.send(torch.full((700,), float(rank)), 0, tag=8)
    dist.barrier()
    return {"moved": group.members.moved(), "sent": bytes_sent()}


@pytest.mark.parametrize("hosts", first(2, HOSTS))
@pytest.mark.parametrize("n", first(1, [4, 2]))
def test_the_laws_hold_on_every_transport(n: int, hosts: str, tmp_path: Path) -> None:
    def env(rank: int) -> dict[str, str]:
        return {
            "WORKBENCH_HOST": HOSTS[hosts](rank),
            "WORKBENCH_TRACE": str(tmp_path),
            "WORKBENCH_CHUNK": SLOT,
        }

    totals = values(_traffic, n, env=env)
    events = wb.load(tmp_path).events
    assert laws.check_events(events) == []
    sends = events.filter(pl.col("kind") == "send")
    sent = sends.group_by("rank").agg(pl.col("nbytes").sum())
    for rank, nbytes in sent.rows():
        assert totals[rank] == {"moved": nbytes, "sent": nbytes}
    assert len(sent) == n


def test_ranks_of_two_hosts_use_both_transports(tmp_path: Path) -> None:
    assert values(_kinds, 4, env=lambda rank: {"WORKBENCH_HOST": HOSTS["two hosts"](rank)}) == [
        {
            str(peer): "Shared" if peer // 2 == rank // 2 else "Gloo"
            for peer in range(4)
            if peer != rank
        }
        for rank in range(4)
    ]


def _kinds(rank: int, n: int) -> dict[str, str]:
    members = dist.group.WORLD.members  # type: ignore[union-attr]
    boxes = {peer: members.outbox(peer) for peer in range(n) if peer != rank}
    return {str(peer): type(box).__name__.removesuffix("Outbox") for peer, box in boxes.items()}


# -- failures between hosts --


def _disagree(rank: int, n: int) -> list[Any]:
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(10 + (rank == 2)))
        dist.all_reduce(torch.ones(5))
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


def _dies(rank: int, n: int) -> list[Any]:
    dist.all_reduce(torch.ones(5))
    if rank == 2:
        for other in range(2):  # they are through with it, whatever of ours was on its way
            dist.recv(torch.empty(1), other)
        os._exit(9)
    dist.send(torch.ones(1), 2)
    start = time.monotonic()
    try:
        for _ in range(10):
            dist.all_reduce(torch.ones(100_000))
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


def _host_each(rank: int) -> dict[str, str]:
    return {"WORKBENCH_HOST": str(rank)}


@pytest.mark.timing
def test_ranks_of_different_hosts_learn_of_a_disagreement() -> None:
    # In the naive algorithm rank 0 alone sees what is wrong: the others are told.
    def env(rank: int) -> dict[str, str]:
        return _host_each(rank) | {"WORKBENCH_ALL_REDUCE": "naive"}

    for kind, words, seconds in values(_disagree, 3, env=env, timeout=20):
        assert (kind, seconds < 2.0 * crowding()) == ("CollectiveError", True), words
        assert "10 float32" in words and "11 float32" in words


@pytest.mark.timing
def test_ranks_of_different_hosts_learn_of_a_lost_one() -> None:
    *survivors, dead = run(_dies, 3, env=_host_each)
    assert dead.code == 9
    for rank in survivors:
        assert rank.value is not None, rank.err
        kind, words, seconds = rank.value
        assert (kind, seconds < 1.0 * crowding()) == ("PeerLost", True), words
        assert "rank 2" in words


def _idle(rank: int, n: int) -> None:
    x = torch.ones(5)
    dist.all_reduce(x)
    time.sleep(2.5)  # longer than the group's timeout: no rank waits, so nothing is late
    dist.all_reduce(x)
    assert (x == n * n).all()


@pytest.mark.parametrize("hosts", ["one host", "a host each"])
def test_an_idle_channel_does_not_time_out(hosts: str) -> None:
    env = {"WORKBENCH_VERIFY": "1"}
    values(
        _idle, 2, env=lambda rank: env | {"WORKBENCH_HOST": HOSTS[hosts](rank)}, group_timeout=2.0
    )


# -- nothing is forged --


def flip(step: int) -> None:
    """From here on this rank's messages of that step arrive with one byte changed."""
    from workbench.transports import mailbox, shared_memory

    post = shared_memory.SharedOutbox.post

    def damaged(box: Any, header: mailbox.Header) -> None:
        if header.step == step:
            box.memory[box._headers[box.counts[0]] + mailbox.HEADER_BYTES + 3] ^= (
                0x40  # an exponent
            )
        post(box, header)

    shared_memory.SharedOutbox.post = damaged  # type: ignore[method-assign]


def _damaged(rank: int, n: int, algorithm: str, step: int) -> list[Any]:
    from workbench.process_group.session import session

    session().all_reduce = algorithm
    x = torch.full((3000,), 1.0 + rank)
    dist.all_reduce(x)
    dist.barrier()
    if rank == 1:
        flip(step)
    try:
        dist.all_reduce(x)
        y = x.clone()
        dist.all_reduce(y)  # a rank that was done already hears of it here
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["wrong" if (x != x[1]).any() else "right", ""]


@pytest.mark.parametrize(
    ("algorithm", "step"), first(1, [("ring", 0), ("ring", 2), ("naive", 0), ("one_shot", 1)])
)
def test_a_flipped_byte_is_found_and_named(algorithm: str, step: int) -> None:
    heard = values(_damaged, 3, algorithm, step, env={"WORKBENCH_VERIFY": "1"})
    for kind, words in heard:
        assert kind == "CollectiveError", words
        assert re.search(
            rf"step {step + 1}, chunk \d+, slot 0 from rank 1 arrived damaged", words
        ), words
    python = {"WORKBENCH_MOVER": "python"}  # whose ``post`` is the one that damages
    unseen = values(_damaged, 3, algorithm, step, env=python)
    assert "wrong" in [kind for kind, _ in unseen], "the byte that was flipped changes no result"


def _without_gloo(rank: int, n: int) -> float:
    class Broken:
        def __init__(self, whole: Any) -> None:
            self.whole = whole

        def __getattr__(self, name: str) -> Any:
            if name == "allreduce":
                raise AssertionError("Gloo was asked")
            return getattr(self.whole, name)

    group: Any = dist.group.WORLD
    context = group.context
    whole, context.inner = context.inner, Broken(context.inner)
    x = torch.full((5000,), float(rank))
    dist.all_reduce(x)
    with pytest.raises(AssertionError, match="Gloo was asked"):  # the trap is set
        dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.BAND)
    context.inner = whole
    return float(x[-1])


def test_all_reduce_is_ours_and_not_gloos() -> None:
    assert values(_without_gloo, 3) == [3.0] * 3


# -- what it takes --


def _too_little(rank: int, n: int) -> list[str]:
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # counts for memfd too
    try:
        dist.all_reduce(torch.ones(100))
    except wb.WorkbenchError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def test_too_little_shared_memory_is_an_error_with_the_size_needed() -> None:
    stride = DEFAULT_SLOT + 128
    for kind, words in values(_too_little, 2):
        assert kind == "WorkbenchError"
        assert f"{4096 + 4 * stride:,} bytes" in words and "mailbox 0 -> 1" in words, words


def _cycles(rank: int, n: int) -> list[int]:
    counts = []
    for i in range(30):
        group = dist.new_group(list(range(n)))
        x = torch.ones(100)
        dist.all_reduce(x, group=group, async_op=True).wait()
        work = dist.isend(x, (rank + 1) % n, group=group)
        dist.recv(torch.zeros(100), (rank - 1) % n, group=group)
        work.wait()
        dist.destroy_process_group(group)
        del group, work
        if i >= 9:
            counts.append(len(os.listdir("/proc/self/fd")))
    return counts


@pytest.mark.full
@pytest.mark.parametrize("hosts", first(1, ["a host each", "one host"]))
def test_descriptors_do_not_grow(hosts: str) -> None:
    for counts in values(_cycles, 2, env=lambda rank: {"WORKBENCH_HOST": HOSTS[hosts](rank)}):
        # What is opened once, and late, is not growth; what a group keeps is one more for each.
        assert max(counts) - max(counts[:3]) < len(counts) // 2, counts
