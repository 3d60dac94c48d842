"""Experience is neither lost nor invented: in a run, live and over, and where a row is changed."""

from __future__ import annotations

import time

import polars as pl
import pytest

import workbench as wb
from tests.training.reinforcement.played import game
from workbench.laws import check_events, conserved_experience
from workbench.theory.provenance import plain_texts


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    """Of a run in which some of what was played is dropped as too old."""
    bound = {"max_policy_lag": 2, "pull_every": 60, "replays": 2}
    run = wb.run(game("ape_x", 6, iterations=60, pad_environment="1 ms", **bound))
    while not run.done:
        time.sleep(0.25)  # the ranks need the cores, too
        assert conserved_experience(plain_texts(run.events), complete=False) == [], "live"
    assert run.wait().ok and check_events(run.events) == []
    return plain_texts(run.events)


def names(kind: str, name: str) -> pl.Expr:
    return (pl.col("kind") == kind) & (pl.col("name") == name)


def broken(events: pl.DataFrame) -> list[str]:
    return [one.words for one in conserved_experience(events)]


def at(events: pl.DataFrame, which: pl.Expr, number: int) -> pl.Expr:
    """The ``number``-th row that is ``which``."""
    rows = events.with_row_index("at").filter(which)["at"]
    return pl.int_range(pl.len()) == rows[number]


@pytest.mark.full
def test_it_holds_of_a_run_that_drops(events: pl.DataFrame) -> None:
    assert broken(events) == [] and events.filter(names("metric", "dropped experience")).height


def test_a_block_that_was_never_sent_is_found(events: pl.DataFrame) -> None:
    one = at(events, names("send", "experience"), -1)
    assert any("never sent" in words for words in broken(events.filter(~one)))


def test_a_block_that_was_not_taken_in_is_found(events: pl.DataFrame) -> None:
    one = at(events, names("metric", "inserted"), 3)
    assert any("were taken in" in words for words in broken(events.filter(~one)))


def test_a_farewell_may_come_before_the_last_block_is_taken_in(events: pl.DataFrame) -> None:
    """As long as the run goes on: the two are messages of their own."""
    live = events.filter(~at(events, names("metric", "inserted"), -1))
    assert conserved_experience(live, complete=False) == []
    assert any("were taken in" in words for words in broken(live))


@pytest.mark.parametrize("by", [-1.0, 1.0])
def test_a_transition_that_is_gone_or_there_twice_is_found(events: pl.DataFrame, by: float) -> None:
    one = at(events, names("metric", "inserted"), 5)
    changed = events.with_columns(value=pl.when(one).then(pl.col("value") + by).otherwise("value"))
    assert any("and a block has 4" in words for words in broken(changed))


def test_a_block_that_was_taken_in_before_it_was_sent_is_found(events: pl.DataFrame) -> None:
    one = at(events, names("metric", "inserted"), 5)
    early = events["start_ns"].min()
    changed = events.with_columns(end_ns=pl.when(one).then(pl.lit(early)).otherwise("end_ns"))
    assert any("before it was sent" in words for words in broken(changed))
