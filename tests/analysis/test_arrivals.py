"""Which rank comes last to a call, and whether by its own doing: calls whose times are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest

from tests.synthetic import loss_row, table
from workbench.analysis.arrivals import FAILED, MOST, arrivals
from workbench.analysis.bottleneck import find
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store

MS = 1_000_000
Part = tuple[float, float]  # of a rank in a call: from, to, in ms


def spans(calls: Sequence[Mapping[int, Part]], collective: str = "all_reduce") -> Loaded:
    """Return a job's record of these operations, each rank's part in each; no messages."""
    rows = []
    for op, call in enumerate(calls):
        for rank, (start, end) in call.items():
            times = {"start_ns": round((start + 1) * MS), "end_ns": round((end + 1) * MS)}
            of = {"kind": "collective", "collective": collective, "group": "default", "op": op}
            rows.append(
                loss_row(0, 0, 0.0)
                | times
                | of
                | {"rank": rank, "lane": "comm", "name": "train.py:7", "seq": op, "iteration": 0}
            )
    return Loaded(Store.from_frame(table(rows)))


def straggler(times: int = 20) -> Loaded:
    """Rank 1 of four comes 200 ms after the others, each time."""
    calls = []
    for at in range(times):
        start = 210 * at
        late = {1: (start + 200, start + 208.0)}
        calls.append({rank: (start + rank, start + 209.0) for rank in (0, 2, 3)} | late)
    return spans(calls)


def test_a_rank_that_takes_longer_than_the_others_is_late_in_every_call() -> None:
    job = straggler()
    calls = job.calls()
    assert set(calls["last"]) == {1}
    assert calls["late_ms"].to_list() == pytest.approx([197] * 20)
    assert calls["own_ms"][1:].to_list() == pytest.approx([197] * 19), "of its own doing"
    waits = job.waits()
    assert waits["peer"].unique().to_list() == [1], "the others wait for it, and for no other"
    assert waits["late_ms"].to_list() == waits["waited_ms"].to_list()
    result = job.bottleneck()
    assert result is not None and (result.cause, result.rank) == ("straggler", 1)
    words = "Rank 1 arrives last in 20 of 20 all-reduces at train.py:7, 197 ms each"
    assert result.words.startswith(words)


def test_a_rank_whose_previous_call_has_just_ended_is_not_late() -> None:
    """A slow link staggers the ranks of a ring: each call ends 5 ms later on the next rank."""
    calls = [
        {rank: (20 * n + 5 * rank, 20 * n + 5 * rank + 19.6) for rank in range(4)} for n in range(9)
    ]
    calls_table = arrivals(spans(calls).events)
    assert calls_table["last"].to_list() == [3] * 9 and calls_table[
        "late_ms"
    ].to_list() == pytest.approx([5] * 9)
    assert calls_table["own_ms"][1:].to_list() == pytest.approx([0] * 8)


def test_lateness_that_is_handed_on_is_not_ones_own() -> None:
    """All compute 100 ms; rank 2 came out of the call before 20 ms after the others."""
    first = {0: (0.0, 10.0), 1: (0.0, 10.0), 2: (0.0, 30.0)}
    second = {0: (110.0, 140.0), 1: (110.0, 140.0), 2: (130.0, 140.0)}
    (_, call) = arrivals(spans([first, second]).events).rows(named=True)
    assert (call["last"], call["late_ms"], call["own_ms"]) == (2, 20, 0)


@pytest.mark.parametrize(
    ("late", "free", "others_free", "own"),
    [(200, 205, 5, 200), (20, 0.4, 0.3, 0.1), (20, 5, 300, 0), (5, 0.4, 0.4, 0)],
)
def test_the_rule_for_one_call(late: float, free: float, others_free: float, own: float) -> None:
    came = {0: 1_000.0, 2: 1_000.0, 1: 1_000.0 + late}
    ended = {rank: at - (free if rank == 1 else others_free) for rank, at in came.items()}
    calls = [
        {rank: (0.0, at) for rank, at in ended.items()},
        {rank: (at, 1_300.0) for rank, at in came.items()},
    ]
    (_, call) = arrivals(spans(calls).events).rows(named=True)
    assert (call["last"], call["late_ms"]) == (1, pytest.approx(late))
    assert call["own_ms"] == pytest.approx(own, abs=1e-5)
    assert (call["own_ms"] >= MOST * call["late_ms"]) == (own == late)


def test_a_call_of_one_rank_has_none_that_is_late() -> None:
    assert arrivals(spans([{4: (0.0, 9.0)}]).events).is_empty()


@pytest.mark.parametrize(("collective", "waits"), [("broadcast", [1, 2]), ("reduce", [0])])
def test_of_a_rooted_operation_those_wait_that_need_something(
    collective: str, waits: list[int]
) -> None:
    job = spans([{0: (6.0, 9.0), 1: (1.0, 9.0), 2: (7.0, 9.0)}], collective)
    rooted = Loaded(Store.from_frame(job.events.with_columns(peer=pl.lit(0, pl.Int32))))
    assert rooted.waits().filter(pl.col("waited_ms") > 0)["rank"].to_list() == waits[:1]
    assert rooted.waits()["rank"].to_list() == waits


def test_it_is_not_said_how_long_a_rank_waits_where_its_span_does_not_tell() -> None:
    job = spans([{0: (6.0, 9.0), 1: (1.0, 9.0)}], "other")
    assert job.calls(by_rank=True)["waited_ms"].to_list() == [None, None]
    assert job.waits().height == 0


def test_ranks_in_different_calls_have_a_row_for_each_which_was_never_completed() -> None:
    events = spans([{0: (1.0, 9.0), 1: (2.0, 9.0)}]).events
    barrier = pl.when(pl.col("rank") == 1).then(pl.lit("barrier")).otherwise(pl.lit("all_reduce"))
    line = pl.when(pl.col("rank") == 1).then(pl.lit("train.py:9")).otherwise(pl.lit("train.py:7"))
    job = Loaded(Store.from_frame(events.with_columns(collective=barrier, name=line)))
    columns = ["number", "collective", "name", "members", "completed", "took_ms", "last"]
    assert job.calls().select(columns).rows() == [
        (1, "all_reduce", "train.py:7", [0], False, None, None),
        (1, "barrier", "train.py:9", [1], False, None, None),
    ]


def test_a_call_that_raised_an_error_was_never_completed_and_sizes_are_told_apart() -> None:
    events = spans([{0: (1.0, 9.0), 1: (2.0, 9.0)}]).events
    failed = events.with_columns(phase=pl.lit(FAILED), nbytes=pl.col("rank").cast(pl.Int64) * 4 + 4)
    rows = Loaded(Store.from_frame(failed)).calls().select("nbytes", "members", "completed").rows()
    assert rows == [(4, [0], False), (8, [1], False)]


def test_nothing_is_advised_where_most_of_the_time_is_unknown() -> None:
    calls = [{rank: (100.0 * n, 100.0 * n + 5) for rank in range(2)} for n in range(5)]
    result = find(spans(calls).events, {})
    assert result is not None and result.advice == "" and result.cause == "unknown"
    assert "what they did outside of calls was not recorded" in result.words


def test_an_operation_within_a_backward_pass_is_communication_and_its_late_rank_is_named() -> None:
    """A profiler records a rank's backward pass until the operation in it has ended."""
    calls, rows = [], []
    for at in range(6):
        start = 100.0 * at
        calls.append({0: (start + 20, start + 72), 1: (start + 70, start + 72)})
        for rank, begins in ((0, start), (1, start + 50)):
            times = {"start_ns": int((begins + 1) * MS), "end_ns": int((start + 73) * MS)}
            of = {"kind": "backward", "rank": rank, "lane": "compute", "name": "", "iteration": at}
            rows.append(loss_row(at, 0, 0.0) | times | of | {"seq": at})
    numbered = pl.col("op").cast(pl.Int64).alias("iteration")
    events = pl.concat([spans(calls).events.with_columns(numbered), table(rows)])
    result = find(events, {})
    assert result is not None and (result.cause, result.rank) == ("straggler", 1), result
    assert result.shares["wait"] == pytest.approx(50 / 150, abs=0.1)
