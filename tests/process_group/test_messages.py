"""Messages: every size and dtype, tags, from any rank, any of several, in threads."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tests.process_group.common import DTYPES, SLOT, inputs
from tests.processes import values
from workbench.messaging.progress_engine import ProgressEngine
from workbench.recording.events import now


def _ask_at_once() -> None:
    """Ask each engine as soon as it is added what its thread may ask from then on."""
    add = ProgressEngine.add

    def add_and_ask(self: ProgressEngine, engine: Any) -> None:
        engine.due(), engine.busy(), engine.advance(), engine.look(now())
        add(self, engine)

    ProgressEngine.add = add_and_ask  # type: ignore[method-assign]


def _messages(rank: int, n: int) -> None:
    _ask_at_once()
    right, left = (rank + 1) % n, (rank - 1) % n
    # sizes around the slot, all dtypes, in both directions at once
    for elements, name in itertools.product((0, 1, 255, 256, 257, 5000), DTYPES):
        x = inputs(rank, elements, getattr(torch, name), "SUM")
        into = torch.zeros_like(x)
        work = dist.isend(x, right)
        assert dist.recv(into, left) == left
        work.wait()
        assert torch.equal(into, inputs(left, elements, x.dtype, "SUM")), (elements, name)
    for dtype in (torch.bool, torch.complex64):
        x, into = torch.ones(1000).to(dtype), torch.zeros(1000).to(dtype)
        work = dist.isend(x, right)
        dist.recv(into, left)
        work.wait()
        assert torch.equal(x, into)
    # not contiguous at either end
    work = dist.isend(torch.full((40, 50), float(rank)).t(), right)
    grid = torch.zeros(50, 80)
    dist.recv(grid[:, ::2], left)
    work.wait()
    assert (grid[:, ::2] == left).all() and (grid[:, 1::2] == 0).all()


def _tags(rank: int, n: int) -> None:
    if rank == 0:
        for tag in (5, 3, 9, 3):
            dist.send(torch.full((600,), float(tag * 10)), 1, tag=tag)
            dist.send(torch.full((1,), float(tag)), 1, tag=tag)
    elif rank == 1:
        time.sleep(0.1)  # they come before their receives
        for tag in (9, 3, 5, 3):
            big, small = torch.zeros(600), torch.zeros(1)
            dist.recv(big, 0, tag=tag)
            dist.recv(small, 0, tag=tag)
            assert (big == tag * 10).all() and small.item() == tag
    # from any rank, later ones first
    if rank == 0:
        senders = []
        for _ in range(n - 1):
            x = torch.zeros(3000)
            senders.append(dist.recv(x))
            assert (x == senders[-1]).all()
        assert sorted(senders) == list(range(1, n))
    else:
        time.sleep(0.05 * (n - rank))
        dist.send(torch.full((3000,), float(rank)), 0)
    dist.barrier()
    # posted receives with different tags, filled in another order
    if rank == 0:
        xs = [torch.zeros(1000) for _ in range(4)]
        works = [dist.irecv(x, 1, tag=tag) for tag, x in enumerate(xs)]
        for work in reversed(works):
            work.wait()
        assert [x[-1].item() for x in xs] == [0.0, 1.0, 2.0, 3.0]
    elif rank == 1:
        for tag in (2, 0, 3, 1):
            dist.send(torch.full((1000,), float(tag)), 0, tag=tag)


def _crossing(rank: int, n: int) -> None:
    """Every rank sends every other more than all slots hold, before any receives."""
    big = torch.full((300_000,), float(rank))
    into = [torch.zeros(300_000) for _ in range(n)]
    others = [r for r in range(n) if r != rank]
    sends = [dist.P2POp(dist.isend, big, r) for r in others]
    receives = [dist.P2POp(dist.irecv, into[r], r) for r in others]
    for ops in (sends + receives, receives + sends):
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert all((into[r] == r).all() for r in others)
        for x in into:
            x.zero_()
    works = [dist.isend(big, r) for r in others]
    time.sleep(0.05)
    for r in others:  # while a collective runs between
        dist.recv(into[r], r)
    x = torch.ones(100_000)
    dist.all_reduce(x)
    for work in works:
        work.wait()
    assert (x == n).all() and all((into[r] == r).all() for r in others)


def _sender_leaves(rank: int, n: int, elements: int) -> None:
    x = torch.arange(float(elements))
    if rank == 0:
        dist.isend(x, 1)  # and no rank waits for it
        return
    time.sleep(0.7)
    into = torch.zeros(elements)
    dist.recv(into, 0)
    assert torch.equal(into, x)


def test_messages_of_every_size_and_dtype() -> None:
    values(_messages, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


def test_tags_and_receives_from_any_rank() -> None:
    values(_tags, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


@pytest.mark.parametrize("chunk", [SLOT, 262_144])
def test_large_messages_that_cross(chunk: int) -> None:
    values(_crossing, 3, env={"WORKBENCH_CHUNK": str(chunk)})


@pytest.mark.parametrize("elements", [10, 20_000])  # less and more than the slots hold
def test_a_sender_may_end_before_its_message_is_received(elements: int) -> None:
    values(_sender_leaves, 2, elements, env={"WORKBENCH_CHUNK": str(SLOT)})


def _impatient(rank: int, n: int) -> list[Any]:
    from datetime import timedelta

    store = c10d._get_default_store()
    if rank == 1:
        store.wait(["given up"], timedelta(seconds=50))
        dist.send(torch.ones(3), 0)
        return []
    x, start = torch.zeros(3), time.monotonic()
    work = dist.irecv(x, 1)
    try:
        work.wait(timedelta(seconds=0.2))
    except Exception as error:
        waited, name = time.monotonic() - start, type(error).__name__
        store.set("given up", "")
        work.wait()
        return [name, waited >= 0.2, x.tolist()]
    return ["no error"]


def test_a_wait_with_a_timeout_gives_up_and_the_message_still_comes() -> None:
    assert values(_impatient, 2)[0] == ["RunTimeout", True, [1.0] * 3]


def _any_of(rank: int, n: int) -> None:
    """A rank that waits for several messages goes on with the first, wherever it stands in the
    list.
    """
    from workbench.process_group.session import session
    from workbench.process_group.work import wait_any

    session().next_group = "control"
    control = dist.new_group()
    if rank:
        x = torch.full((3000,), float(rank))
        for i in range(20):
            if rank == 1 + i % (n - 1):  # one sends, and waits for the answer
                dist.send(x + i, 0)
                dist.recv(torch.zeros(1), 0)
            dist.barrier()
        if rank == 1:
            dist.send(torch.ones(2), 0, group=control)
        dist.barrier()
        return
    into = [torch.zeros(3000) for _ in range(n)]
    works = [dist.irecv(into[peer], peer) for peer in range(1, n)]
    farewell = dist.irecv(torch.zeros(2), 1, group=control)
    assert wait_any([], 0.0) == []
    for i in range(20):
        peer = 1 + i % (n - 1)
        ready = wait_any([*works, farewell] if i % 2 else works, 20.0)
        assert ready == [peer - 1] == wait_any(works, 20.0)
        works[peer - 1].wait()
        assert (into[peer] == peer + i).all()
        works[peer - 1] = dist.irecv(into[peer], peer)
        dist.send(torch.zeros(1), peer)
        if i == 10:  # all stand at the barrier: nothing comes
            began = time.monotonic()
            assert wait_any(works, 0.1) == [] and time.monotonic() - began >= 0.1
        dist.barrier()
    assert wait_any([*works, farewell], 20.0) == [n - 1]
    assert wait_any([farewell, *works], 20.0) == [0]
    dist.barrier()


def test_a_wait_for_any_of_several_messages_ends_with_the_first() -> None:
    values(_any_of, 4, env={"WORKBENCH_CHUNK": str(SLOT)})


def _any_of_other_works(rank: int, n: int) -> None:
    from workbench.process_group.work import wait_any

    x, total = torch.zeros(3), torch.ones(2000)
    if rank == 0:
        works = [dist.all_reduce(total, async_op=True), dist.irecv(x, 1)]
        assert wait_any(works, 20.0) == [1]
        dist.send(x, 1)
        assert wait_any(works[:1], 20.0) == [0] and wait_any(works, 20.0) == [0, 1]
    else:
        dist.send(x + 1, 0)
        dist.recv(x, 0)
        dist.all_reduce(total)
    assert (x == 1).all() and (total == 2).all()


def test_messages_and_collectives_are_waited_for_together() -> None:
    values(_any_of_other_works, 2)


def _waits_in_threads(rank: int, n: int) -> None:
    """Three threads wait for a message each; what comes for one is not held up by the others."""
    import threading

    if rank:
        for tag in (2, 0, 1):
            dist.send(torch.full((2000,), float(tag)), 0, tag=tag)
            dist.recv(torch.zeros(1), 0, tag=9)
        return
    into = [torch.zeros(2000) for _ in range(3)]
    order = []

    def wait(tag: int) -> None:
        dist.recv(into[tag], 1, tag=tag)
        order.append(tag)
        dist.send(torch.zeros(1), 1, tag=9)  # the next one comes only now

    threads = [threading.Thread(target=wait, args=(tag,)) for tag in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert order == [2, 0, 1] and [x[-1].item() for x in into] == [0.0, 1.0, 2.0]


def test_threads_that_wait_do_not_hold_each_other_up() -> None:
    values(_waits_in_threads, 2, env={"WORKBENCH_CHUNK": str(SLOT)})


def _into_one_place(rank: int, n: int) -> tuple[str, float]:
    """Receive into rows that are one and the same memory, which torch refuses to write to."""
    if rank == 0:
        dist.send(torch.ones(2, 3), 1)
        dist.send(torch.full((3,), 7.0), 1)
        return "", 7.0
    error, last = "", torch.zeros(3)
    try:
        dist.recv(torch.zeros(1, 3).expand(2, 3), 0)
    except RuntimeError as raised:
        error = str(raised)
    dist.recv(last, 0)
    return error, last.mean().item()


def test_a_message_that_cannot_be_copied_to_its_place_is_an_error_of_its_receiver() -> None:
    _, (error, next_message) = values(_into_one_place, 2)
    assert "single memory location" in error and next_message == 7.0
