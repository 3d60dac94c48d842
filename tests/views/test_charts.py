"""Curves and charts of a run: right by hand-made rows, by brute force, and by real runs."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import workbench as wb
from tests.conftest import remains
from tests.synthetic import table, training
from workbench.store import Store
from workbench.table import from_frame
from workbench.views import charts
from workbench.views.cells import CHARTS, FIRST_SCALE, cell, scale, tokens
from workbench.views.curves import NAMES, Curves, select
from workbench.views.live import Charts
from workbench.views.points import EMPTY_WORDS, MOST_POINTS, thinned, traces
from workbench.views.rate import Rate

MS = 1_000_000
START = 10**12
BLANK = {
    "lane": "compute", "generation": 0, "collective": "", "algorithm": "", "phase": "",
    "group": "", "op": -1, "peer": -1, "step": -1, "chunk": -1, "slot": -1, "nbytes": -1,
    "microbatch": -1, "stage": -1, "version": -1, "value": math.nan, "name": "",
}  # fmt: skip


def row(rank: int, iteration: int, kind: str, start: float, end: float, **more: Any) -> dict:
    """A row of a rank; times in ms from the start of the table."""
    times = {"start_ns": START + round(start * MS), "end_ns": START + round(end * MS)}
    return {**BLANK, "rank": rank, "iteration": iteration, "kind": kind, "seq": 0, **times, **more}


def metric(rank: int, iteration: int, name: str, value: float, at: float, **more: Any) -> dict:
    return row(rank, iteration, "metric", at, at, name=name, value=value, **more)


def iteration_of(rank: int, i: int, at: float, loss: float, samples: int) -> list[dict]:
    """load 1 ms, forward 2, backward 4, three of communication, optimizer 1."""
    return [
        row(rank, i, "load", at, at + 1),
        row(rank, i, "forward", at + 1, at + 3),
        row(rank, i, "backward", at + 3, at + 7),
        row(rank, i, "collective", at + 6, at + 10, lane="comm"),
        row(rank, i, "optimizer", at + 10, at + 11),
        metric(rank, i, "loss", loss, at + 11),
        metric(rank, i, "samples", samples, at + 11),
        metric(rank, i, "runqueue", 0, at + 11),
    ]


def two_ranks(iterations: int = 5) -> pl.DataFrame:
    rows = [
        one
        for i in range(iterations)
        for rank in (0, 1)
        for one in iteration_of(rank, i, 20 * i + rank, 2.0 - i / 10 + rank, 10 + 20 * rank)
    ]
    return table(rows)


# ---- what the columns mean


def test_loss_is_the_mean_over_samples() -> None:
    columns = select(Store.from_frame(two_ranks()), "loss")
    assert columns["iteration"].to_list() == [0, 1, 2, 3, 4]
    expected = [(10 * (2 - i / 10) + 30 * (3 - i / 10)) / 40 for i in range(5)]
    assert columns["loss"].to_list() == pytest.approx(expected)
    assert columns["seconds"].to_list() == pytest.approx([0.012 + 0.02 * i for i in range(5)])


def test_exposed_communication_is_what_no_computing_hides() -> None:
    columns = select(Store.from_frame(two_ranks()), "communication")
    assert columns["step_ms"].to_list() == pytest.approx([11.0] * 5)
    assert columns["compute_ms"].to_list() == pytest.approx([8.0] * 5)
    assert columns["exposed_ms"].to_list() == pytest.approx([3.0] * 5)


def test_computing_on_two_lanes_at_once_counts_once() -> None:
    rows = [
        row(0, 0, "forward", 0, 6),
        row(0, 0, "backward", 1, 2, lane="side"),
        row(0, 0, "load", 3, 6, lane="other"),
        row(0, 0, "optimizer", 9, 10),
    ]
    columns = select(Store.from_frame(table(rows)), "communication")
    assert columns.row(0, named=True)["compute_ms"] == pytest.approx(7.0)
    assert columns.row(0, named=True)["exposed_ms"] == pytest.approx(3.0)


def test_throughput_counts_samples_from_end_to_end() -> None:
    columns = select(Store.from_frame(two_ranks()), "throughput")
    assert columns["took_s"].to_list() == pytest.approx([0.012, 0.02, 0.02, 0.02, 0.02])
    assert columns["samples_per_s"].to_list()[1:] == pytest.approx([2000.0] * 4)
    assert columns["iterations_per_s"].to_list()[1:] == pytest.approx([50.0] * 4)


def test_accuracy_is_of_the_minibatch_on_the_way_and_of_validation_at_the_end() -> None:
    parts = [iteration_of(rank, i, 20 * i, 1, 10 + 20 * rank) for rank in (0, 1) for i in range(3)]
    rows = [one for part in parts for one in part]
    for rank, value in ((0, 0.5), (1, 0.9)):
        rows.append(metric(rank, 0, "accuracy", value, 5, phase="minibatch"))
    rows.append(metric(0, -1, "accuracy", 0.75, 70, phase="validation"))
    rows.append(metric(0, 1, "bucket full", 3, 25))  # nobody's metric
    columns = select(Store.from_frame(table(rows)), "accuracy")
    assert columns.select("iteration", "metric", "split").rows() == [
        (0, "accuracy", "minibatch"),
        (2, "accuracy", "validation"),
    ]
    assert columns["value"].to_list() == pytest.approx([(10 * 0.5 + 30 * 0.9) / 40, 0.75])


def test_every_event_is_counted_and_the_cost_of_one_shows() -> None:
    events = two_ranks(50)
    rate = select(Store.from_frame(events), "overhead", record_ns=1000.0)
    spans = np.diff(np.concatenate([[0.0], rate["seconds"].to_numpy()]))
    assert rate["record_ns"].to_list() == [1000.0] * rate.height
    assert rate["events_per_s"].mean() == pytest.approx(800, rel=0.1)  # 16 rows in 20 ms
    assert (spans > 0).all()
    dearer = select(Store.from_frame(events), "overhead", record_ns=3000.0)
    assert dearer["share"].to_list() == pytest.approx([3 * one for one in rate["share"]])
    assert select(Store.from_frame(events), "overhead")["share"].null_count() == rate.height


def test_the_cost_of_a_record_is_that_of_its_moment() -> None:
    rate = Rate()
    for tenth, cost in ((0, 500.0), (1, 500.0), (2, 2500.0), (3, 2500.0)):
        rate.count(np.array([START + tenth * 100 * MS, START + tenth * 100 * MS + 99 * MS]))
        rate.costs(cost)
    assert rate.table(over=True)["record_ns"].to_list() == [500.0, 500.0, 2500.0, 2500.0]


def test_an_iteration_shows_once_every_rank_is_through_with_it() -> None:
    rows = [one for i in range(10) for one in iteration_of(0, i, 20 * i, 1, 8)]
    rows += [one for i in range(6) for one in iteration_of(1, i, 20 * i, 1, 8)]
    store = Store.from_frame(table(rows), {"experiment": "iterations: 100\n"})  # it goes on
    assert select(store, "loss")["iteration"].to_list() == [0, 1, 2, 3]
    store.metadata["ok"] = "False"  # rank 1 was lost in iteration 6
    assert select(store, "loss")["iteration"].to_list() == [0, 1, 2, 3, 4, 5]


def test_there_are_no_other_curves() -> None:
    with pytest.raises(ValueError, match="no curve 'los'; there are loss, accuracy, throughput"):
        Curves(Store()).select("los")


# ---- by brute force, and piece by piece


def brute_force(events: pl.DataFrame) -> dict[int, tuple[float, float, float]]:
    """iteration -> (loss, step ms, exposed ms), by a dumb loop over a timeline of microseconds."""
    spans: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    told: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for one in events.iter_rows(named=True):
        key = one["iteration"], one["rank"]
        if one["kind"] == "metric":
            told[key][one["name"]] = one["value"]
        else:
            spans[key].append((one["start_ns"], one["end_ns"], one["kind"]))
    found = {}
    for iteration in {i for i, _ in spans}:
        ranks = sorted(rank for i, rank in spans if i == iteration)
        steps, exposed, losses, samples = 0.0, 0.0, 0.0, 0.0
        for rank in ranks:
            own = spans[iteration, rank]
            first, last = min(s for s, _, _ in own), max(e for _, e, _ in own)
            computes = [(s, e) for s, e, kind in own if kind != "collective"]
            busy = sum(
                any(s <= t < e for s, e in computes) for t in range(first, last, MS // 10)
            ) * (MS // 10)  # fmt: skip
            steps += last - first
            exposed += last - first - busy
            losses += told[iteration, rank]["loss"] * told[iteration, rank]["samples"]
            samples += told[iteration, rank]["samples"]
        found[iteration] = (losses / samples, steps / len(ranks) / MS, exposed / len(ranks) / MS)
    return found


def random_run(seed: int, ranks: int = 3, iterations: int = 12) -> list[dict]:
    """Rows as ranks write them, each at its own pace, on a grid of 0.1 ms."""
    chance = random.Random(seed)
    rows = []
    for rank in range(ranks):
        at = chance.randint(0, 20) / 10
        for i in range(iterations):
            for kind in ("load", "forward", "backward", "collective", "optimizer"):
                took = chance.randint(1, 30) / 10
                begin = at - (chance.randint(0, 9) / 10 if kind == "collective" else 0)
                lane = "comm" if kind == "collective" else "compute"
                rows.append(row(rank, i, kind, begin, at + took, lane=lane))
                at += took + chance.randint(0, 5) / 10
            values = {"loss": chance.uniform(0, 3), "samples": chance.randint(1, 9), "runqueue": 0}
            rows += [metric(rank, i, name, value, at) for name, value in values.items()]
    return sorted(rows, key=lambda one: one["end_ns"])


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_those_of_brute_force(seed: int) -> None:
    events = table(random_run(seed))
    expected = brute_force(events)
    store = Store.from_frame(events)
    loss, communication = select(store, "loss"), select(store, "communication")
    for i, (mean, step, exposed) in expected.items():
        assert loss["loss"][i] == pytest.approx(mean)
        assert communication["step_ms"][i] == pytest.approx(step)
        assert communication["exposed_ms"][i] == pytest.approx(exposed)


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.lists(st.integers(0, 150), max_size=12))
def test_piece_by_piece_gives_the_same_as_at_once(seed: int, sizes: list[int]) -> None:
    """However the rows come, through the tap or from the store; and nothing shown changes later."""
    events = table(random_run(seed))
    store = Store({"experiment": "iterations: 12\n"})
    curves, shown = Curves(store), dict[int, float]()
    at = 0
    for number, size in enumerate(sizes):
        for batch in from_frame(events.slice(at, size), store.number):
            store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
        at += size
        curves.update()
        if number % 3 == 2:
            curves.rest()
        told = curves.select("loss")
        now = dict(zip(told["iteration"], told["loss"], strict=True))
        assert {i: now[i] for i in shown} == shown
        shown = now
    for batch in from_frame(events.slice(at), store.number):
        store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
    store.metadata["ok"] = "True"
    curves.update()
    for name in NAMES:
        assert_frame_equal(curves.select(name), select(Store.from_frame(events), name))


def test_an_update_costs_what_is_new() -> None:
    """Over a store of 300,000 events, 5,000 more: a small part of what reading all takes."""
    events = training(3000)
    store = Store({"experiment": "iterations: 4000\n"})
    for batch in from_frame(events, store.number):
        store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
    curves = Curves(store)
    began = time.thread_time()
    curves.update()
    whole = time.thread_time() - began
    more = from_frame(training(60, start=2 * 10**12), store.number)
    for batch in more:
        store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
    began = time.thread_time()
    assert curves.update()
    assert time.thread_time() - began < max(0.5 * whole, 0.03)
    assert curves.rows == len(store)


# ---- real runs


@pytest.fixture(scope="module")
def uneven() -> wb.Run:
    """Three ranks share minibatches of 16, 6 + 5 + 5; 23 iterations."""
    run = wb.run(wb.Experiment(ranks=3, iterations=23, batch_size=16))
    run.wait(60)
    return run


def test_the_curve_of_a_run_is_its_losses(uneven: wb.Run) -> None:
    columns = select(uneven.store, "loss")
    assert columns["iteration"].to_list() == list(range(23))
    assert columns["loss"].to_list() == pytest.approx(uneven.result.losses, rel=1e-12)
    assert columns["seconds"][-1] == pytest.approx(uneven.result.wall_seconds, rel=0.2, abs=0.05)


def test_a_runs_accuracy(uneven: wb.Run) -> None:
    columns = select(uneven.store, "accuracy")
    assert columns["iteration"].to_list() == [0, 10, 20, 22]
    assert columns["split"].to_list() == ["minibatch"] * 3 + ["validation"]
    assert columns["value"][-1] == pytest.approx(uneven.result.metrics["accuracy"])
    sixteenths = columns["value"].to_numpy()[:3] * 16
    assert sixteenths == pytest.approx(sixteenths.round())


def test_a_runs_figures(uneven: wb.Run) -> None:
    for name in NAMES:
        figure = uneven.figure(name)
        assert all(len(trace.x) for trace in figure.data), name
        assert EMPTY_WORDS not in figure.layout.annotations[0].text
    assert list(uneven.figure("loss").data[0].y) == pytest.approx(uneven.result.losses)
    words = uneven.figure("overhead").layout.annotations[0].text
    assert "ns each" in words and "0 dropped" in words
    with pytest.raises(ValueError, match="no chart 'losses'; there are loss, accuracy"):
        uneven.figure("losses")


def test_a_saved_run_has_the_same_figures(uneven: wb.Run, tmp_path: Any) -> None:
    uneven.store.save(tmp_path / "run.parquet")
    saved = wb.load(tmp_path / "run.parquet")
    for name in ("loss", "throughput", "communication", "accuracy"):
        assert saved.figure(name).to_json() == uneven.figure(name).to_json()


def test_what_ddp_hides_is_not_exposed() -> None:
    """The same computing and the same links: DDP's buckets travel while backward goes on."""
    alike = {
        "ranks": 2, "iterations": 8, "batch_size": 16, "pad_compute": "90 ms",
        "network": wb.Network(latency="5 ms"),
    }  # fmt: skip
    by_hand = wb.run(wb.Experiment(**alike))
    by_hand.wait(60)
    ddp = wb.run(wb.Experiment(strategy="ddp", options={"bucket_cap_mb": 0.02}, **alike))
    ddp.wait(60)
    mean = {
        run: select(run.store, "communication").tail(-1)["exposed_ms"].mean()
        for run in (by_hand, ddp)
    }
    assert mean[by_hand] > 10 * 2 * 5  # ten tensors, two steps, 5 ms each
    assert 2 * 5 < mean[ddp] < 0.6 * mean[by_hand]  # the last bucket's way, at least


