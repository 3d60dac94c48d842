"""A channel over Gloo: slots of any length in their order, and a receipt for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from torch._C._distributed_c10d import HashStore

from tests.live import until
from workbench.transports.doorbell import Bells
from workbench.transports.gloo import GlooChannels
from workbench.transports.mailbox import FAR_SLOTS, Header
from workbench.transports.peer_page import PeerPage

SLOT = 4096


@pytest.fixture
def ends() -> Iterator[tuple[GlooChannels, GlooChannels]]:
    """The channels of two ranks on two hosts, in one process."""
    store, channels = HashStore(), {}

    def join(rank: int) -> None:
        rest = (PeerPage.create(2), Bells.create(), lambda *_: None)
        channels[rank] = GlooChannels(store, rank, 2, [1 - rank], SLOT, *rest)

    both(join)
    yield channels[0], channels[1]
    both(lambda rank: channels[rank].close())


def both(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_slots_of_any_length_arrive_whole_and_in_order(
    ends: tuple[GlooChannels, GlooChannels],
) -> None:
    outbox, inbox = ends[0].outbox(1, 0), ends[1].inbox(0, 0)
    lengths = [SLOT, 0, 1, 7, SLOT - 1, 100, SLOT, 3] * 3
    for number, nbytes in enumerate(lengths):
        assert outbox.free.acquire(timeout=30)
        outbox.slot(np.uint8)[:nbytes] = number + 1
        outbox.post(Header(0, number, 0, 0, 0, nbytes, 0))
        if number >= FAR_SLOTS - 1:  # as far ahead as there is room
            take(inbox, number - FAR_SLOTS + 1, lengths)
    for number in range(len(lengths) - FAR_SLOTS + 1, len(lengths)):
        take(inbox, number, lengths)
    assert outbox.moved == sum(lengths)


def take(inbox: Any, number: int, lengths: list[int]) -> None:
    assert inbox.ready.acquire(timeout=30)
    header = inbox.header()
    assert (header.op, header.nbytes) == (number, lengths[number])
    assert (inbox.slot(np.uint8)[: header.nbytes] == number + 1).all()
    inbox.release()


def test_an_outbox_is_drained_when_the_other_side_says_so(
    ends: tuple[GlooChannels, GlooChannels],
) -> None:
    """And not when the system has taken its bytes: it keeps megabytes for a slow cable, and drops
    them where a process ends.
    """
    outbox, inbox = ends[0].outbox(1, 0), ends[1].inbox(0, 0)
    for _ in range(FAR_SLOTS):
        assert outbox.free.acquire(timeout=30)
        outbox.post(Header(0, 0, 0, 0, 0, SLOT, 0))
    for _ in range(FAR_SLOTS):
        assert inbox.ready.acquire(timeout=30)
    until(lambda: outbox.free._value == FAR_SLOTS)
    deadline = time.monotonic() + 0.2  # all have arrived; there is no room for the farewell
    while time.monotonic() < deadline:
        assert not outbox.drained()
        time.sleep(0.01)
    inbox.release()
    until(outbox.drained)
