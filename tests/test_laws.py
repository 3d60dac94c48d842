"""The laws hold of every honest table, and each of them fails on a table that was tampered with.

The tables come from a small simulator: ranks are programs of sends, receives and additions that run
with random delays, each on a clock of its own, and write rows as the engine does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench import laws, theory
from workbench.laws import check_events
from workbench.table import SCHEMA

# -- the simulator --


class Do(NamedTuple):
    """One action of a rank's program. A relay receives at ``step`` and sends on at ``step`` + 1."""

    what: str  # send recv fused relay relay_fused reduce own
    peer: int
    step: int
    chunk: int = 0
    to: int = -1


Program = list[Do]


def ring(r: int, n: int) -> Program:
    """As the engine does it: what arrives is added to and passed on in one go."""
    left, right = (r - 1) % n, (r + 1) % n
    last = 2 * (n - 1) - 1
    relays = [
        Do("relay_fused" if s < n - 1 else "relay", left, s, (r - s - 1) % n, right)
        for s in range(last)
    ]
    return [Do("send", right, 0, r), *relays, Do("recv", left, last, (r - last - 1) % n)]


def ring_by_exchange(r: int, n: int) -> Program:
    """As a textbook does it: send, receive, add."""
    program = []
    for s in range(2 * (n - 1)):
        come = (r - s - 1) % n
        program += [Do("send", (r + 1) % n, s, (r - s) % n), Do("recv", (r - 1) % n, s, come)]
        program += [Do("reduce", (r - 1) % n, s, come)] * (s < n - 1)
    return program


def naive(r: int, n: int) -> Program:
    if r:
        return [Do("send", 0, r - 1), Do("recv", 0, n - 2 + r)]
    return [Do("fused", p, p - 1) for p in range(1, n)] + [
        Do("send", p, n - 2 + p) for p in range(1, n)
    ]


def one_shot(r: int, n: int) -> Program:
    """As the engine does it: rank 0's part first, then the others' in order, its own kept aside."""
    program = [Do("send", (r + 1 + s) % n, s) for s in range(n - 1)]
    for p in range(n):
        if p == r:
            program += [Do("own", r, -1)] * (r > 0)
        else:
            program.append(Do("fused" if p else "recv", p, (r - p - 1) % n))
    return program


def one_shot_adding_last(r: int, n: int) -> Program:
    peers = [((r - 1 - s) % n, s) for s in range(n - 1)]
    return (
        [Do("send", (r + 1 + s) % n, s) for s in range(n - 1)]
        + [Do("recv", p, s) for p, s in peers]
        + [Do("reduce", p, s) for p, s in peers]
    )


PROGRAMS: dict[str, Callable[[int, int], Program]] = {
    "ring": ring,
    "ring by exchange": ring_by_exchange,
    "naive": naive,
    "one_shot": one_shot,
    "one_shot adding last": one_shot_adding_last,
}


class Rank:
    """A rank of the simulator: its program, its clock and its rows."""

    def __init__(self, rank: int, program: Program, slots: int, clock: int) -> None:
        self.rank, self.clock, self.rows = rank, clock, list[dict[str, Any]]()
        self.todo = [(do, slot) for do in program for slot in range(slots)]


def simulate(
    name: str, n: int, elements: int, *, slots: int = 1, seed: int = 0, ops: int = 1,
    itemsize: int = 4, world: tuple[int, ...] = (), group: str = "default",
) -> pl.DataFrame:  # fmt: skip
    """The event table of ``ops`` all-reduces. ``world``: the group's ranks, where not 0..n-1."""
    chance, rows = random.Random(seed), list[dict[str, Any]]()
    world = world or tuple(range(n))
    clocks = [1000 + chance.randrange(500) for _ in range(n)]
    for op in range(ops):
        same = {"op": op, "algorithm": name.split()[0], "collective": "all_reduce", "group": group}
        programs = [PROGRAMS[name](r, n) if n > 1 and elements else [] for r in range(n)]
        ranks = [Rank(r, programs[r], slots, clocks[r]) for r in range(n)]
        whole = elements if "ring" not in name else None
        cut = theory.chunk_sizes(elements, n) if whole is None else [elements]
        play(ranks, chance, [[itemsize * e for e in theory.chunk_sizes(c, slots)] for c in cut])
        for rank in ranks:
            begin, clocks[rank.rank] = clocks[rank.rank], rank.clock + chance.randrange(50)
            outer = dict(
                kind="collective", start_ns=begin, end_ns=rank.clock, nbytes=elements * itemsize
            )
            for row in [*rank.rows, outer]:
                peer = world[row["peer"]] if "peer" in row else -1
                rows.append({**same, **row, "rank": world[rank.rank], "peer": peer})
    return table(rows, itemsize)


