"""The measured bubble and its reasons, on tables whose reasons are known: planned ones, with a slow
stage, with messages that take time, with a rank that stood still.
"""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.pipelines import bubble
from workbench.training.pipelines.rows import actions
from workbench.training.pipelines.schedule import Action, Schedule, build
from workbench.training.pipelines.theory import Times, follow, makespan_s, plan
from workbench.training.pipelines.theory import bubble as planned_bubble

TEN = Times(0.01, 0.01, 0.01)
SLOW = [0.01, 0.01, 0.013, 0.01]


def total(measurement: bubble.Bubble, part: str) -> float:
    """Seconds of a part over all ranks."""
    return measurement.parts[f"{part}_ns"].sum() * 1e-9


@pytest.mark.parametrize("name", ["sequential", "gpipe", "1f1b", "zb_h1", "zb_h2", "pipedream"])
def test_a_run_as_planned_has_the_schedule_s_price_only(name: str) -> None:
    schedule = build(name, ranks=4, microbatches=8)
    measurement = bubble.measure(plan(schedule, TEN), schedule)
    assert measurement.measured == pytest.approx(planned_bubble(schedule), abs=1e-7)
    assert measurement.predicted == pytest.approx(measurement.measured, abs=1e-7)
    assert (
        measurement.makespan_s == pytest.approx(makespan_s(schedule, TEN)) == measurement.planned_s
    )
    assert [total(measurement, part) for part in ("imbalance", "communication", "fault")] == [
        0,
        0,
        0,
    ]


def test_a_slow_stage_is_imbalance() -> None:
    schedule = build("1f1b", ranks=4, microbatches=8)
    measurement = bubble.measure(
        plan(schedule, Times(SLOW, SLOW, SLOW)), schedule, pads_ns=[1e7] * 3
    )
    assert measurement.predicted == pytest.approx(3 / 11)
    assert measurement.explained == pytest.approx(measurement.measured, abs=1e-6)
    assert total(measurement, "communication") < 1e-6 and total(measurement, "imbalance") > 0.1
    shares = measurement.by_rank()
    assert shares["imbalance"][2] == 0 and shares["imbalance"].arg_min() == 2


def test_messages_are_communication_on_every_rank_that_they_delay() -> None:
    schedule = build("1f1b", ranks=4, microbatches=8)
    measurement = bubble.measure(plan(schedule, Times(0.01, 0.01, 0.01, hop=0.0025)), schedule)
    assert total(measurement, "imbalance") == total(measurement, "fault") == 0
    late = measurement.makespan_s - measurement.planned_s
    assert (
        late > 0.01 and measurement.parts["communication_ns"].to_list() == [round(late * 1e9)] * 4
    )


def stretched(schedule: Schedule, longer: Action, seconds: float) -> pl.DataFrame:
    """A run as planned but for one action that lasts longer, and whatever that delays."""
    known = {
        str(one.action): one
        for one in follow(schedule, lambda one: TEN.of(one) + seconds * (one == longer))
    }
    table = plan(schedule, TEN).filter(pl.col("lane") == "compute")
    names = actions(table, schedule).select("action", "start_ns", "rank")
    moved = table.join(names, on=["rank", "start_ns"])
    times = {
        name: moved["action"].replace_strict(
            {action: round(getattr(one, of) * 1e9) for action, one in known.items()},
            return_dtype=pl.Int64,
        )
        for name, of in (("start_ns", "start_s"), ("end_ns", "end_s"))
    }
    return moved.with_columns(**times).drop("action")


