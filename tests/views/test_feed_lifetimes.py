"""The feed, when pages, messages or runs go: nothing waits, and nothing outlives its need."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest

from tests.live import until
from tests.page import Client
from tests.synthetic import training
from tests.views.feeding import HELLO, Run, join, same, threads, whole
from workbench.front_end.assets import asset
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.packing import Message
from workbench.views.pages import feed as module
from workbench.views.pages.feed import feed
from workbench.views.scenes import scenes

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


# ---- pages and threads


def test_one_thread_for_all_pages_which_ends_with_the_last_of_them() -> None:
    run = Run()
    assert feed(run) is feed(run)
    feed(run).join(Client().send)
    assert threads() == []  # no page has said hello: none is there to look
    (one, page), (other, second) = join(run), join(run)
    assert len(threads()) == 1
    page.leave()
    heard = len(one.headers)
    run.tell(training(1))
    other.until(whole(run)(other))
    assert len(one.headers) == heard
    second.leave()
    until(lambda: not threads(), 5)
    run.tell(training(1, start=2 * 10**12))  # no page looks
    again, page = join(run)
    again.until(whole(run)(again))
    assert again.last["counters"]["events"] == len(run.store)
    page.leave()


def test_a_page_that_speaks_as_the_thread_ends_has_one_thread_and_no_row_twice() -> None:
    run = Run()
    run.tell(training(2))
    client, page = join(run)
    its = feed(run)
    ends, goes_on = threading.Event(), threading.Event()
    tick = its._tick

    def slow_end(*args: Any) -> bool:
        if not (more := tick(*args)) and not ends.is_set():
            ends.set()  # it has said its last, and is not gone yet
            assert goes_on.wait(120)
        return more

    its._tick = slow_end  # type: ignore[method-assign]
    page.hear(HELLO)
    until(whole(run)(client), 20, "the first thread's work")
    page.leave()
    assert ends.wait(120)
    later, second = join(run)
    second.hear(HELLO)
    until(whole(run)(later), 20, "the second thread's work")
    goes_on.set()
    until(lambda: len(threads()) == 1, 20, "the first thread's end")
    for _ in range(3):
        second.hear({"type": "hello", "token": object()})
        time.sleep(0.05)
        assert len(threads()) == 1
    second.leave()


def test_a_page_whose_send_raises_has_gone_and_the_others_stay() -> None:
    run, heard = Run(), []

    def broken(message: Message) -> None:
        heard.append(message)
        raise ConnectionError("no page there")

    gone = feed(run).join(broken)
    client, page = join(run)
    gone.hear(HELLO)
    until(lambda: gone.gone, 5)
    run.tell(training(1))
    client.until(whole(run)(client))
    assert len(heard) == 1
    page.leave()


# ---- what is lost on its way


def test_a_page_that_missed_the_last_message_asks_and_is_told_the_end() -> None:
    """As where a server drops what it sends while the page is busy: no message follows it."""
    run = Run()
    run.tell(training(1))
    client, page = join(run)
    client.until(lambda: client.last["state"] == "running")
    deaf = threading.Event()
    page._send = lambda message: None if deaf.is_set() else client.send(message)
    deaf.set()
    run.done = True
    until(lambda: not threads(), 5, "the feed has told the end, and has ended")
    deaf.clear()
    assert client.last["state"] == "running", "this test is about a page that has not heard it"
    count = len(client.headers)
    client._seq += 1  # what a browser does not check here: it sees the gap, and asks for all
    page.hear(HELLO | {"token": "x", "heard": 1, "run": client.last["run"]["id"]})
    client.until(lambda: len(client.headers) > count)
    assert client.last["state"] != "running" and not client.last.get("reset")
    page.leave()


def test_a_page_that_asks_for_an_answer_gets_one_without_the_history() -> None:
    run = Run()
    run.tell(training(3))
    run.done = True
    client, page = join(run)
    until(lambda: not threads(), 5)
    for _ in range(3):
        count = len(client.headers)
        page.hear(HELLO | {"heard": count, "run": client.last["run"]["id"]})
        client.until(lambda count=count: len(client.headers) == count + 1)
        assert client.last["rows"] == 0 and not client.last.get("reset")
    same(client.table, run.store.events)
    page.hear(HELLO | {"heard": 9, "run": "the one before"})
    client.until(lambda: client.last.get("reset"), what="all of this run")
    page.leave()


def test_of_hellos_that_waited_for_a_busy_kernel_the_newest_is_answered() -> None:
    run = Run()
    run.tell(training(1))
    client = Client()
    page = feed(run).join(client.send)
    for token in "abcde":
        page.ask(HELLO | {"token": token})
    page.hear(HELLO | {"token": "f"})
    client.until(whole(run)(client))
    time.sleep(0.2)
    assert sum(header.get("reset", False) for header in client.headers) == 1
    page.leave()


def test_a_page_to_which_nothing_could_be_sent_is_told_all_when_it_speaks_again() -> None:
    run, client = Run(), Client()
    broken = threading.Event()

    def send(message: Message) -> None:
        if broken.is_set():
            raise ConnectionError("the line is down")
        client.send(message)

    page = feed(run).join(send)
    page.hear(HELLO | {"token": "a"})
    client.until(lambda: client.headers)
    broken.set()
    run.tell(training(1))
    until(lambda: page.gone, 5)
    broken.clear()
    run.done = True
    page.hear(HELLO | {"token": "b", "heard": 1, "run": client.last["run"]["id"]})
    client.until(whole(run)(client))
    assert client.last["state"] != "running"
    same(client.table, run.store.events)
    page.leave()
    page.hear(HELLO | {"token": "c"})
    assert page.gone and not threads(), "its host has taken it away for good"


def test_a_fault_of_the_feed_ends_no_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    client, page = join(run)
    with monkeypatch.context() as patch:
        patch.setattr(module.Feed, "_header", lambda *_: 1 / 0)
        until(lambda: not threads(), 5, "the fault has ended the feed's thread")
    run.tell(training(1))
    run.done = True
    assert "ZeroDivisionError" in capsys.readouterr().err
    run_id = client.last["run"]["id"]
    page.hear(HELLO | {"token": "new", "heard": len(client.headers), "run": run_id})
    client.until(whole(run)(client))
    assert client.last["state"] != "running"
    page.leave()


# ---- their end


def test_a_run_that_no_page_shows_is_let_go_of() -> None:
    run = Run()
    client, page = join(run)
    page.leave()
    until(lambda: not threads(), 5)
    there = weakref.ref(run)
    del run, page, client
    until(lambda: gc.collect() is None or there() is None, 5, "the run is gone")


def test_scenes_are_files_and_others_are_refused() -> None:
    run = Run()
    for scene in scenes():
        assert asset(f"scenes/{scene}/scene.js").is_file()
    client, page = join(run, scene="timeline")
    assert client.last["run"]["scene"] == "timeline"
    page.leave()
    with pytest.raises(ValueError, match="overview, collectives, timeline"):
        feed(run).join(client.send, scene="attic")


def test_telling_all_at_once_raises_what_its_taker_raises() -> None:
    run, heard = Loaded(Store.from_frame(training(2))), Client()
    feed(run).tell_all(run, heard.send)
    same(heard.table, run.events)

    def full(message: Message) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        feed(run).tell_all(run, full)