def play(ranks: list[Rank], chance: random.Random, sizes: list[list[int]]) -> None:
    """Run the programs: whoever can go on goes on, in random order."""
    there: dict[tuple[int, int, int, int, int], int] = {}
    while any(rank.todo for rank in ranks):
        able = [r for r in ranks if r.todo and ready(r, there)]
        assert able, "the programs wait for each other"
        rank = chance.choice(able)
        do, slot = rank.todo.pop(0)
        what = dict(step=do.step, chunk=do.chunk, slot=slot, nbytes=sizes[do.chunk][slot])

        def write(kind: str, start: int, end: int, rank: Rank = rank, **more: Any) -> None:
            rank.rows.append({"kind": kind, "start_ns": start, "end_ns": end, **more})
            rank.clock = end

        if do.what not in ("send", "reduce", "own"):
            come = there[do.peer, rank.rank, do.step, do.chunk, slot]
            if come > rank.clock:
                write("wait", rank.clock, come, peer=do.peer, **what)
        start = rank.clock + chance.randrange(5)
        middle = start + chance.randrange(1, 30)
        if do.what == "send":
            write("send", start, middle, peer=do.peer, **what)
            there[rank.rank, do.peer, do.step, do.chunk, slot] = chance.randint(start, middle)
        elif do.what.startswith("relay"):
            write("recv", start, middle, peer=do.peer, name="fused" * ("fused" in do.what), **what)
            end = middle + chance.randrange(30)
            write("send", start, end, peer=do.to, **{**what, "step": do.step + 1})
            # A peer may have taken it before this rank looks at its clock for the end of its rows.
            there[rank.rank, do.to, do.step + 1, do.chunk, slot] = chance.randint(start, end)
        else:
            kind = {"own": "reduce", "fused": "recv"}.get(do.what, do.what)
            write(kind, start, middle, peer=do.peer, name="fused" * (do.what == "fused"), **what)


def ready(rank: Rank, there: dict[tuple[int, int, int, int, int], int]) -> bool:
    do, slot = rank.todo[0]
    local = do.what in ("send", "reduce", "own")
    return local or (do.peer, rank.rank, do.step, do.chunk, slot) in there


def table(rows: list[dict[str, Any]], itemsize: int = 4) -> pl.DataFrame:
    """The contract's table: what is not said is -1, "" or NaN; ``seq`` in each rank's order."""
    blank: dict[str, Any] = {
        c: "" if t == pl.Categorical else float("nan") if t == pl.Float64 else -1
        for c, t in SCHEMA.items()
    }
    blank |= {"generation": 0, "lane": "comm"}
    frame = pl.DataFrame([{**blank, **row} for row in rows], infer_schema_length=None)
    return frame.with_columns(
        seq=pl.int_range(pl.len()).over("rank", "lane"),
        value=pl.when(pl.col("kind") == "collective").then(float(itemsize)).otherwise("value"),
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())  # fmt: skip


# -- all laws hold of honest tables --


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", range(1, 9))
def test_every_law_holds_of_an_honest_run(name: str, n: int) -> None:
    for elements in (0, 1, n - 1, n, n + 1, 1023):
        for slots in (1, 3):
            events = simulate(name, n, elements, slots=slots, seed=n + elements, ops=2)
            assert check_events(events) == []


