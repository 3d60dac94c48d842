"""All laws hold of every honest table, whatever its algorithm, groups and delays."""

from __future__ import annotations

import time

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.simulator import OTHERS, PROGRAMS, simulate, table
from tests.laws.tampering import RING, row, without
from tests.live import crowding
from tests.pairwise import first
from workbench.laws import check_events
from workbench.store.table import SCHEMA


@pytest.mark.parametrize("name", first(6, PROGRAMS))
@pytest.mark.parametrize("n", first(1, [4, 1, 7, 2, 3, 5, 6, 8]))
def test_every_law_holds_of_an_honest_run(name: str, n: int) -> None:
    for elements in (0, 1, n - 1, n, n + 1, 1023):
        for slots in (1, 3):
            events = simulate(name, n, elements, slots=slots, seed=n + elements, ops=2)
            assert check_events(events) == []


@pytest.mark.parametrize("name", OTHERS)
def test_every_law_holds_of_every_operation(name: str) -> None:
    whole = name.split("/")[0] not in ("all_reduce", "broadcast", "reduce")
    tables = []
    for n in range(1, 9):
        for elements in {0, n, 1024 * n} if whole else {0, 1, n - 1, n + 1, 1023}:
            group = f"{n} ranks, {elements} elements"
            events = simulate(
                name, n, elements, slots=2, seed=n + elements, ops=2, root=n // 2, group=group
            )
            tables.append(events.with_columns(lane=pl.lit(group).cast(SCHEMA["lane"])))
    assert check_events(pl.concat(tables)) == []
    part = simulate(name, 3, 12, world=(1, 3, 6), group="part", root=2)
    assert check_events(part) == []


@given(
    st.sampled_from(sorted(PROGRAMS)),
    st.integers(1, 6),
    st.integers(0, 40),
    st.integers(1, 3),
    st.integers(0, 10**6),
)
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
    violations = check_events(part.with_columns(value=float("nan")), itemsize=4)
    assert {v.law for v in violations} == {
        "steps and bytes"
    }  # 50 doubles cut as if they were 100 floats
    assert "pass itemsize" in str(
        check_events(part.with_columns(value=float("nan")), itemsize=32)[0]
    )


def test_a_run_that_did_not_end_well_is_judged_by_what_it_ended() -> None:
    events = simulate("ring", 4, 100, ops=3)
    stopped = events.filter(
        (pl.col("op") < 2) | ((pl.col("step") == 0) & (pl.col("kind") == "send"))
    )
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
    (violation,) = check_events(table(rows[1:]))
    assert violation.words == (
        "rank 1 received slot 0 of message 0 in group 'default' from rank 0, "
        "which has no send row for it"
    )


def test_rows_that_wait_for_each_other_end_the_replay() -> None:
    """Nonsense in, an answer out: no hang and no exception."""
    circle = RING.with_columns(pl.col("start_ns").reverse(), pl.col("end_ns").reverse())
    assert check_events(circle) != []
    other = (pl.col("peer") + 1) % 4
    mixed = RING.with_columns(peer=pl.when(pl.col("peer") < 0).then("peer").otherwise(other))
    assert "matched messages" in {v.law for v in check_events(mixed)}


def test_a_hundred_thousand_rows_are_checked_in_a_moment() -> None:
    one = simulate("ring", 4, 4096, slots=4)
    times = 100_000 // one.height
    shift = pl.int_range(times, dtype=pl.Int64).alias("time")
    many = (
        one.join(pl.select(shift), how="cross")
        .with_columns(pl.col("start_ns", "end_ns") + 10**6 * pl.col("time"), op=pl.col("time"))
        .sort("rank", "time", "seq")
        .drop("time")
    )
    many = many.with_columns(seq=pl.int_range(pl.len()).over("rank").cast(pl.Int64))
    begin = time.perf_counter()
    assert check_events(many) == []
    took = time.perf_counter() - begin
    assert took < 5 * crowding()  # alone it takes 0.3 s, and 3 s for 10⁶ rows
