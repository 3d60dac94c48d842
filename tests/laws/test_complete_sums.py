"""Whose parts are in every chunk: what is missing, twice there or not due is named."""

from __future__ import annotations

import polars as pl

from tests.laws.simulator import simulate, table
from tests.laws.tampering import RING, TEXTBOOK, changed, row, twice, verdict, without
from workbench import laws
from workbench.laws import check_events
from workbench.store.table import SCHEMA


def test_a_skipped_addition_is_named() -> None:
    fused = changed(RING, row("recv", 3, 1), name="")
    words = verdict(fused, "complete sums")
    assert "rank 0's chunk 1 slot 0 of all_reduce 0 in group 'default' lacks the part" in words
    assert {line.split(" lacks ")[1] for line in words.splitlines()} == {"the part of rank 3"}
    assert "slot 1" not in words and "all_reduce 1" not in words and "chunk 2" not in words
    assert len(words.splitlines()) == 4  # the all-gather spreads it to every rank
    apart = verdict(without(TEXTBOOK, row("reduce", 3, 1)), "complete sums")
    assert "rank 0's chunk 1 slot 0" in apart and "lacks the part of rank 3" in apart


def test_a_doubled_addition_is_named() -> None:
    words = verdict(twice(TEXTBOOK, row("reduce", 3, 1)), "complete sums")
    assert (
        "rank 3's chunk 1 slot 0" in words and "holds rank 1's 2 times, rank 2's 2 times" in words
    )
    one_shot = simulate("one_shot", 3, 5, seed=2)
    doubled = verdict(twice(one_shot, pl.col("kind") == "reduce"), "complete sums")
    assert doubled == (
        "at the end rank 1's chunk 0 slot 0 of all_reduce 0 in group 'default' "
        "holds rank 1's 2 times"
    )


def silenced(name: str, n: int, rank: int, step: int, root: int = 0) -> str:
    """Return what the contributors' law says if ``rank`` had received nothing new at ``step``."""
    events = simulate(name, n, 4 * n, root=root)
    return verdict(without(events, row("recv", rank, step)), "complete sums")


def test_what_each_operation_must_hold_is_judged() -> None:
    """What did not arrive is missed where it is due, and where it was passed on to."""
    assert silenced("broadcast/tree", 4, 2, 0).splitlines() == [  # 0→2, then 0→1 and 2→3
        "at the end rank 2's chunk 0 slot 0 of broadcast 0 in group 'default' lacks the part of "
        "rank 0 and holds rank 2's part, which is not due there",
        "at the end rank 3's chunk 0 slot 0 of broadcast 0 in group 'default' lacks the part of "
        "rank 0 and holds rank 2's part, which is not due there",
    ]
    lost = silenced("reduce/tree", 4, 1, 1, root=1)  # 2→1 4→3, then 3→1 of ranks 1 2 3 0
    assert lost == (
        "at the end rank 1's chunk 0 slot 0 of reduce 0 in group 'default' "
        "lacks the part of ranks 0, 3"
    )
    assert silenced("gather/flat", 3, 0, 1) == (
        "at the end rank 0's chunk 2 slot 0 of gather 0 in group 'default' lacks the part of "
        "rank 2 and holds rank 0's part, which is not due there"
    )
    assert "rank 2's chunk 2 slot 0 of scatter 0" in silenced("scatter/tree", 4, 2, 0)
    assert "rank 1's chunk 0 slot 0 of all_gather 0" in silenced("all_gather/ring", 3, 1, 0)
    ring = silenced("reduce_scatter/ring", 3, 0, 1)  # rank 0 holds chunk 0 in the end
    assert ring == (
        "at the end rank 0's chunk 0 slot 0 of reduce_scatter 0 in group 'default' "
        "lacks the part of ranks 1, 2"
    )
    assert "rank 1's chunk 1 slot 0 of all_to_all 0" in silenced("all_to_all/pairwise", 3, 1, 0)
    deaf = silenced("barrier/dissemination", 4, 2, 1)  # of 0 and 3 it would have heard only then
    assert deaf == (
        "at the end rank 2's chunk 0 slot 0 of barrier 0 in group 'default' "
        "lacks the part of ranks 0, 3"
    )


def test_an_algorithm_that_numbers_no_chunks_is_not_judged_by_them() -> None:
    mine = pl.lit("mine").cast(SCHEMA["algorithm"])
    events = RING.filter(pl.col("step") != 2).with_columns(algorithm=mine)
    nameless = events.with_columns(chunk=pl.lit(-1, pl.Int32))
    assert "complete sums" in {v.law for v in check_events(events)}
    assert "complete sums" not in {v.law for v in check_events(nameless)}


def test_every_rank_s_world_number_is_used() -> None:
    part = simulate("naive", 3, 5, world=(1, 3, 6), group="part")
    words = verdict(changed(part, pl.col("name") == "fused", name=""), "complete sums")
    assert (
        "rank 6's chunk 0 slot 0 of all_reduce 0 in group 'part' lacks the part of rank 1" in words
    )


def test_a_wrong_algorithm_shows_its_true_sets() -> None:
    """A ring that stops one step early, its name unknown to theory."""
    mine = pl.lit("mine").cast(SCHEMA["algorithm"])
    events = RING.filter(pl.col("step") != 2).with_columns(algorithm=mine)
    words = verdict(events, "complete sums")
    assert "lacks the part" in words and "steps and bytes" not in {
        v.law for v in check_events(events)
    }


def test_overlapping_exchanges_and_relays_are_told_apart_by_their_step() -> None:
    """Two ranks swap all they have and add: what arrives at a step is not in what leaves at it."""
    same = {"op": 0, "collective": "all_reduce", "algorithm": "swap", "group": "default"}
    same |= {"step": 0, "chunk": 0, "slot": 0, "nbytes": 4}
    rows = [
        {"rank": r, "peer": 1 - r, **same, **one}
        for r in (0, 1)
        for one in (
            {"kind": "recv", "name": "fused", "start_ns": 10, "end_ns": 15 + r},
            {"kind": "send", "start_ns": 9 - r, "end_ns": 20 + r},
            {"kind": "collective", "start_ns": 1, "end_ns": 30, "step": -1, "peer": -1},
        )
    ]
    assert check_events(table(rows)) == []


def test_contributors_as_data() -> None:
    events = simulate("ring", 3, 9, world=(0, 2, 5))
    frames = laws.contributors(events, 0)
    assert frames.columns == ["time_ns", "rank", "chunk", "slot", "contributors"]
    start = frames.head(9)  # 3 ranks x 3 chunks, each its own part
    place = {0: 0, 2: 1, 5: 2}
    assert all(row[4] == [int(i == place[row[1]]) for i in range(3)] for row in start.rows())
    assert start["time_ns"].n_unique() == 1
    assert frames["time_ns"].is_sorted()
    received = events.filter(pl.col("kind") == "recv")
    assert frames[9:]["time_ns"].to_list() == sorted(received["end_ns"])
    end = frames.group_by("rank", "chunk", "slot").last()["contributors"].to_list()
    assert end == [[1, 1, 1]] * 9
    first = frames[9:].filter(pl.col("rank") == 2, pl.col("chunk") == 0).row(0)
    assert first[4] == [1, 1, 0]  # chunk 0 came from rank 0, and rank 2 added its own
    assert laws.contributors(events, 7).is_empty()