def test_measuring_leaves_no_trace_in_the_training() -> None:
    """Dropout draws, running means and modes are as if nobody had measured on the way."""

    class Noisy:
        def model(self):
            import torch

            return torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5),
                torch.nn.Dropout(0.5).eval(), torch.nn.Linear(8, 2),
            )  # fmt: skip

        def dataset(self, split):
            import torch

            numbers = torch.Generator().manual_seed(1)
            x = torch.randn(64, 4, generator=numbers)
            return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())

        def loss(self, model, batch):
            import torch

            return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

        def metrics(self, model, batch):
            import torch

            assert not model.training and not torch.is_grad_enabled()
            torch.rand(3)
            return {"right": (model(batch[0]).argmax(1) == batch[1]).double().mean().item()}

    losses = []
    for strategy in ("data_parallel", "ddp"):
        for record in (True, False):
            exp = wb.Experiment(
                task=Noisy, strategy=strategy, ranks=2, iterations=12, batch_size=16, record=record
            )
            run = wb.run(exp)
            losses.append(run.wait(60).losses)
            if record:
                told = select(run.store, "accuracy")
                assert set(told["metric"]) == {"right"}
                names = [trace.name for trace in run.figure("accuracy").data]
                assert names == ["right, minibatch", "right, validation"]
    assert losses[0] == losses[1]
    assert losses[2] == losses[3]


