"""Charts of a pipeline and of memory: right by hand-made rows, and piece by piece."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import workbench as wb
from tests.synthetic import table
from tests.views.chart_rows import metric, row, two_ranks
from workbench.analysis import measures
from workbench.analysis.chart_cells import tokens
from workbench.analysis.curves import MEMORY, NAMES, STAGED, Curves, select
from workbench.analysis.stage_charts import EMPTY, NO_MEMORY
from workbench.analysis.stages import KEEP
from workbench.store.event_store import Store
from workbench.store.table import from_frame
from workbench.views.pages import figures
from workbench.views.pages.figures import cell

SPEC = "strategy: pipeline\nranks: 2\nmemory_limit: 10 kB\niterations: 40\n"
KIND = {"F": "forward", "I": "backward", "B": "backward", "W": "weight_grad"}
TOOK = {"F": 10, "I": 12, "B": 20, "W": 8}  # ms, on stage 0
FUSED = [["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"], ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"]]
APART = [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1F1", "1W0", "1I1", "1W1"]]
PLAN = {
    "schedule": "1f1b",
    "flush": True,
    "ranks": 2,
    "replicas": 1,
    "stages": 2,
    "microbatches": 3,
    "rank_of": [0, 1],
    "rows": FUSED,
    "pads_ms": [10, 12, 8],
    "bubble": 0.25,
    "peaks": [2, 1],
}


def passed(grid: list[list[str]], iteration: int, start: float, slower: float = 1) -> list[dict]:
    """One iteration of a grid, each action as early as it can; stage 1 takes ``slower`` times.

    A microbatch in flight holds 1000 bytes on stage 0 and 3000 on stage 1.
    """
    rows: list[dict[str, Any]] = []
    ended: dict[str, float] = {}
    free, held, at = [start] * 2, [0] * 2, [0] * 2
    while any(at[rank] < len(grid[rank]) for rank in (0, 1)):
        for rank in (0, 1):
            if at[rank] == len(grid[rank]):
                continue
            action = grid[rank][at[rank]]
            kind, number = action[1], int(action[2:])
            other = f"{1 - rank}{kind}{number}"
            waits_for = (kind == "F" and rank == 1) or (kind in "BI" and rank == 0)
            if waits_for and other not in ended:
                continue
            begin = max(free[rank], ended[other] if waits_for else start)
            end = begin + TOOK[kind] * (slower if rank else 1)
            where = {"stage": rank, "microbatch": number, "version": iteration}
            name = "input" if kind == "I" else ""
            held[rank] += (kind == "F") - (kind in "BW")
            size = held[rank] * (1000, 3000)[rank]
            rows += [
                row(rank, iteration, KIND[kind], begin, end, name=name, **where),
                metric(rank, iteration, "in flight", held[rank], end, **where),
                metric(rank, iteration, "activations", size, end, **where),
                metric(
                    rank, iteration, "posted", math.nan, end, peer=1 - rank, phase="send", **where
                ),
            ]
            ended[action] = free[rank] = end
            at[rank] += 1
    for rank in (0, 1):
        end = max(free)
        rows += [
            row(rank, iteration, "optimizer", end, end + 1, stage=rank, version=iteration + 1),
            metric(rank, iteration, "memory", 4000 + 1000 * rank + iteration, end + 1),
            metric(rank, iteration, "runqueue", 0, end + 1),
        ]
    rows += [metric(1, iteration, "loss", 2.0, max(free)), metric(1, iteration, "samples", 6, end)]
    return sorted(rows, key=lambda one: one["end_ns"])


def events(grid: list[list[str]] = FUSED, iterations: int = 3, slower: float = 1) -> pl.DataFrame:
    return table(
        [one for i in range(iterations) for one in passed(grid, i, 200 * i, slower=slower)]
    )


def store_of(rows: pl.DataFrame, plan: dict[str, Any] | None = PLAN, spec: str = SPEC) -> Store:
    metadata = {"experiment": spec, "ok": "True"}
    return Store.from_frame(rows, metadata | ({"pipeline": json.dumps(plan)} if plan else {}))


# ---- what the columns mean


def test_what_a_stage_takes_is_what_its_microbatches_took() -> None:
    one, two = select(store_of(events(slower=1.5)), "stages").to_dicts()
    assert (one["stage"], one["rank"], two["stage"], two["rank"]) == (0, 0, 1, 1)
    assert (one["forward_ms"], one["backward_ms"]) == (10, 20)
    assert (two["forward_ms"], two["backward_ms"]) == (15, 30)
    assert one["input_ms"] is None and one["weight_ms"] is None
    assert one["pad_ms"] == two["pad_ms"] == 30


def test_a_backward_in_two_pieces_has_a_time_for_each() -> None:
    one, _ = select(store_of(events(APART), None), "stages").to_dicts()
    assert (one["forward_ms"], one["input_ms"], one["weight_ms"]) == (10, 12, 8)
    assert one["backward_ms"] is None and one["pad_ms"] is None


def test_one_slow_microbatch_does_not_make_a_slow_stage() -> None:
    late = row(0, 2, "forward", 590, 990, stage=0, microbatch=9)
    rows = pl.concat([events(), table([late])], how="vertical_relaxed")
    assert select(store_of(rows), "stages")["forward_ms"].to_list() == [10, 10]


def test_why_ranks_idle_is_a_whole_with_what_they_compute() -> None:
    """K = 2, M = 3, F + B = 30 ms: three microbatches in 120 ms, so a quarter is warm-up."""
    columns = select(store_of(events()), "bubble")
    assert columns["rank"].to_list() == [0, 1]
    assert columns["busy"].to_list() == pytest.approx([0.75, 0.75])
    assert columns["warm_up"].to_list() == pytest.approx([0.25, 0.25])
    assert columns["planned"].to_list() == pytest.approx([0.25, 0.25])
    slow = select(store_of(events(slower=2)), "bubble")
    parts = slow.drop("rank", "planned")
    assert parts.sum_horizontal().to_list() == pytest.approx([1, 1])
    assert slow["busy"].to_list() == pytest.approx([90 / 210, 180 / 210])
    assert slow["imbalance"][0] == pytest.approx(90 / 210)
    assert slow["planned"][0] == pytest.approx(0.25)
    assert select(store_of(events(), None), "bubble").height == 0, "nothing is known of the plan"


def test_without_flush_idle_time_is_not_told_apart() -> None:
    """Iterations run into each other: from 10 ms on both ranks are at work, until 90."""
    plan = PLAN | {"flush": False, "rows": [], "bubble": 0.0, "schedule": "pipedream"}
    rows = [
        row(
            rank,
            m,
            "forward",
            20 * m + 10 * rank,
            20 * m + 10 + 15 * rank,
            stage=rank,
            microbatch=0,
        )
        for rank in (0, 1)
        for m in range(5)
    ]
    columns = select(store_of(table(rows), plan), "bubble")
    assert columns["busy"].to_list() == pytest.approx([0.5, 0.75])
    assert columns["idle"].to_list() == pytest.approx([0.5, 0.25]) and columns["planned"][0] == 0
    words = figures.figure(store_of(table(rows), plan), "bubble").layout.annotations[0].text
    assert "idle 37.5%" in words and "imbalance" not in words


def test_activations_are_those_held_and_the_most_is_the_schedules() -> None:
    columns = select(store_of(events()), "activations")
    held = columns.filter(what="bytes", rank=0, iteration=2)
    assert held["value"].to_list() == [1000, 2000, 1000, 2000, 1000, 0]
    assert held["seconds"].to_list() == pytest.approx([0.41, 0.42, 0.46, 0.47, 0.49, 0.52])
    assert held["most"].unique().to_list() == [2000]
    assert columns.filter(what="in flight", stage=1)["value"].max() == 1
    assert columns.filter(what="in flight", stage=0)["most"].unique().to_list() == [2]
    assert sorted(columns["iteration"].unique()) == [1, 2]


def test_a_rank_that_holds_more_than_its_schedule_is_above_the_line() -> None:
    plan = PLAN | {"peaks": [1, 1]}
    columns = select(store_of(events(), plan), "activations").filter(what="bytes")
    by_rank = (
        columns.group_by("rank").agg(pl.col("value").max(), pl.col("most").first()).sort("rank")
    )
    assert by_rank.rows() == [(0, 2000, 1000), (1, 3000, 3000)]


def test_activations_of_an_iteration_under_way_wait_until_it_is_done() -> None:
    rows = events()
    cut = rows.filter((pl.col("iteration") < 2) | (pl.col("microbatch") == 0))
    assert sorted(select(store_of(cut), "activations")["iteration"].unique()) == [0, 1]


def test_other_replicas_are_left_out() -> None:
    second = events().with_columns(rank=pl.col("rank") + 2)
    both = pl.concat([events(), second])
    assert_frame_equal(
        select(store_of(both), "activations"), select(store_of(events()), "activations")
    )


def test_memory_is_the_most_so_far_whatever_the_strategy() -> None:
    columns = select(store_of(events()), "memory")
    assert columns.rows() == [(0, 4002, 10_000), (1, 5002, 10_000)]
    held = [metric(rank, i, "memory", 100 + rank, i) for i in range(2) for rank in (0, 1)]
    store = Store.from_frame(pl.concat([two_ranks(), table(held)], how="vertical_relaxed"))
    assert select(store, "memory").rows() == [(0, 100, None), (1, 101, None)]
    curves = Curves(store)
    curves.update()
    assert curves.offered == (*NAMES, MEMORY)


@pytest.mark.full
@pytest.mark.parametrize("known_at_once", [True, False])
def test_piece_by_piece_gives_the_same_as_at_once(known_at_once: bool) -> None:
    """As batches, from the store, and where a pipeline is noticed by its rows alone."""
    spec = SPEC if known_at_once else SPEC.replace("pipeline", "own")
    rows = events(iterations=KEEP + 4)
    store = Store({"experiment": spec, "pipeline": json.dumps(PLAN)})
    curves = Curves(store)
    for at in range(0, rows.height, 23):
        for batch in from_frame(rows.slice(at, 23), store.number):
            store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
        if at % 2:
            curves.update()
        if at % 3 == 2:
            curves.rest()
    store.metadata["ok"] = "True"
    curves.update()
    assert set(curves.offered) == {*NAMES, *STAGED, MEMORY} - {"communication"}
    for name in (*STAGED, MEMORY):
        at_once = select(store_of(rows, spec=spec), name)
        order = at_once.columns
        assert_frame_equal(curves.select(name).sort(order), at_once.sort(order))


def test_only_the_newest_iterations_are_kept() -> None:
    slow = [one for i in range(KEEP) for one in passed(FUSED, i, 400 * i, slower=4)]
    fast = [one for i in range(KEEP) for one in passed(FUSED, KEEP + i, 400 * (KEEP + i))]
    columns = select(store_of(table(slow + fast)), "stages")
    assert columns["forward_ms"].to_list() == [10, 10]


# ---- figures


def test_charts_of_a_pipeline_are_offered_for_one_only() -> None:
    curves = Curves(Store.from_frame(two_ranks()))
    curves.update()
    assert curves.offered == NAMES
    waits = Curves(Store({"experiment": SPEC}))  # before its first row
    assert set(STAGED) <= set(waits.offered) and MEMORY not in waits.offered


@pytest.mark.parametrize("name", [*STAGED, MEMORY])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_empty_chart_has_its_axes_and_says_what_will_come(name: str, theme: str) -> None:
    figure = figures.figure(Store(), name, theme)
    caption = NO_MEMORY if name == MEMORY else EMPTY
    assert caption in figure.layout.annotations[0].text
    assert figure.layout.xaxis.title.text and figure.layout.yaxis.title.text
    assert sum(len(trace.x) for trace in figure.data) == 0


def test_reasons_are_open_bars_and_the_plan_a_line_across() -> None:
    chart = figures.figure(store_of(events(slower=2)), "bubble")
    bars = {bar.name: bar.marker for bar in chart.data if bar.type == "bar"}
    assert all(bar.color != tokens("light")["comm"] for bar in bars.values()), "none moves bytes"
    looks = {(bar.color, bar.pattern.shape) for bar in bars.values()}
    assert len(looks) == len(bars) and {bar.pattern.bgcolor for bar in bars.values()} == {"#ffffff"}
    by_name = {trace.name: trace for trace in chart.data}
    assert list(by_name["imbalance"].x) == ["0", "1", "all"]
    shape = by_name["warm-up and drain"].marker.pattern.shape
    assert shape == "/" and not any(y > 0 for y in by_name["fault"].y)
    assert by_name["imbalance"].y[1] == 0, "a bar of nothing, or what is above it falls down"
    assert list(by_name["the schedule alone"].y) == pytest.approx([0.25] * 3)
    words = chart.layout.annotations[0].text
    assert "idle 35.7%, plan" in words and "25.0%" in words and "fault" not in words


def test_a_stages_bar_is_what_a_microbatch_takes_and_the_slowest_is_named() -> None:
    chart = figures.figure(store_of(events(slower=2)), "stages")
    forward, back, _, pad = chart.data
    assert list(forward.y) == [10, 20] and list(back.y) == [20, 40] and list(pad.y) == [30, 30]
    assert "slowest: stage 1, 60.0 ms, 1.33× the mean" in chart.layout.annotations[0].text
    apart = figures.figure(store_of(events(APART), None), "stages")
    assert [trace.name for trace in apart.data][1:3] == ["input gradient", "weight gradient"]
    assert [sum(t.y[0] for t in apart.data[:3])] == [30]
    assert not any(math.isfinite(y) for y in apart.data[3].y), "nothing was padded"
    assert "all alike, 30.0 ms" in apart.layout.annotations[0].text


def test_activations_are_drawn_in_steps_below_the_schedules_most() -> None:
    chart = figures.figure(store_of(events()), "activations")
    held = {trace.name: trace for trace in chart.data if trace.name}
    assert set(held) == {"rank 0", "rank 1"} and held["rank 0"].line.shape == "hv"
    tops = [trace for trace in chart.data if not trace.name]
    assert [trace.y[0] for trace in tops] == [2000, 3000]
    assert all(trace.line.dash == "dot" for trace in tops)
    words = chart.layout.annotations[0].text
    assert "2/2" in words and "1/1" in words and "3 kB" in words


def test_memory_is_told_against_its_limit() -> None:
    chart = figures.figure(store_of(events()), "memory")
    bars, limit = chart.data
    assert list(bars.y) == [4002, 5002] and list(limit.y) == [10_000] * 2
    assert "most 5.002 kB on rank 1, 50%" in chart.layout.annotations[0].text
    free = figures.figure(store_of(events(), spec="strategy: pipeline\n"), "memory")
    assert len(free.data[1].x) == 0 and "limit" not in free.layout.annotations[0].text


def test_a_cell_of_no_rows_is_empty_whatever_the_chart() -> None:
    for name in (*STAGED, MEMORY):
        assert cell(name, select(Store(), name)).empty


# ---- real runs


@pytest.fixture(scope="module")
def run() -> wb.Run:
    """Three stages of a small transformer, the second of them slow."""
    training_run = wb.run(
        wb.Experiment(
            strategy="pipeline",
            task="char_transformer",
            task_options={"width": 16},
            ranks=3,
            iterations=4,
            batch_size=8,
            pad_compute="10 ms",
            faults=(wb.Slow(rank=1, factor=3),),
            options={"microbatches": 4},
            memory_limit="50 MB",
        )
    )
    training_run.wait(120)
    return training_run


def test_a_real_runs_columns_agree_with_its_rows(run: wb.Run) -> None:
    curves = Curves(run.store)
    curves.update()
    times = curves.select("stages")
    trained = run.store.events.filter(pl.col("microbatch") >= 0)
    for kind, pads in (("forward", [10, 30, 10]), ("backward", [20, 60, 20])):
        spans = trained.filter(pl.col("kind").cast(pl.String) == kind)
        by_rank = spans.group_by("rank").agg(ms=(pl.col("end_ns") - pl.col("start_ns")).median())
        medians = (by_rank.sort("rank")["ms"] / 1e6).to_list()
        assert times[f"{kind}_ms"].to_list() == pytest.approx(medians)
        assert all(ms >= pad for ms, pad in zip(medians, pads, strict=True)), "busy cores add to it"
    idle = curves.select("bubble")
    assert idle.drop("rank", "planned").sum_horizontal().to_list() == pytest.approx([1] * 3)
    assert idle["planned"][0] == pytest.approx(2 / 6), "(K-1) / (M+K-1)"
    assert idle["imbalance"][0] > max(0.1, idle["imbalance"][1]), "stage 1 is the slowest"
    held = curves.select("activations")
    counts = held.filter(what="in flight").group_by("stage").agg(pl.col("value").max())
    assert counts.sort("stage")["value"].to_list() == [3, 2, 1]
    recorded_bytes = run.metrics("activations")["value"]
    assert held.filter(what="bytes")["value"].max() == recorded_bytes.max() > 0
    most = curves.select("memory")
    assert most["rank"].to_list() == [0, 1, 2] and (most["nbytes"] < most["limit"]).all()
    assert curves.select("loss").height == 4 == curves.select("throughput").height


def test_its_figures_and_its_numbers(run: wb.Run, tmp_path: Any) -> None:
    run.store.save(tmp_path / "run.parquet")
    saved = wb.load(tmp_path / "run.parquet")
    for name in (*STAGED, MEMORY):
        figure = run.figure(name)
        assert EMPTY not in figure.layout.annotations[0].text
        assert any(math.isfinite(y) for trace in figure.data for y in trace.y)
        assert saved.figure(name).to_json() == figure.to_json()
    curves = Curves(run.store)
    curves.update()
    numbers = measures.of(run, curves)
    assert numbers["algorithm"] == "1f1b" and numbers["in_flight"] == 3
    assert numbers["bubble_planned"] == pytest.approx(1 / 3) and numbers["bubble"] > 0.35
    assert numbers["memory"] > numbers["activations"] > 0 and numbers["exposed_ms"] is None
    assert (
        "of which by the schedule alone" in measures.beside({"a": [numbers]}).to_series().to_list()
    )