@given(
    st.sampled_from(sorted(PROGRAMS)), st.integers(1, 6), st.integers(0, 40), st.integers(1, 3),
    st.integers(0, 10**6),
)  # fmt: skip
def test_every_law_holds_however_the_ranks_are_delayed(
    name: str, n: int, elements: int, slots: int, seed: int
) -> None:
    assert check_events(simulate(name, n, elements, slots=slots, seed=seed)) == []


def test_groups_generations_and_dtypes_are_told_apart() -> None:
    whole = simulate("ring", 4, 101, ops=3)
    part = simulate("ring", 3, 50, world=(1, 3, 6), group="part", itemsize=8).with_columns(
        lane=pl.lit("comm:part").cast(SCHEMA["lane"])
    )
    again = simulate("naive", 2, 9, seed=3).with_columns(
        pl.lit(1).cast(pl.Int32).alias("generation"),
        pl.lit("later").cast(SCHEMA["lane"]).alias("lane"),
    )
    assert check_events(pl.concat([whole, part, again])) == []
    assert check_events(part.with_columns(value=float("nan")), itemsize=8) == []
    found = check_events(part.with_columns(value=float("nan")), itemsize=4)
    assert {v.law for v in found} == {
        "steps and bytes"
    }  # 50 doubles cut as if they were 100 floats
    assert "pass itemsize" in str(
        check_events(part.with_columns(value=float("nan")), itemsize=32)[0]
    )


def test_a_run_that_did_not_end_well_is_judged_by_what_it_ended() -> None:
    events = simulate("ring", 4, 100, ops=3)
    stopped = events.filter(
        (pl.col("op") < 2)
        | ((pl.col("step") == 0) & (pl.col("kind") == "send"))
    )  # fmt: skip
    renumbered = stopped.with_columns(seq=pl.int_range(pl.len()).over("rank").cast(pl.Int64))
    assert check_events(renumbered, complete=False) == []
    assert {v.law for v in check_events(renumbered)} == {"matched messages"}
    broken = without(renumbered, row("send", 1, 3))
    assert "matched messages" in {v.law for v in check_events(broken, complete=False)}


def test_a_table_without_collectives_breaks_no_law() -> None:
    assert check_events(pl.DataFrame(schema=SCHEMA)) == []
    p2p = {"collective": "p2p", "group": "default", "op": 0, "slot": 0, "nbytes": 8}
    rows = [
        {"rank": 0, "lane": "send", "kind": "send", "peer": 1, "start_ns": 1, "end_ns": 5, **p2p},
        {"rank": 1, "lane": "recv", "kind": "recv", "peer": 0, "start_ns": 4, "end_ns": 6, **p2p},
    ]
    assert check_events(table(rows)) == []
    (found,) = check_events(table(rows[1:]))
    assert found.words == (
        "rank 1 received slot 0 of message 0 in group 'default' from rank 0, "
        "which has no send row for it"
    )


# -- each law fails on a table that was tampered with --