# ---- figures


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_empty_chart_has_its_axes_and_says_what_will_come(name: str, theme: str) -> None:
    figure = charts.figure(Store(), name, theme)
    title = figure.layout.annotations[0].text
    assert CHARTS[name].title in title and EMPTY_WORDS in title
    assert figure.layout.xaxis.title.text in ("iteration", "seconds")
    assert figure.layout.yaxis.title.text
    assert figure.layout.paper_bgcolor == tokens(theme)["ground"]
    assert [len(trace.x) for trace in figure.data] == [0] * len(figure.data)


def test_colours_are_the_stages() -> None:
    for theme, comm in (("light", "#cd6602"), ("dark", "#fb8f03")):
        made = charts.figure(Store.from_frame(two_ranks()), "communication", theme)
        assert [trace.name for trace in made.data] == ["computing", "exposed"]
        assert made.data[1].line.color == comm == tokens(theme)["comm"]
        assert comm in made.layout.annotations[0].text  # the title is the key
    with pytest.raises(ValueError, match="it is light or dark"):
        tokens("grey")


def test_a_long_curve_is_drawn_with_few_points_that_stay_where_they_are() -> None:
    columns = pl.DataFrame({"iteration": range(100_000)}).with_columns(
        seconds=pl.col("iteration") / 100, loss=1 / (1 + pl.col("iteration"))
    )
    thin, many = thinned("loss", columns)
    assert many == 256 and thin.height <= MOST_POINTS
    assert thin["loss"][1] == pytest.approx(columns["loss"][256:512].mean())
    assert "a point for 256 iterations" in cell("loss", columns).title
    longer, same = thinned("loss", columns.head(90_000))
    assert same == many and longer["iteration"].to_list()[:300] == thin["iteration"].to_list()[:300]