@pytest.mark.parametrize("stood", [0, 3])
def test_a_rank_that_stood_still_is_a_fault_for_all(stood: int) -> None:
    """50 ms in the midst of an action: its rank is busy then, the others wait for it."""
    schedule = build("1f1b", ranks=4, microbatches=8)
    late = stretched(schedule, Action(stood, "B", 2), 0.05)
    began = late.filter(
        pl.col("kind") == "backward", pl.col("stage") == stood, pl.col("microbatch") == 2
    )["start_ns"].item()
    mark = {
        "kind": "fault",
        "name": "freeze",
        "start_ns": began,
        "end_ns": began,
        "value": 0.05,
        "rank": stood,
        "microbatch": -1,
    }
    fault = late.head(1).with_columns(
        pl.lit(value).cast(late.schema[name]).alias(name) for name, value in mark.items()
    )
    measurement = bubble.measure(pl.concat([late, fault]), schedule, pads_ns=[1e7] * 3)
    without = bubble.measure(late, schedule, pads_ns=[1e7] * 3)
    assert total(without, "fault") == 0 and total(without, "imbalance") > 0.1
    assert total(measurement, "fault") == pytest.approx(total(without, "imbalance"))
    assert measurement.by_rank()["fault"][stood] == 0
    assert total(measurement, "imbalance") == total(measurement, "communication") == 0


@given(
    st.sampled_from(["1f1b", "gpipe", "zb_h1", "zb_h2", "sequential", "interleaved_1f1b", "zbv"]),
    st.sampled_from([2, 4]),
    st.integers(1, 3),
    st.lists(st.tuples(*[st.floats(0.001, 0.1)] * 3), min_size=8, max_size=8),
    st.floats(0, 0.02),
)
def test_the_parts_are_the_whole_to_the_nanosecond(
    name: str, ranks: int, groups: int, lengths: list[tuple[float, ...]], hop: float
) -> None:
    chunks = 2 if name in ("interleaved_1f1b", "zbv") else 1
    schedule = build(name, ranks=ranks, microbatches=groups * ranks, stages_per_rank=chunks)
    times = Times(*([one[n] for one in lengths] for n in range(3)), hop)
    measurement = bubble.measure(plan(schedule, times), schedule)
    parts = measurement.parts
    assert parts.height == ranks
    assert (
        parts.select(pl.sum_horizontal(bubble.PARTS))
        .to_series()
        .equals(parts["whole_ns"], check_names=False)
    )
    assert parts.select(pl.min_horizontal(bubble.PARTS)).to_series().min() >= 0
    assert measurement.measured == pytest.approx(planned_bubble(schedule, times), abs=1e-6)


def test_iterations_and_replicas_are_told_apart() -> None:
    schedule = build("1f1b", ranks=2, microbatches=4)
    again = pl.concat(
        [
            plan(schedule, TEN, iteration=n, start_ns=n * 10**9).with_columns(
                pl.col("rank") + 2 * replica
            )
            for n in range(3)
            for replica in range(2)
        ]
    )
    cut = again.filter(~((pl.col("iteration") == 2) & (pl.col("kind") == "backward")))
    measurement = bubble.measure(cut, schedule)  # the third is under way
    assert measurement.parts.select("iteration", "replica", "rank").rows() == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 2),
        (0, 1, 3),
        (1, 0, 0),
        (1, 0, 1),
        (1, 1, 2),
        (1, 1, 3),
    ]
    newest = bubble.measure(again, schedule, last=1)
    assert set(newest.parts["iteration"]) == {2} and newest.parts.height == 4


def test_what_a_header_tells_of_the_schedule_is_enough() -> None:
    schedule = build("zb_h1", ranks=2, microbatches=4)
    facts = {
        "schedule": schedule.name,
        "flush": True,
        "stages": 2,
        "microbatches": 4,
        "pads_ms": [10] * 3,
        "rows": [[str(one) for one in row] for row in schedule.rows],
    }
    assert Schedule.from_facts(facts) == schedule
    shares = bubble.shares(plan(schedule, TEN), facts)
    assert shares.columns == [
        "rank",
        "busy",
        "warm_up",
        "imbalance",
        "communication",
        "fault",
        "planned",
    ]
    assert shares["planned"].to_list() == pytest.approx([1 / 13] * 2)
    nothing = bubble.shares(plan(schedule, TEN), {**facts, "rows": []})
    assert nothing.columns == shares.columns and nothing.height == 0
    assert bubble.shares(plan(schedule, TEN).head(0), facts).height == 0
