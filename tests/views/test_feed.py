"""The feed: every page gets every row once, whenever it comes, and is heard."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import polars as pl
import pytest

from tests.live import crowding, until
from tests.page import Client
from tests.store.batches import batch, settle
from tests.synthetic import training
from tests.views.feeding import HELLO, SPEC, Run, join, same, threads, whole
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.pages import past
from workbench.views.pages.feed import feed, nothing

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


# ---- rows


@pytest.mark.parametrize("memory_rows", [2_000_000, 3_000])
def test_every_page_gets_every_row_once_whenever_it_comes(memory_rows: int) -> None:
    run, chance = Run(memory_rows=memory_rows), random.Random(memory_rows)
    clients = [Client() for _ in range(4)]
    pages = [feed(run).join(client.send) for client in clients]
    for i in range(300):
        batch(run.store, i % 3, ("comm", "compute")[i % 2], i // 6 * 40, 40)
        if i % 20 == 0:
            chance.choice(pages).hear(HELLO)  # one that has said hello may say it again
        if i % 50 == 25:
            settle(run.store)
        time.sleep(0.001)
    for page in pages:
        page.hear(HELLO)
    run.done = True
    limit = pl.col("version").clip(upper_bound=2**31 - 1)
    for client in clients:
        client.until(whole(run)(client))
        client.until(lambda client=client: client.last["state"] != "running")
        same(client.table, run.store.events.with_columns(limit))
    assert any(not header.get("reset") and header["rows"] for header in clients[0].headers)


def test_a_page_that_comes_after_the_end_gets_the_history_and_the_last_state() -> None:
    run = Run()
    run.tell(training(3))
    run.done = True
    run.store.metadata["error"] = "rank 2 was killed.\nmore"
    for _ in range(2):  # reloaded
        client, page = join(run)
        client.until(whole(run)(client))
        assert client.headers[0]["reset"] and client.last["state"] == "failed"
        assert client.last["words"] == "rank 2 was killed." and client.last["now"] is None
        same(client.table, run.store.events)
        until(lambda: not threads(), 5)
        page.leave()


def test_the_history_is_the_newest_rows_in_messages_of_some_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past, "HISTORY_ROWS", 700)
    monkeypatch.setattr(past, "BLOCK_ROWS", 200)
    events = training(20).sort("rank", "lane", "seq")  # as a file has them
    client, _ = join(Loaded(Store.from_frame(events)))
    client.until(lambda: client.table.height >= 690)
    client.until(lambda: not threads())
    assert client.table.height <= 700 and len([h for h in client.headers if h["rows"]]) >= 4
    assert all(header["rows"] <= 200 for header in client.headers)
    assert [header.get("reset", False) for header in client.headers[:3]] == [True, False, False]
    oldest = client.table["end_ns"].min()
    same(client.table, events.filter(pl.col("end_ns") >= oldest))
    assert client.last["counters"]["older"] == events.height - client.table.height > 0
    assert client.last["counters"]["events"] == events.height


def test_live_rows_follow_a_long_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "BLOCK_ROWS", 50)
    run = Run()
    run.tell(training(20))
    client, page = join(run)
    for i in range(5):  # while it is still being told
        batch(run.store, 9, "late", i * 10, 10)
        time.sleep(0.01)
    client.until(whole(run)(client))
    assert client.table["rank"][-50:].to_list() == [9] * 50
    page.leave()


def test_a_badge_says_what_carries_chunks_between_hosts_once_the_ranks_have_agreed() -> None:
    run, words = Run(), "chunks between hosts over MPI"
    client, page = join(run)
    assert words not in client.last["run"]["notes"]
    run.store.metadata["between hosts"] = "MPI"
    run.tell(training(3))
    client.until(lambda: words in client.last["run"]["notes"])
    run.done = True
    page.leave()
    late, page = join(run)
    assert words in late.last["run"]["notes"]
    page.leave()


def test_loaded_and_empty_runs_have_a_feed() -> None:
    client, _ = join(Loaded(Store.from_frame(training(2), {"experiment": SPEC})))
    assert client.last["state"] == "replay" and client.last["run"]["ranks"] == 4
    assert client.last["run"]["readonly"]
    client, _ = join(Loaded(Store()))
    assert client.last["state"] == "empty" and client.last["words"]
    run = Run()
    client, page = join(run)
    assert (client.last["state"], client.last["origin"], client.last["now"]) == (
        "starting",
        0,
        None,
    )
    run.tell(training(1))
    client.until(lambda: client.last["state"] == "running")
    assert client.last["origin"] == run.store.events["start_ns"].min()
    page.leave()


def test_a_page_without_a_run_is_told_so() -> None:
    client = Client()
    client.send(nothing("Press Run."))
    assert not client.wrong
    assert (client.last["state"], client.last["words"]) == ("empty", "Press Run.")
    other, _ = join(Loaded(Store.from_frame(training(1))))
    assert set(other.headers[0]) == set(client.last)
    assert set(other.last["counters"]) == set(client.last["counters"])
    more = {"bottleneck"}  # once it is known where a run's time went
    assert set(other.headers[0]["run"]) - more == set(client.last["run"])


# ---- time


@pytest.mark.alone
def test_batches_come_at_20_to_30_hertz_and_a_heartbeat_without_news() -> None:
    run = Run()
    client, page = join(run)
    before = len(client.headers)
    begin = time.monotonic()
    while time.monotonic() - begin < 1.0:
        batch(run.store, 0, "comm", len(run.store), 5)
        time.sleep(0.004)
    took = time.monotonic() - begin
    assert 12 / crowding() <= len(client.headers) - before <= 30 * took
    client.until(whole(run)(client))
    time.sleep(0.2)
    before, begin = len(client.headers), time.monotonic()
    time.sleep(2.3)
    took = time.monotonic() - begin
    assert 2 / crowding() <= len(client.headers) - before <= 4 * took / 2.3
    assert client.last["rows"] == 0 and client.last["now"] is not None
    page.leave()


@pytest.mark.alone
def test_hello_is_answered_at_once() -> None:
    run = Run()
    run.tell(training(3))
    client, page = join(run)
    begin = time.monotonic()
    page.hear(HELLO)
    client.until(lambda: sum(header.get("reset", False) for header in client.headers) == 2)
    assert time.monotonic() - begin < 0.5 * crowding()
    page.leave()


def test_a_hello_that_is_repeated_is_answered_once() -> None:
    run, resets = Run(), lambda: sum(header.get("reset", False) for header in client.headers)
    run.tell(training(1))
    client = Client()
    page = feed(run).join(client.send)
    for token in ("a", "a", "b"):
        page.hear(HELLO | {"token": token})
        time.sleep(0.1)
    client.until(lambda: resets() == 2)
    page.hear(HELLO | {"token": "a"})
    page.hear(HELLO)
    client.until(lambda: resets() == 3)
    page.leave()


# ---- what a page asks for


def test_a_run_is_started_by_the_host() -> None:
    run, wishes = Run(), []

    def start(wish: Any) -> str:
        wishes.append((wish, threading.current_thread()))
        if not wish:
            raise ValueError("ranks: 0 is too few")
        return "It starts."

    client, page = join(run, on_start=start)
    answer = client.ask(page, "start", ranks=3)
    assert (answer["ok"], answer["words"]) == (True, "It starts.")
    assert wishes == [({"ranks": 3}, threading.current_thread())]
    answer = client.ask(page, "start")
    assert (answer["ok"], answer["words"]) == (False, "ranks: 0 is too few")
    page.leave()
    other, page = join(run)
    assert not other.ask(page, "start")["ok"]
    page.leave()


class Slow(Run):
    """A run whose verbs take their time, as a hundred single steps do."""

    control_state = None

    def __init__(self) -> None:
        super().__init__()
        self.going = threading.Event()
        self.done_so_far: list[str] = []

    def pause(self) -> None:
        assert self.going.wait(120)
        self.done_so_far.append("pause")

    def resume(self) -> None:
        self.done_so_far.append("resume")


def test_pictures_move_while_a_command_takes_its_time_and_commands_keep_their_order() -> None:
    run = Slow()
    (client, page), (other, second) = join(run), join(run)
    page.hear({"type": "do", "id": 1, "verb": "pause", "args": {}})
    second.hear({"type": "do", "id": 2, "verb": "resume", "args": {}})
    for i in range(5):
        counts = [len(one.headers) for one in (client, other)]
        batch(run.store, 0, "comm", i * 10, 10)
        for one, count in zip((client, other), counts, strict=True):
            one.until(lambda one=one, count=count: len(one.headers) > count, what="news of the run")
    assert not client.answers and not other.answers and run.done_so_far == []
    for number in range(3, 200):  # more than may wait
        page.hear({"type": "do", "id": number, "verb": "resume", "args": {}})
    client.until(lambda: 199 in client.answers)
    assert not client.answers[199]["ok"] and "wait already" in client.answers[199]["words"]
    run.going.set()
    client.until(lambda: 1 in client.answers and len(client.answers) == 198)
    other.until(lambda: 2 in other.answers)
    assert client.answers[1]["ok"] and run.done_so_far[:2] == ["pause", "resume"]
    page.leave()
    second.leave()


def test_a_command_that_is_sent_again_is_obeyed_once_and_answered_again() -> None:
    """The line to the page may have lost either, the command or its answer."""
    run = Slow()
    client, page = join(run)
    command = {"type": "do", "id": "a", "verb": "resume", "args": {}}
    page.hear(command)
    client.until(lambda: "a" in client.answers)
    del client.answers["a"]  # it was lost
    page.hear(command)
    client.until(lambda: "a" in client.answers, what="the answer, once more")
    assert client.answers["a"]["ok"] and run.done_so_far == ["resume"]
    page.hear({"type": "do", "id": "b", "verb": "resume", "args": {}})
    client.until(lambda: "b" in client.answers)
    assert run.done_so_far == ["resume", "resume"]
    page.hear(command | {"id": "c" * 65})
    assert [*page._obeyed] == ["a", "b"], "nothing long is kept"
    page.leave()


def test_what_is_not_a_message_is_not_answered() -> None:
    run = Run()
    client, page = join(run)
    heard = len(client.headers)
    page.hear({"type": "something else"})
    page.hear({})
    answer = client.ask(page, "juggle")
    assert not answer["ok"] and "pause" in answer["words"]
    assert len(client.headers) <= heard + 2
    page.leave()