def test_a_thinned_speed_is_samples_over_time() -> None:
    n = 1000
    took = [0.01 if i % 2 else 0.03 for i in range(n)]
    columns = pl.DataFrame(
        {
            "iteration": range(n), "seconds": np.cumsum(took), "took_s": took,
            "iterations_per_s": [1 / t for t in took], "samples_per_s": [64 / t for t in took],
        }
    )  # fmt: skip
    (trace,) = traces("throughput", columns)
    assert list(trace.y) == pytest.approx([3200.0] * len(trace.y))
    assert trace.name == "samples a second"
    unknown = columns.with_columns(samples_per_s=pl.lit(None, pl.Float64))
    (trace,) = traces("throughput", unknown)
    assert trace.name == "iterations a second"
    assert list(trace.y) == pytest.approx([50.0] * len(trace.y))
    assert charts.draw("throughput", unknown).layout.yaxis.title.text == "iterations a second"


def test_an_axis_of_iterations_grows_by_doubling() -> None:
    assert scale(0, 200) == 200
    assert scale(0, 10_000) == FIRST_SCALE
    assert scale(FIRST_SCALE, 10_000) == 2 * FIRST_SCALE
    assert scale(9_999, 10_000) == 10_000


def test_a_comparison_has_a_line_for_each_run_twice() -> None:
    loss = select(Store.from_frame(two_ranks()), "loss")
    made = charts.comparison({"1 · a": loss, "2 · b": loss.head(2), "3 · c": loss.head(0)})
    assert [trace.name for trace in made.data] == ["1 · a", "2 · b", "3 · c"] * 2
    assert [trace.showlegend for trace in made.data] == [True] * 3 + [False] * 3
    assert len({(t.line.color, t.line.dash) for t in made.data}) == 3
    assert list(made.data[0].x) == [0, 1, 2, 3, 4]
    assert list(made.data[3].x) == pytest.approx(loss["seconds"].to_list())
    assert charts.comparison({}).layout.annotations[0].text.count("appear")


