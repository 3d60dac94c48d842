"""Each transition is made once, inserted once, and drawn only while replay holds it: in runs, live
and over, with ranks that are killed, and where a row is changed.
"""

from __future__ import annotations

import time

import polars as pl
import pytest

import workbench as wb
from tests.pairwise import first
from tests.training.reinforcement.played import game
from workbench.laws import check_events, conserved_transitions
from workbench.theory.provenance import plain_texts
from workbench.training.parameter_servers.laws import every_push_counts_once

RUNS = {
    "ape_x": ("ape_x", 6, {"replays": 2, "max_policy_lag": 8, "pull_every": 60}),
    "gorila": ("gorila", 7, {"learners": 2, "servers": 2, "stale_above": 0}),
    "bundle": ("gorila", 3, {"bundle": True}),
}


def recorded(kind: str, **fields: object) -> wb.Experiment:
    """An experiment whose replay evicts, and which records each transition."""
    strategy, ranks, options = RUNS[kind]
    base = {"iterations": 60, "pad_environment": "1 ms", "pad_compute": "3 ms", "capacity": 64}
    return game(strategy, ranks, **{**base, **options, **fields}, record_transitions=True)


def of(events: pl.DataFrame, what: str) -> pl.DataFrame:
    return events.filter(pl.col("kind") == "metric", pl.col("name") == f"transition {what}")


@pytest.mark.parametrize("kind", first(2, ["gorila", "bundle", "ape_x"]))
def test_each_transition_is_conserved_live_and_in_the_end(kind: str) -> None:
    run = wb.run(recorded(kind))
    while not run.done:
        time.sleep(0.25)  # the ranks need the cores, too
        assert conserved_transitions(plain_texts(run.events), complete=False) == [], "live"
    assert run.wait().ok and check_events(run.events) == []
    events = plain_texts(run.events)
    counts = {what: of(events, what).height for what in ("made", "inserted", "dropped", "learned")}
    each = of(events, "inserted").group_by("rank").len().sort("rank")
    holds = events.filter(name="replay capacity").sort("rank")
    assert (each["len"] > holds["value"]).all(), "every replay has evicted some"
    assert counts["made"] == counts["inserted"] + counts["dropped"]
    assert counts["learned"] == 60 * 16 * (2 if kind != "ape_x" else 1)
    assert every_push_counts_once(events) == []


@pytest.mark.full
@pytest.mark.parametrize("kind", first(1, ["ape_x", "gorila"]))
def test_each_transition_is_conserved_where_an_actor_is_killed(kind: str) -> None:
    last = RUNS[kind][1] - 1
    run = wb.run(recorded(kind, faults=wb.Kill(rank=last, at_iteration=12)))
    result = run.wait(timeout=120)
    assert result.ok and result.lost == [last]
    assert check_events(run.events, complete=False) == []
    assert every_push_counts_once(run.events, complete=False) == []


# -- a row is changed --


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    run = wb.run(recorded("ape_x"))
    assert run.wait(timeout=120).ok
    return plain_texts(run.events)


def broken(events: pl.DataFrame) -> str:
    return "\n".join(one.words for one in conserved_transitions(events))


def row(events: pl.DataFrame, what: str, number: int) -> pl.Expr:
    """The ``number``-th row of what becomes of transitions."""
    which = (pl.col("kind") == "metric") & (pl.col("name") == f"transition {what}")
    rows = events.with_row_index("at").filter(which)["at"]
    return pl.int_range(pl.len()) == rows[number]


def with_value(events: pl.DataFrame, at: pl.Expr, column: str, value: object) -> pl.DataFrame:
    return events.with_columns(pl.when(at).then(pl.lit(value)).otherwise(column).alias(column))


def test_it_holds_of_the_rows_as_they_are(events: pl.DataFrame) -> None:
    assert broken(events) == "" and of(events, "dropped").height


def test_one_that_was_inserted_twice_is_found(events: pl.DataFrame) -> None:
    one = events.filter(row(events, "inserted", 40))
    assert "was taken in 2 times" in broken(pl.concat([events, one]))


def test_one_that_no_actor_made_is_found(events: pl.DataFrame) -> None:
    assert "no rank made it" in broken(events.filter(~row(events, "made", 40)))


def test_one_that_names_another_actor_is_found(events: pl.DataFrame) -> None:
    changed = with_value(events, row(events, "inserted", 40), "chunk", 77)
    assert "of actor 77 from rank" in broken(changed)


def test_one_that_another_rank_made_is_found(events: pl.DataFrame) -> None:
    assert "rank 0 made it" in broken(with_value(events, row(events, "made", 40), "rank", 0))


def test_one_that_never_came_is_found(events: pl.DataFrame) -> None:
    assert "neither inserted nor dropped" in broken(events.filter(~row(events, "inserted", -1)))


def test_one_that_was_drawn_before_it_was_inserted_is_found(events: pl.DataFrame) -> None:
    early = events["end_ns"].min()
    changed = with_value(events, row(events, "drawn", -1), "end_ns", early)
    assert "which had not been inserted" in broken(changed)


def test_one_that_was_drawn_after_its_eviction_is_found(events: pl.DataFrame) -> None:
    late = events["end_ns"].max()
    changed = with_value(events, row(events, "drawn", 0), "end_ns", late)
    assert "after its eviction" in broken(changed)


def test_one_that_was_learned_from_and_not_drawn_is_found(events: pl.DataFrame) -> None:
    one = events.filter(row(events, "learned", 5))
    more = pl.concat([events, *[one] * 17])
    assert "and it was drawn" in broken(more)
