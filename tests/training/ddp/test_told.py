"""What is in which bucket reaches the page, also of a run that has told it since."""

from __future__ import annotations

from typing import Any

import workbench as wb
from tests.training.ddp.test_ddp import buckets, collectives, ddp
from workbench.views.packing import Message
from workbench.views.pages.feed import Feed


def buckets_of_page(feed: Feed, run: wb.Run) -> Any:
    """The buckets as a page has them that hears all: what a header leaves out stays."""
    known: dict[str, Any] = {}

    def take(message: Message) -> None:
        known.update(message.header["run"])

    feed.tell_all(run, take)
    return known["buckets"]


def test_the_page_is_told_when_ranks_have() -> None:
    run = wb.run(ddp(iterations=4))
    run.wait(timeout=60)
    kept = run.store.metadata.pop("buckets")
    feed = Feed(run)
    assert buckets_of_page(feed, run) is None
    run.store.metadata["buckets"] = kept
    assert buckets_of_page(feed, run) == buckets(run)
    assert buckets_of_page(feed, run)["rebuilt_at"] == 1


def test_what_is_sent_beside_buckets_has_names_too() -> None:
    """The map of used parameters, and what DDP agrees on before a forward."""
    task = {"layers": 2, "width": 32, "unused": 1}
    run = wb.run(ddp(iterations=4, task_options=task, options={"find_unused": True}))
    run.wait(timeout=60)
    names = set(collectives(run)["name"].cast(str).to_list())
    assert "used parameters" in names
    assert names <= {"used parameters", "buckets and buffers", *(f"bucket {n}" for n in range(9))}
    rebuilt = wb.run(ddp(iterations=4))
    rebuilt.wait(timeout=60)
    broadcast = collectives(rebuilt, collective="broadcast")
    assert set(broadcast["name"].cast(str)) == {"buckets and buffers"}
    assert set(broadcast["iteration"]) == {1}, "the order of the new buckets, once"
