"""The papers' formulas against the schedules themselves, followed action by action."""

from __future__ import annotations

from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.store.table import SCHEMA
from workbench.training.pipelines.formulas import FORMULAS
from workbench.training.pipelines.schedule import build
from workbench.training.pipelines.theory import (
    Case,
    Times,
    bubble,
    bubble_formula,
    idle_formula,
    makespan_s,
    peak_bytes,
    peak_formula,
    plan,
    span_idle_formula,
    span_idle_s,
    timeline,
)

CHUNKS = {"interleaved_1f1b": 3, "looped_bfs": 2, "interleaved_zero_bubble": 2}
CHUNKS |= {"zbv": 2, "dualpipe_v": 2}
WHOLE_GROUPS = ("interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble")
# F, I, W: alike; as a transformer has them; a weight gradient that costs half; one that costs more
LENGTHS = ((1.0, 1.0, 1.0), (10.0, 12.0, 8.0), (10.0, 20.0, 10.0), (2.0, 2.0, 1.0), (1, 2, 3))


@given(
    st.sampled_from(sorted(FORMULAS)),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 32),
    st.sampled_from(LENGTHS),
)
def test_formulas_are_what_the_schedules_do(
    name: str, ranks: int, microbatches: int, lengths: tuple[float, float, float]
) -> None:
    chunks = CHUNKS.get(name, 1)
    if name in WHOLE_GROUPS:
        microbatches = max(1, microbatches // ranks) * ranks
    if name == "dualpipe_v":
        microbatches = max(microbatches, 2 * ranks)
    case, times = Case(ranks, microbatches, chunks, *lengths), Times(*lengths)
    schedule = build(name, ranks=ranks, microbatches=microbatches, stages_per_rank=chunks)
    if (peaks := peak_formula(name, case)) is not None:
        assert schedule.rank_peaks == peaks
    if (share := bubble_formula(name, case)) is not None:
        idle, span = idle_formula(name, case), span_idle_formula(name, case)
        assert idle is not None and span is not None
        assert bubble(schedule, times) == pytest.approx(share, abs=1e-9)
        assert makespan_s(schedule, times) == pytest.approx(case.busy + idle, rel=1e-9)
        assert span_idle_s(schedule, times)[0] == pytest.approx(span, abs=1e-6)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_formula_of_dualpipe_v_holds_exactly_where_it_says(ranks: int) -> None:
    schedule = build("dualpipe_v", ranks=ranks, microbatches=2 * ranks, stages_per_rank=2)
    for lengths in product((4, 8, 10), (4, 8, 10, 12, 20), (2, 4, 8)):
        f, i, w = lengths
        case = Case(ranks, 2 * ranks, 2, f, i, w)
        idle = makespan_s(schedule, Times(*lengths)) - case.busy
        if w <= min(f, i):
            holds = idle == pytest.approx((ranks - 1) * (f + i - w))
            assert (idle_formula("dualpipe_v", case) is not None) == holds, lengths


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_every_formula_holds_somewhere(name: str) -> None:
    assert bubble_formula(name, Case(4, 16, CHUNKS.get(name, 1))) is not None


def test_the_numbers_that_the_papers_print() -> None:
    """K=4, M=16, F=I=W=1: 57 for 1F1B, 51 for both ZB; 27.3 % for M=8; interleaving halves it."""
    sizes = {"ranks": 4, "microbatches": 16}
    assert makespan_s(build("1f1b", **sizes)) == 57
    assert makespan_s(build("zb_h1", **sizes)) == makespan_s(build("zb_h2", **sizes)) == 51
    assert max(span_idle_s(build("zb_h2", **sizes))) == 0
    assert bubble(build("gpipe", ranks=4, microbatches=8)) == pytest.approx(3 / 11)
    assert bubble(build("sequential", ranks=4, microbatches=8)) == pytest.approx(3 / 4)
    thin = build("interleaved_1f1b", ranks=4, microbatches=8, stages_per_rank=2)
    assert makespan_s(thin) / (3 * 2 * 8) - 1 == pytest.approx(3 / 16)


@given(
    st.sampled_from(["1f1b", "gpipe", "zb_h1", "zb_h2", "sequential"]),
    st.sampled_from([2, 3, 4]),
    st.integers(1, 12),
    st.lists(st.tuples(*[st.floats(0.01, 1)] * 3), min_size=4, max_size=4),
    st.floats(0, 0.2),
)
def test_a_timeline_is_possible_and_no_rank_dawdles(
    name: str, ranks: int, microbatches: int, lengths: list[tuple[float, ...]], hop: float
) -> None:
    """Of any stage times: no rank does two things at once, nothing begins before what it needs is
    there, and everything begins at a moment at which something it waited for ended.
    """
    times = Times(*([one[n] for one in lengths] for n in range(3)), hop)
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    planned = timeline(schedule, times)
    free = [0.0] * ranks
    ends = {one.action: one for one in planned}
    for one in planned:
        stage, kind, m = one.action
        before = [
            ends[other].end_s + (hop if ends[other].rank != one.rank else 0)
            for other in (
                (stage - 1, "F", m) if kind == "F" else (stage, "F", m),
                (stage + 1, "B", m),
                (stage + 1, "I", m),
                (stage, "I", m),
            )
            if other in ends
            and (kind != "F" or other[1] == "F")
            and (kind == "W" or other != (stage, "I", m))
            and (kind != "W" or other[0] == stage)
        ]
        assert one.start_s == pytest.approx(max([free[one.rank], *before]))
        assert one.end_s - one.start_s == pytest.approx(times.of(one.action))
        free[one.rank] = one.end_s
    least = max(sum(lengths[stage]) * microbatches for stage in range(ranks))
    assert makespan_s(schedule, times) >= least - 1e-9


def test_planned_events_are_a_run_s_table() -> None:
    schedule = build("1f1b", ranks=2, microbatches=3)
    frame = plan(schedule, Times(0.01, 0.01, 0.01, 0.002), nbytes=100, start_ns=7, iteration=5)
    assert frame.schema == SCHEMA and frame.null_count().sum_horizontal().item() == 0
    assert frame["start_ns"].min() == 7 and set(frame["iteration"]) == {5}
    sends = frame.filter(pl.col("kind") == "send")
    assert sends["nbytes"].sum() == 2 * 3 * 100
    assert (sends["end_ns"] - sends["start_ns"]).unique().to_list() == [2_000_000]
    last = frame.filter(pl.col("kind") == "backward")["end_ns"].max()
    assert last == 7 + round(makespan_s(schedule, Times(0.01, 0.01, 0.01, 0.002)) * 1e9)


def test_planned_events_without_flush_are_numbered_by_iteration() -> None:
    schedule = build("pipedream", ranks=2, microbatches=2, iterations=3)
    frame = plan(schedule, microbatches=2).filter(pl.col("kind") == "forward", pl.col("rank") == 0)
    assert frame.select("iteration", "microbatch").rows() == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


def test_peak_bytes_weigh_each_stage() -> None:
    schedule = build("1f1b", ranks=3, microbatches=8)
    assert peak_bytes(schedule, [10, 10, 10]) == (30, 20, 10)
    assert peak_bytes(schedule, [1, 2, 4], [100, 0, 7]) == (103, 4, 11)
    folded = build("zbv", ranks=2, microbatches=8, stages_per_rank=2)
    assert peak_bytes(folded, [1, 1, 1, 1]) == folded.rank_peaks
