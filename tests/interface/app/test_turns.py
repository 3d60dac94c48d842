"""Threads that draw: one slow page holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import workbench as wb
from tests.live import lenet, until
from workbench.interface.app import history as past_module
from workbench.interface.app.history import PastRuns
from workbench.interface.app.page import Ground, Site
from workbench.interface.app.runs import Runs
from workbench.interface.app.turns import SHARE, THREADS, Redrawing, Turns


@pytest.fixture
def turns() -> Iterator[Turns]:
    queue = Turns()
    yield queue
    queue.close()


def test_whose_pages_are_slow_has_a_share_of_the_threads_and_no_more(turns: Turns) -> None:
    goes_on, begun, done = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def slow() -> None:
        begun.release()
        assert goes_on.wait(60)

    for _ in range(5 * THREADS):
        turns.do("slow", slow)
    for _ in range(SHARE):
        assert begun.acquire(timeout=120)
    for number in range(100):
        turns.do(f"visitor {number % 10}", done.release)
    for _ in range(100):
        assert done.acquire(timeout=120), "others are served meanwhile"
    assert not begun.acquire(blocking=False), "no more than its share"
    goes_on.set()
    for _ in range(5 * THREADS - SHARE):
        assert begun.acquire(timeout=120), "all of it in the end"


def test_visitors_take_turns() -> None:
    turns, goes_on, order = Turns(threads=1), threading.Event(), list[str]()
    turns.do("first", lambda: assert_true(goes_on.wait(60)))
    for name in ("many", "many", "many", "one", "two"):
        turns.do(name, lambda name=name: order.append(name))  # type: ignore[misc]
    goes_on.set()
    until(lambda: len(order) == 5, 20, "all of it")
    assert order == ["many", "one", "two", "many", "many"]
    turns.close()


def assert_true(it: object) -> None:
    assert it


def test_what_goes_wrong_costs_no_thread(turns: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    done = threading.Event()
    for _ in range(3 * THREADS):
        turns.do("me", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    turns.do("me", done.set)
    assert done.wait(120)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_part_is_drawn_by_one_thread_at_a_time_and_never_from_what_is_old(turns: Turns) -> None:
    value, drawn, at_once, most = [0], list[int](), list[int](), list[int]()

    def draw() -> None:
        at_once.append(1)
        most.append(len(at_once))
        drawn.append(value[0])
        at_once.pop()

    part = Redrawing(turns, "me", draw)
    for number in range(1, 1001):
        value[0] = number
        part.ask()
    until(lambda: drawn and drawn[-1] == 1000, 20, "the newest")
    assert max(most) == 1 and drawn == sorted(drawn)


def test_a_page_that_asks_just_as_a_drawing_ends_has_it_drawn_once_more() -> None:
    turns, drawn, lock = Turns(threads=1), list[int](), threading.Lock()

    class Asks:
        """The part's lock; the third time that it is let go is as the first drawing ends."""

        left = 0

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            self.left += 1
            if self.left == 3:
                part.ask()

    part = Redrawing(turns, "me", lambda: drawn.append(1))
    part._lock = Asks()  # type: ignore[assignment]
    part.ask()
    until(lambda: len(drawn) > 1, 20, "the second drawing")
    until(lambda: not turns._busy.total() and not turns._waiting, 20, "nothing left to draw")
    turns.close()
    assert len(drawn) == 2


def test_a_slow_page_of_past_runs_keeps_no_one_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it was: six seconds of a page filled all threads, those that start runs among them."""
    goes_on, begun, others = threading.Event(), threading.Event(), threading.Event()
    site = Site(Runs())
    run = wb.run(lenet())
    site.runs.history("slow").add(run)
    run.wait(60)

    def slow(pasts: object, reference: str) -> list[Any]:
        begun.set()
        assert goes_on.wait(60)
        return []

    monkeypatch.setattr(past_module, "beside_reference", slow)
    pages = [PastRuns(site, "slow", Ground()) for _ in range(3)]
    for _ in range(10):  # as pages do every second
        for page in pages:
            page.refresh()
    assert begun.wait(120)
    site.work(others.set)
    assert others.wait(120), "a run can be started"
    other = PastRuns(site, "quick", Ground())
    other.refresh()
    until(lambda: other.part.state.get("runs") == [], 20, "another visitor's page")
    goes_on.set()
    site.close()