def test_figures_are_json_that_a_browser_takes() -> None:
    made = charts.figure(Store.from_frame(two_ranks()), "overhead")  # no cost known: NaN
    assert "NaN" not in json.dumps(json.loads(made.to_json()))


def test_cells_of_a_grid_do_not_overlap() -> None:
    store = Store.from_frame(two_ranks())
    cells = [cell(name, select(store, name)) for name in NAMES]
    made = charts.grid(cells)
    boxes = []
    for number in range(len(cells)):
        x = made.layout[f"xaxis{number + 1 if number else ''}"]
        y = made.layout[f"yaxis{2 * number + 1 if number else ''}"]
        assert 0 <= x.domain[0] < x.domain[1] <= 1 and 0 <= y.domain[0] < y.domain[1] <= 1
        boxes.append((*x.domain, *y.domain))
    for at, (left, right, low, high) in enumerate(boxes):
        for other in boxes[:at]:
            apart = right <= other[0] or other[1] <= left or high <= other[2] or other[3] <= low
            assert apart
    assert made.layout.height == 3 * charts.HEIGHT


# ---- live


def chart_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "workbench charts"]


def test_charts_follow_a_run_to_its_end() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=100_000, batch_size=16))
    live = run.charts("loss", "overhead")
    assert repr(live) == "Charts(loss, overhead)"
    seen = set()
    deadline = time.monotonic() + 60
    while len(seen) < 4 and time.monotonic() < deadline:
        seen.add(len(live.figure.data[0].x))
        time.sleep(0.05)
    run.stop()
    run.wait(60)
    assert len(seen) == 4, "the chart did not grow while the run went on"
    assert remains(chart_threads, 10) == []
    told = traces("loss", select(run.store, "loss"))[0]
    assert list(live.figure.data[0].y) == pytest.approx(list(told.y))
    assert told.x[-1] == len(run.result.losses) - 1
    live.close()


