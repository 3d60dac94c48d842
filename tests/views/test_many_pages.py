"""Many pages of one run: what they share is made once, and a page that cannot follow gets less."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable

import polars as pl
import pytest

from tests.live import until
from tests.page import Client
from tests.store.batches import batch
from tests.synthetic import training
from tests.views.feeding import HELLO, Run, join, same, whole
from workbench.store.event_store import Store
from workbench.views.packing import Message
from workbench.views.pages import page as one_page
from workbench.views.pages import past
from workbench.views.pages.feed import feed

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Keeping(Client):
    """Keeps the messages as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        self.messages.append(message)
        super().send(message)


def all_told(run: Run, client: Client) -> Callable[[], bool]:
    """Each row is on the page, or among those that it was told are left out."""
    return lambda: client.table.height + client.last["counters"]["older"] == len(run.store)


def test_what_pages_get_alike_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "BLOCK_ROWS", 50)
    run = Run()
    run.tell(training(5))
    clients = [Keeping() for _ in range(3)]
    pages = [feed(run).join(client.send) for client in clients]
    for page in pages:
        page.hear(HELLO)
    for client in clients:
        client.until(whole(run)(client))
    history = [[m.payload for m in client.messages if m.payload] for client in clients]
    blocks = len(run.store) // 50  # the last one is of its page's moment
    assert blocks > 3
    for others in history[1:]:
        for i in range(blocks):
            assert history[0][i] is others[i]
    before = len(clients[0].messages)
    batch(run.store, 9, "comm", 0, 40)
    for client in clients:
        client.until(whole(run)(client))
    news = [next(m for m in client.messages[before:] if m.payload) for client in clients]
    assert news[0].common is not None
    assert all(m.common is news[0].common for m in news)
    for page in pages:
        page.leave()


def test_a_packet_and_what_is_a_page_s_own_are_the_whole_message() -> None:
    common = Message({"type": "batch", "run": {"id": "a", "levels": [1]}, "seq": 0}, b"rows")
    message = common.to_page({"seq": 7, "run": {"readonly": True}})
    assert message.header == common.header | {
        "seq": 7,
        "run": {"id": "a", "levels": [1], "readonly": True},
    }
    assert message.common is common and common.packet is common.packet
    (length,) = struct.unpack_from("<I", common.packet)
    assert json.loads(common.packet[4 : 4 + length]) == common.header
    assert common.packet[4 + length :] == b"rows"


def test_of_more_pages_each_gets_a_shorter_history() -> None:
    rows = [past.most_rows(pages) for pages in range(200)]
    assert rows[0] == rows[4] == past.HISTORY_ROWS and rows == sorted(rows, reverse=True)
    assert all(pages * each <= 8_000_000 for pages, each in enumerate(rows[:123]))
    assert rows[-1] == past.SHORT_ROWS


def test_pages_that_come_by_and_by_get_the_newest_rows_and_the_count_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past, "HISTORY_ROWS", 300)
    monkeypatch.setattr(past, "BLOCK_ROWS", 64)
    run, clients = Run(memory_rows=1000), []
    for events in training(40).sort("end_ns").iter_slices(200):  # two by two, as it goes on
        run.tell(events)
        clients += [join(run), join(run)]
    run.done = True
    for client, page in clients:
        client.until(all_told(run, client))
        older = client.last["counters"]["older"]
        ends = run.store.events["end_ns"].sort()
        oldest = client.table["end_ns"].min()
        assert older == (ends < oldest).sum()
        page.leave()


def test_a_page_that_cannot_follow_goes_on_with_the_newest_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_page, "MOST_LATER", 2000)
    monkeypatch.setattr(past, "SHORT_ROWS", 100)
    run, client, takes = Run(), Client(), threading.Event()
    takes.set()
    page = feed(run).join(client.send, ready=takes.is_set)
    page.hear(HELLO)
    client.until(lambda: client.headers)
    takes.clear()
    for events in training(40).sort("end_ns").iter_slices(40):
        run.tell(events)
        time.sleep(0.005)
    until(lambda: page.behind, 5)
    takes.set()
    run.done = True
    client.until(all_told(run, client))
    assert client.last["counters"]["older"] > len(run.store) / 2
    oldest = client.table["end_ns"].min()
    same(client.table, run.store.events.filter(pl.col("end_ns") >= oldest))
    page.leave()


def test_the_rate_is_what_the_host_of_the_pages_can_send() -> None:
    run, client, idle = Run(), Client(), threading.Event()
    page = feed(run).join(client.send, idle=idle.is_set)
    page.hear(HELLO)
    client.until(lambda: client.headers)

    def messages(seconds: float) -> int:
        before, end = len(client.headers), time.monotonic() + seconds
        while time.monotonic() < end:
            batch(run.store, 0, "comm", len(run.store), 5)
            time.sleep(0.01)
        return len(client.headers) - before

    assert messages(1.5) <= 3, "what was sent before is still to be sent"
    idle.set()
    until(lambda: messages(1.0) > 4, 20)
    page.leave()


def test_pieces_are_the_rows_between_two_positions_on_disk_or_not() -> None:
    events = training(12)
    run = Run(memory_rows=300)
    for start in range(0, events.height, 60):
        run.tell(events.slice(start, 60))
    until(lambda: run.store._parts, 10)
    whole_store = run.store.events
    for start, stop in ((0, 10), (7, 300), (250, events.height), (events.height, events.height)):
        pieces = [*run.store.pieces(stop, start)]
        rows = pl.concat(pieces) if pieces else whole_store.clear()
        assert rows.equals(whole_store.slice(start, stop - start))
    assert not [*Store().pieces()]
