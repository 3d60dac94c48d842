"""Helpers for tests of the feed: a run that tells its events, and pages that hear of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from tests.page import Client
from workbench.store.event_store import Store
from workbench.store.table import from_frame
from workbench.views.pages.feed import Page, _feeds, feed

SPEC = "strategy: data_parallel\nranks: 4\niterations: 9\n"
HELLO = {"type": "hello"}


class Run:
    """As much of a run as a page needs; ``tell`` is what the collector does."""

    def __init__(self, **store: Any) -> None:
        self.store = Store({"experiment": SPEC}, **store)
        self.done = False

    def tell(self, events: pl.DataFrame) -> None:
        for each in from_frame(events, self.store.number):
            self.store.append(each.rank, each.lane, each.rows, each.contexts)


def same(rows: pl.DataFrame, expected: pl.DataFrame) -> None:
    """The same rows, those of each lane in the same order; lanes may come in another."""
    by_lane = [frame.sort("rank", "lane", maintain_order=True) for frame in (rows, expected)]
    assert_frame_equal(*by_lane)


_others: set[threading.Thread] = set()


def threads() -> list[threading.Thread]:
    """Return the threads of feeds, but for those that were there before this test."""
    feeds = (thread for thread in threading.enumerate() if thread.name == "workbench page")
    return [thread for thread in feeds if thread not in _others]


def begin() -> None:
    """Begin a test: whatever other tests have left is not its subject."""
    _others.clear()
    _others.update(threads())


def leave_all() -> None:
    """Close the pages that are open."""
    for one in [*_feeds.values()]:
        for page in [*one._pages]:
            page.leave()


def join(run: Any, **options: Any) -> tuple[Client, Page]:
    """A page that has said hello and has its history."""
    client = Client()
    page = feed(run).join(client.send, **options)
    page.hear(HELLO)
    client.until(lambda: client.headers, what="the history")
    return client, page


def whole(run: Any) -> Callable[[Client], Callable[[], bool]]:
    return lambda client: lambda: client.table.height == len(run.store)
