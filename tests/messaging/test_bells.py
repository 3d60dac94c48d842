"""Which rank wakes which: one ring for several, none for a lent message without waiter."""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist

from tests.processes import values
from workbench.process_group.session import session
from workbench.transports.doorbell import MESSAGES, ROOM, Bells, together
from workbench.transports.in_place import LEAST

DEADLINE = 20.0  # seconds


def test_bells_that_ring_together_wake_once() -> None:
    bells = Bells.create()
    bells.segment.words[MESSAGES] = 1  # a thread waits for messages, and for nothing else
    with together():
        for _ in range(3):
            bells.messages.ring()
            bells.room.ring()
        assert not bells.semaphore.acquire(False)
    assert bells.semaphore.acquire(False) and not bells.semaphore.acquire(False)


def test_other_threads_ring_at_once_meanwhile() -> None:
    bells = Bells.create()
    bells.segment.words[MESSAGES] = 1
    with together():
        thread = threading.Thread(target=bells.messages.ring)
        thread.start()
        thread.join(DEADLINE)
        assert bells.semaphore.acquire(False)


def _listens(room: bool) -> bool:
    """Return whether this process comes to sleep until a message comes, and with ``room`` until
    there is room too, without it until nothing else.
    """
    words = session().progress_engine.bells.segment.words
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if words[MESSAGES] and bool(words[ROOM]) == room:
            return True
        time.sleep(1e-3)
    return False


def _lends(rank: int, n: int) -> dict[str, bool]:
    """Rank 0 lends a message, and waits for another; then it lends one, and waits for that."""
    lent, answer = session().lender.empty_like(torch.zeros(LEAST)).fill_(7.0), torch.zeros(3)
    result: dict[str, bool] = {}
    store = dist.distributed_c10d._get_default_store()
    for waits_for in ("answer", "taken"):

        def note(name: str = waits_for) -> None:
            result[name] = _listens(room=name == "taken")
            store.set(name, "noted")

        if rank == 0:
            sent, received = dist.isend(lent, 1), dist.irecv(answer, 1)
            thread = threading.Thread(target=note)
            thread.start()
            (received if waits_for == "answer" else sent).wait()
            thread.join(DEADLINE)
            sent.wait(), received.wait()
        else:
            store.wait([waits_for])
            into = torch.zeros(LEAST)
            if waits_for == "answer":
                dist.send(answer, 0)
            dist.recv(into, 0)
            assert (into == 7.0).all()
            if waits_for == "taken":
                dist.send(answer, 0)
        dist.barrier()
    return result


def test_a_lent_message_that_is_taken_wakes_only_those_that_wait_for_it() -> None:
    assert values(_lends, 2)[0] == {"answer": True, "taken": True}
