"""Who wakes whom: one ring for several messages, none for a lent message nobody waits for."""

from __future__ import annotations

import threading
import time
from typing import Any

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


def _listens_for(word: int) -> bool:
    """Return whether this process asks, within a while, to be woken for ``word`` as it waits for
    messages too.
    """
    words = session().progress_engine.bells.segment.words
    end = time.monotonic() + DEADLINE
    while not words[MESSAGES] and time.monotonic() < end:
        time.sleep(1e-3)
    return bool(words[word])


def _lends(rank: int, n: int) -> dict[str, Any]:
    """Rank 0 lends a message, and waits for another; then it lends one, and waits for that."""
    lent, answer = session().lender.empty_like(torch.zeros(LEAST)).fill_(7.0), torch.zeros(3)
    result: dict[str, Any] = {}
    if rank == 0:
        for waits_for in ("answer", "taken"):
            sent, received = dist.isend(lent, 1), dist.irecv(answer, 1)
            note = threading.Thread(
                target=lambda name=waits_for: result.update({name: _listens_for(ROOM)})
            )
            note.start()
            (received if waits_for == "answer" else sent).wait()
            note.join(DEADLINE)
            sent.wait(), received.wait()
            dist.barrier()
    else:
        for waits_for in ("answer", "taken"):
            time.sleep(0.5)  # rank 0 sleeps by now
            if waits_for == "answer":
                dist.send(answer, 0)
            got = torch.zeros(LEAST)
            dist.recv(got, 0)
            assert (got == 7.0).all()
            if waits_for == "taken":
                dist.send(answer, 0)
            dist.barrier()
    return result


def test_a_lent_message_that_is_taken_wakes_only_who_waits_for_it() -> None:
    assert values(_lends, 2)[0] == {"answer": False, "taken": True}