def test_charts_that_are_closed_leave_no_thread_and_the_run_goes_on() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=100_000, batch_size=16))
    live = run.charts()
    assert len(live.names) == 5
    live.figure  # noqa: B018 - as a page does
    live.close()
    assert remains(chart_threads, 5) == []
    assert not run.done
    run.stop()
    run.wait(30)


def test_charts_show_what_they_are_asked_to() -> None:
    with pytest.raises(ValueError, match="no chart 'x'"):
        Charts(None, "x")
    live = Charts(None, "loss")
    live.show("communication", "loss")
    assert live.names == ("loss", "communication")
    assert [trace.name for trace in live.figure.data] == ["loss", "computing", "exposed"]
    light = live.figure.layout.paper_bgcolor
    live.ground.dark = True
    assert live.figure.layout.paper_bgcolor == tokens("dark")["ground"] != light
    loss = select(Store.from_frame(two_ranks()), "loss")
    live.compare({"a": loss, "b": loss})
    assert [trace.name for trace in live.figure.data][3:] == ["a", "b"] * 2
    live.compare({})
    assert len(live.figure.data) == 3
    live.close()


def test_a_page_that_comes_later_sees_the_charts_as_they_are() -> None:
    live = Charts(None, "loss")
    live.figure  # noqa: B018 - as a page does
    live.ground.dark, live.ground.width = True, 700
    live._store = Store.from_frame(two_ranks(10))
    live._curves = Curves(live._store)
    live._curves.update()
    live.refresh()
    state = live.figure.get_state()
    assert state["_widget_layout"]["paper_bgcolor"] == tokens("dark")["ground"]
    assert state["_widget_layout"]["width"] == 700
    assert state["_widget_layout"]["yaxis"]["autorange"] is True
    assert state["_widget_data"][0]["x"] == list(range(10))
    assert live.figure.get_state("comm").keys() <= {"comm"}
    live.close()


def test_a_chart_is_not_made_anew_when_it_grows() -> None:
    """What a reader has zoomed into stays until the scale itself grows; nothing blinks."""
    live = Charts(None, "loss")
    before = live.figure.data[0].uid
    assert live.figure.layout.yaxis.range == (0, 1)
    live._store = Store.from_frame(two_ranks(32), {"experiment": "iterations: 30\n"})
    live._curves = Curves(live._store)
    live._curves.update()
    live.refresh()
    assert live.figure.data[0].uid == before and len(live.figure.data[0].x) == 30
    assert live.figure.layout.yaxis.autorange is True
    assert live.figure.layout.xaxis.range == (0, 30)
    live.figure.layout.xaxis.range = (5, 10)
    live.refresh()
    assert live.figure.layout.xaxis.range == (5, 10)
    live.close()