def without(events: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """``events`` less the first row of ``which``, numbered anew so that only its absence tells."""
    rows = events.with_row_index("index")
    gone = rows.filter(which)["index"][0]
    left = rows.filter(pl.col("index") != gone).drop("index")
    return left.with_columns(seq=pl.int_range(pl.len()).over("rank", "lane").cast(pl.Int64))


def changed(events: pl.DataFrame, which: pl.Expr, **to: Any) -> pl.DataFrame:
    """``events`` with columns of the first row of ``which`` set."""
    rows = events.with_row_index("index")
    one = pl.col("index") == rows.filter(which)["index"][0]
    return rows.with_columns(
        pl.when(one).then(pl.lit(value).cast(SCHEMA[column])).otherwise(column).alias(column)
        for column, value in to.items()
    ).drop("index")


def twice(events: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """``events`` with the first row of ``which`` written twice."""
    row = events.filter(which).head(1)
    doubled = pl.concat([events, row]).sort("rank", "end_ns", maintain_order=True)
    return doubled.with_columns(seq=pl.int_range(pl.len()).over("rank", "lane").cast(pl.Int64))


def said(events: pl.DataFrame, law: str) -> str:
    """What ``law`` says of ``events``; the others may say something too."""
    found = [v.words for v in check_events(events) if v.law == law]
    assert found
    return "\n".join(found)


def row(kind: str, rank: int, step: int, op: int = 0) -> pl.Expr:
    return (
        (pl.col("kind") == kind)
        & (pl.col("rank") == rank)
        & (pl.col("step") == step)
        & (pl.col("op") == op)
    )


RING = simulate("ring", 4, 103, slots=2, ops=2, seed=5)
TEXTBOOK = simulate("ring by exchange", 4, 103, seed=6)


def test_a_removed_send_is_named() -> None:
    (found,) = laws.matched_messages(without(RING, row("send", 2, 1, op=1)))
    assert found.words == (
        "rank 3 received chunk 1 slot 0 at step 1 of all_reduce 1 in group 'default' from rank 2, "
        "which has no send row for it"
    )
    assert (found.op, found.step, found.chunk, found.slot) == (1, 1, 1, 0)


@given(st.integers(0, 10**6), st.sampled_from(["send", "recv"]), st.sampled_from(sorted(PROGRAMS)))
def test_any_removed_message_row_is_named(seed: int, kind: str, name: str) -> None:
    events = simulate(name, 3, 20, slots=2, seed=seed % 97)
    rows = events.filter(pl.col("kind") == kind)
    one = rows.row(seed % rows.height, named=True)
    gone = pl.all_horizontal(pl.col(c) == one[c] for c in ("kind", "rank", "seq"))
    words = said(without(events, gone), "matched messages")
    assert f"chunk {one['chunk']} slot {one['slot']} at step {one['step']}" in words
    assert f"rank {one['rank']}" in words


def test_a_removed_recv_is_named() -> None:
    words = said(without(RING, row("recv", 3, 4)), "matched messages")
    assert words == (
        "rank 2 sent chunk 2 slot 0 at step 4 of all_reduce 0 in group 'default' to rank 3, "
        "which has no recv row for it"
    )


def test_a_doubled_recv_is_named() -> None:
    events = twice(RING, row("recv", 3, 1))
    words = said(events, "matched messages")
    assert "rank 2 has 1 send rows and rank 3 2 recv rows for chunk 1 slot 0 at step 1" in words
    assert "holds rank" in said(events, "complete sums")


def test_a_swapped_chunk_is_named() -> None:
    words = said(changed(RING, row("send", 1, 2), chunk=2), "matched messages")
    assert "rank 1 sent chunk 2 slot 0 at step 2" in words
    assert "rank 2 received chunk 3 slot 0 at step 2" in words


def test_wrong_bytes_are_named() -> None:
    events = changed(RING, row("send", 0, 3), nbytes=999)
    assert "rank 0 sent 999 B" in said(events, "matched messages")
    words = said(events, "steps and bytes")
    assert "rank 0, all_reduce 0 in group 'default' (ring, 4 ranks, 412 B)" in words
    assert "bytes sent, theory 616" in words  # chunks 26 26 26 25: 4·(206 - 26 - 26)


def test_bytes_that_agree_with_each_other_but_not_with_theory_are_named() -> None:
    outer = pl.col("kind") == "collective"
    events = RING.with_columns(
        nbytes=pl.when(outer).then(pl.lit(416, pl.Int64)).otherwise("nbytes")
    )
    assert "theory 624" in said(events, "steps and bytes")


def test_a_step_too_many_is_named() -> None:
    last = (pl.col("chunk") == 1) & (pl.col("step") == 5)
    later = RING.with_columns(step=pl.when(last).then(pl.lit(6, pl.Int32)).otherwise("step"))
    assert "7 steps in all, theory 6" in said(later, "steps and bytes")


def test_a_message_too_few_is_named_even_when_empty() -> None:
    events = simulate("ring", 4, 2)  # chunks 2 and 3 are empty, and have their rows all the same
    gone = events.filter(~((pl.col("step") == 1) & (pl.col("chunk") == 3)))
    assert "5 messages sent, theory 6" in said(gone, "steps and bytes")


def test_crossing_spans_are_named() -> None:
    send = RING.filter(row("send", 1, 0)).row(0, named=True)
    until = RING.filter((pl.col("rank") == 1), pl.col("start_ns") > send["end_ns"])[
        "start_ns"
    ].min()
    assert isinstance(until, int)
    events = changed(RING, row("send", 1, 0), end_ns=until + 1)
    words = said(events, "nested spans")
    assert "on rank 1, lane 'comm', " in words
    assert "starts inside send chunk 1 slot 0 at step 0 of all_reduce 0 in group 'default'" in words


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=12))
def test_nesting_is_what_its_definition_says(spans: list[tuple[int, int]]) -> None:
    rows = [{"rank": 0, "kind": "load", "start_ns": a, "end_ns": a + long} for a, long in spans]
    crossing = any(a < c < a + x < c + y for a, x in spans for c, y in spans)
    assert bool(laws.nested_spans(table(rows))) == crossing


