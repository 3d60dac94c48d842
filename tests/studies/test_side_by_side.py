"""Two runs, or plans, on one time axis: which calls are put beside each other, and from when."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import ring_call, table
from workbench.common.errors import SpecError
from workbench.laws import check_events
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.pages.facts import facts
from workbench.views.replay import page
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg


def plan(
    algorithm: str, ranks: int = 4, nbytes: int = 800_000, operation: str = "all_reduce"
) -> Any:
    return wb.plan(operation, algorithm, ranks=ranks, nbytes=nbytes, latency="60 us")


def calls_of(events: pl.DataFrame) -> pl.DataFrame:
    return events.group_by("group", "op", maintain_order=True).agg(
        start=pl.col("start_ns").min(), end=pl.col("end_ns").max(), rows=pl.len()
    )


def test_both_calls_begin_at_one_moment_and_last_as_long_as_they_did() -> None:
    ring, tree = plan("ring"), plan("tree", ranks=8)
    pair = wb.side_by_side(ring, tree)
    calls = calls_of(pair.events)
    assert calls["group"].to_list() == ["ring", "tree"] and calls["op"].to_list() == [0, 0]
    assert calls["start"].n_unique() == 1
    for own, events in zip(calls.rows(named=True), (ring.events, tree.events), strict=True):
        first, last = events["start_ns"].min(), events["end_ns"].max()
        assert own["end"] - own["start"] == last - first  # type: ignore[operator]
        assert own["rows"] == events.height
    assert pair.seconds == ((pytest.approx(ring.seconds), pytest.approx(tree.seconds)),)
    assert check_events(pair.events) == []
    run_facts = facts(pair.store.metadata)
    assert run_facts["ranks"] == 8 and run_facts["title"] == "Ring and tree all-reduce"
    assert run_facts["pair"]["right"]["group"] == "tree"
    assert "ring: 1." in repr(pair) and "tree: " in repr(pair)
    assert len(page(pair.store)) > 10_000


def test_the_still_picture_dashes_the_emulated_links_of_each_run() -> None:
    slow = wb.Network(links={(0, 1): wb.Link(latency="1 ms")})
    jobs = [wb.Experiment(ranks=2, iterations=2, network=one) for one in (slow, wb.Network())]
    runs = [wb.run(job) for job in jobs]
    for run in runs:
        run.wait(60, progress=False)
    left, right = select(wb.side_by_side(*runs).store).selected
    assert [*left.made_links] == [(0, 1)] and not right.made_links
    assert "emulated" in svg(select(wb.side_by_side(*runs).store))


def test_the_still_picture_shows_both_at_one_moment() -> None:
    ring, tree = plan("ring"), plan("tree", ranks=8)
    still = select(wb.side_by_side(ring, tree).store)
    assert [(side.label, side.ranks) for side in still.selected] == [("ring", 4), ("tree", 8)]
    assert [side.seconds for side in still.selected] == pytest.approx([ring.seconds, tree.seconds])
    assert still.selected[0].at == still.selected[1].at < tree.seconds
    assert still.selected[0].links == ((0, 1), (1, 2), (2, 3), (3, 0))
    assert all(len(side.flights) > 1 for side in still.selected)
    for side, events in zip(still.selected, (ring.events, tree.events), strict=True):
        at = events["start_ns"].min() + round(side.at * 1e9)  # type: ignore[operator]
        sends = events.filter(pl.col("kind") == "send", pl.col("start_ns") <= at)
        sent = set(zip(sends["rank"], sends["peer"], sends["step"], strict=True))
        assert {(one.source, one.target, one.step) for one in side.flights} <= sent
    picture = svg(still)
    assert picture.count("<circle") >= 12 and "ring, after" in picture and "tree: " in picture


def test_calls_alike_are_put_beside_each_other_the_newest_eight() -> None:
    sizes = [4000, 8000] * 6
    rows = [
        row
        for op, nbytes in enumerate(sizes)
        for row in ring_call(op, 10**12 + op * 10**8, nbytes=nbytes)
    ]
    first = table(rows)
    second = table(
        [row for op in range(3) for row in ring_call(op, 5 * 10**8 * (op + 1), nbytes=8000)]
    )
    pair = wb.side_by_side(first, second, labels=("one", "other"))
    assert len(pair.seconds) == 3, "as many as there are of that size in both"
    outer = pair.events.filter(pl.col("kind") == "collective")
    assert set(outer["nbytes"]) == {8000}
    again = wb.side_by_side(first, first, labels=("one", "other"))
    assert len(again.seconds) == 8 and all(a == b for a, b in again.seconds)
    ops = calls_of(again.events).filter(pl.col("group") == "one")
    assert ops["op"].to_list() == list(range(8)) and ops["start"].is_sorted()


def test_where_none_are_alike_the_newest_of_each_is_shown() -> None:
    pair = wb.side_by_side(plan("ring"), plan("tree", nbytes=4000, operation="broadcast"))
    assert len(pair.seconds) == 1
    assert pair.store.metadata["title"] == "Ring and tree"


def test_the_same_algorithm_twice_has_two_names() -> None:
    pair = wb.side_by_side(plan("ring"), plan("ring", nbytes=800_000))
    assert pair.labels == ("ring, first", "ring, second")


def test_what_is_made_by_us_is_said_of_each_side() -> None:
    spec = json.dumps({"ranks": 4, "network": {"latency": "10 ms"}})
    slow = Store.from_frame(table(ring_call(0, 10**12)), {"experiment": spec})
    pair = wb.side_by_side(Loaded(slow), plan("ring"))
    sides = facts(pair.store.metadata)["pair"]
    assert sides["left"]["notes"] == ["all links emulated: 10 ms"]


def test_bad_input_is_refused_in_words() -> None:
    nothing = Store.from_frame(table(ring_call(0, 10**12))).events.filter(
        pl.col("kind") != "collective"
    )
    with pytest.raises(SpecError, match="the second has none that all its ranks completed"):
        wb.side_by_side(plan("ring"), nothing)
    with pytest.raises(SpecError, match="two different names"):
        wb.side_by_side(plan("ring"), plan("tree"), labels=("a", "a"))
