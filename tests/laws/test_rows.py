"""The laws of rows: each fails on a table that was tampered with, and names what was."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.simulator import PROGRAMS, simulate, table
from tests.laws.tampering import RING, changed, row, twice, verdict, without
from workbench import laws


def test_a_removed_send_is_named() -> None:
    (violation,) = laws.matched_messages(without(RING, row("send", 2, 1, op=1)))
    assert violation.words == (
        "rank 3 received chunk 1 slot 0 at step 1 of all_reduce 1 in group 'default' from rank 2, "
        "which has no send row for it"
    )
    assert (violation.op, violation.step, violation.chunk, violation.slot) == (1, 1, 1, 0)


def test_the_last_message_of_a_rank_that_was_killed_may_have_no_send_row() -> None:
    """The row is written after the message has left. Only the last, and only of a broken run."""
    last = RING.filter(pl.col("kind") == "send", pl.col("rank") == 2).sort("start_ns").tail(2)
    steps = [
        row("send", 2, one["step"], op=one["op"]) & (pl.col("slot") == one["slot"])
        for one in last.iter_rows(named=True)
    ]
    one_less = without(RING, steps[1])
    assert laws.matched_messages(one_less, complete=False) == []
    assert len(laws.matched_messages(one_less)) == 1
    (violation,) = laws.matched_messages(without(RING, steps[0]), complete=False)
    assert "from rank 2, which has no send row for it" in violation.words
    assert len(laws.matched_messages(without(one_less, steps[0]), complete=False)) == 2


@given(st.integers(0, 10**6), st.sampled_from(["send", "recv"]), st.sampled_from(sorted(PROGRAMS)))
def test_any_removed_message_row_is_named(seed: int, kind: str, name: str) -> None:
    events = simulate(name, 3, 20, slots=2, seed=seed % 97)
    rows = events.filter(pl.col("kind") == kind)
    one = rows.row(seed % rows.height, named=True)
    gone = pl.all_horizontal(pl.col(c) == one[c] for c in ("kind", "rank", "seq"))
    words = verdict(without(events, gone), "matched messages")
    assert f"chunk {one['chunk']} slot {one['slot']} at step {one['step']}" in words
    assert f"rank {one['rank']}" in words


def test_a_removed_recv_is_named() -> None:
    words = verdict(without(RING, row("recv", 3, 4)), "matched messages")
    assert words == (
        "rank 2 sent chunk 2 slot 0 at step 4 of all_reduce 0 in group 'default' to rank 3, "
        "which has no recv row for it"
    )


def test_a_doubled_recv_is_named() -> None:
    events = twice(RING, row("recv", 3, 1))
    words = verdict(events, "matched messages")
    assert "rank 2 has 1 send rows and rank 3 2 recv rows for chunk 1 slot 0 at step 1" in words
    assert "holds rank" in verdict(events, "complete sums")


def test_a_swapped_chunk_is_named() -> None:
    words = verdict(changed(RING, row("send", 1, 2), chunk=2), "matched messages")
    assert "rank 1 sent chunk 2 slot 0 at step 2" in words
    assert "rank 2 received chunk 3 slot 0 at step 2" in words


def test_crossing_spans_are_named() -> None:
    send = RING.filter(row("send", 1, 0)).row(0, named=True)
    until = RING.filter((pl.col("rank") == 1), pl.col("start_ns") > send["end_ns"])[
        "start_ns"
    ].min()
    assert isinstance(until, int)
    events = changed(RING, row("send", 1, 0), end_ns=until + 1)
    words = verdict(events, "nested spans")
    assert "on rank 1, lane 'comm', " in words
    assert "starts inside send chunk 1 slot 0 at step 0 of all_reduce 0 in group 'default'" in words


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=12))
def test_nesting_is_what_its_definition_says(spans: list[tuple[int, int]]) -> None:
    rows = [{"rank": 0, "kind": "load", "start_ns": a, "end_ns": a + long} for a, long in spans]
    crossing = any(a < c < a + x < c + y for a, x in spans for c, y in spans)
    assert bool(laws.nested_spans(table(rows))) == crossing


def test_times_that_run_backwards_are_named() -> None:
    backwards = changed(RING, row("send", 2, 1), end_ns=5)
    assert "rank 2's send chunk 1 slot 0 at step 1 of all_reduce 0" in verdict(
        backwards, "ordered times"
    )
    early = changed(RING, row("recv", 2, 0), start_ns=1, end_ns=2)
    assert "rank 2's recv chunk 1 slot 0 at step 0" in verdict(early, "matched messages")


def test_dropped_and_doubled_rows_are_named() -> None:
    gone = RING.filter(~((pl.col("rank") == 1) & pl.col("seq").is_in([4, 5])))
    assert "rows 4 to 5 of rank 1's lane 'comm' are missing" in verdict(gone, "gapless lanes")
    first = RING.filter(~((pl.col("rank") == 1) & (pl.col("seq") == 0)))
    assert "row 0 of rank 1's lane 'comm' is missing" in verdict(first, "gapless lanes")
    doubled = changed(RING, (pl.col("rank") == 1) & (pl.col("seq") == 6), seq=7)
    words = verdict(doubled, "gapless lanes")
    assert "row 7 of rank 1's lane 'comm' is there more than once" in words


def test_many_violations_are_counted_and_not_all_listed() -> None:
    violations = laws.ordered_times(RING.with_columns(end_ns=pl.lit(0, pl.Int64)))
    assert len(violations) == laws.MOST + 1
    assert violations[-1].words == f"and {RING.height - laws.MOST:,} more"