def test_times_that_run_backwards_are_named() -> None:
    backwards = changed(RING, row("send", 2, 1), end_ns=5)
    assert "rank 2's send chunk 1 slot 0 at step 1 of all_reduce 0" in said(
        backwards, "ordered times"
    )
    early = changed(RING, row("recv", 2, 0), start_ns=1, end_ns=2)
    assert "rank 2's recv chunk 1 slot 0 at step 0" in said(early, "matched messages")


def test_dropped_and_doubled_rows_are_named() -> None:
    gone = RING.filter(~((pl.col("rank") == 1) & pl.col("seq").is_in([4, 5])))
    assert "rows 4 to 5 of rank 1's lane 'comm' are missing" in said(gone, "gapless lanes")
    first = RING.filter(~((pl.col("rank") == 1) & (pl.col("seq") == 0)))
    assert "row 0 of rank 1's lane 'comm' is missing" in said(first, "gapless lanes")
    doubled = changed(RING, (pl.col("rank") == 1) & (pl.col("seq") == 6), seq=7)
    assert "row 7 of rank 1's lane 'comm' is there more than once" in said(doubled, "gapless lanes")


def test_a_rank_that_stayed_away_is_named() -> None:
    kind = pl.col("kind") == "collective"
    gone = without(RING, row("collective", 2, -1, op=1))
    words = said(gone, "everyone takes part")
    assert (
        words == "rank 2 has no collective rows for all_reduce 1 in group 'default': expected one"
    )
    assert "disagree about the bytes" in said(changed(RING, kind, nbytes=8), "everyone takes part")


# -- contributors --


def test_a_skipped_addition_is_named() -> None:
    fused = changed(RING, row("recv", 3, 1), name="")
    words = said(fused, "complete sums")
    assert "rank 0's chunk 1 slot 0 of all_reduce 0 in group 'default' lacks the part" in words
    assert {line.split(" lacks ")[1] for line in words.splitlines()} == {"the part of rank 3"}
    assert "slot 1" not in words and "all_reduce 1" not in words and "chunk 2" not in words
    assert len(words.splitlines()) == 4  # the all-gather spreads it to every rank
    apart = said(without(TEXTBOOK, row("reduce", 3, 1)), "complete sums")
    assert "rank 0's chunk 1 slot 0" in apart and "lacks the part of rank 3" in apart


def test_a_doubled_addition_is_named() -> None:
    words = said(twice(TEXTBOOK, row("reduce", 3, 1)), "complete sums")
    assert (
        "rank 3's chunk 1 slot 0" in words and "holds rank 1's 2 times, rank 2's 2 times" in words
    )
    one_shot = simulate("one_shot", 3, 5, seed=2)
    doubled = said(twice(one_shot, pl.col("kind") == "reduce"), "complete sums")
    assert doubled == (
        "at the end rank 1's chunk 0 slot 0 of all_reduce 0 in group 'default' "
        "holds rank 1's 2 times"
    )


def test_every_rank_s_world_number_is_used() -> None:
    part = simulate("naive", 3, 5, world=(1, 3, 6), group="part")
    words = said(changed(part, pl.col("name") == "fused", name=""), "complete sums")
    assert (
        "rank 6's chunk 0 slot 0 of all_reduce 0 in group 'part' lacks the part of rank 1" in words
    )


def test_a_wrong_algorithm_shows_its_true_sets() -> None:
    """A ring that stops one step early, its name unknown to theory."""
    mine = pl.lit("mine").cast(SCHEMA["algorithm"])
    events = RING.filter(pl.col("step") != 2).with_columns(algorithm=mine)
    words = said(events, "complete sums")
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


def test_rows_that_wait_for_each_other_end_the_replay() -> None:
    """Nonsense in, an answer out: no hang and no exception."""
    circle = RING.with_columns(pl.col("start_ns").reverse(), pl.col("end_ns").reverse())
    assert check_events(circle) != []
    other = (pl.col("peer") + 1) % 4
    mixed = RING.with_columns(peer=pl.when(pl.col("peer") < 0).then("peer").otherwise(other))
    assert "matched messages" in {v.law for v in check_events(mixed)}


def test_many_violations_are_counted_and_not_all_listed() -> None:
    found = laws.ordered_times(RING.with_columns(end_ns=pl.lit(0, pl.Int64)))
    assert len(found) == laws.MOST + 1
    assert found[-1].words == f"and {RING.height - laws.MOST:,} more"


def test_a_hundred_thousand_rows_are_checked_in_a_moment() -> None:
    one = simulate("ring", 4, 4096, slots=4)
    times = 100_000 // one.height
    shift = pl.int_range(times, dtype=pl.Int64).alias("time")
    many = one.join(pl.select(shift), how="cross").with_columns(
        pl.col("start_ns", "end_ns") + 10**6 * pl.col("time"), op=pl.col("time")
    ).sort("rank", "time", "seq").drop("time")  # fmt: skip
    many = many.with_columns(seq=pl.int_range(pl.len()).over("rank").cast(pl.Int64))
    begin = time.perf_counter()
    assert check_events(many) == []
    assert (
        time.perf_counter() - begin < 5
    )  # on a busy machine; alone it takes 0.3 s, and 3 s for 10⁶ rows


# -- results --


def test_replicas() -> None:
    assert laws.replicas_identical({}) == []
    assert laws.replicas_identical({0: "ab", 1: "ab"}) == []
    (found,) = laws.replicas_identical({0: "ab", 1: "cd", 2: "ab"})
    assert found.rank == 1
    assert (
        str(found) == "replicas identical: rank 1's parameters have digest cd, most ranks' have ab"
    )


@given(st.integers(1, 8), st.integers(0, 50), st.integers(0, 1000))
def test_sums_in_any_order_are_within_the_bound(n: int, elements: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for dtype in (np.float32, np.float64):
        xs = [chance.normal(size=elements).astype(dtype) for _ in range(n)]
        total = np.zeros(elements, dtype)
        for x in sorted(xs, key=lambda _: chance.random()):
            total += x
        assert laws.sum_error(total, xs) <= 1
        if elements and n > 1:
            wrong = total.copy()
            wrong[0] += (n + 1) * np.finfo(dtype).eps * sum(abs(x[0]) for x in xs)
            assert laws.sum_error(wrong, xs) > 1


def test_integers_are_exact_and_nonsense_is_refused() -> None:
    xs = [torch.tensor([2**60, 1]), torch.tensor([1, 2**62])]
    assert laws.sum_error(xs[0] + xs[1], xs) == 0
    assert laws.sum_error(xs[0] + xs[1] + 1, xs) == float("inf")
    assert laws.sum_error(torch.tensor([1.5]), [torch.tensor([1.5])]) == 0
    assert laws.sum_error(torch.tensor([1.6]), [torch.tensor([1.5])]) == float("inf")
    assert laws.sum_error(np.array([np.inf]), [np.array([np.inf]), np.array([1.0])]) == 0
    assert laws.sum_error(np.array([np.nan]), [np.array([1.0]), np.array([1.0])]) == float("inf")
    with pytest.raises(ValueError, match=r"a sum of float64\[2\] cannot be float64\[1\]"):
        laws.sum_error(np.zeros(1), [np.zeros(2)])
