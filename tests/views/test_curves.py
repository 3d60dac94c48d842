"""Curves of a run: right by hand-made rows, by brute force, and by real runs."""

from __future__ import annotations

import json
import random
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
from tests.synthetic import table, training
from tests.views.chart_rows import MS, START, iteration_of, metric, row, two_ranks
from workbench.analysis.curves import NAMES, Curves, select
from workbench.analysis.points import EMPTY_WORDS
from workbench.analysis.rate import Rate
from workbench.store.event_store import Store
from workbench.store.table import from_frame

# ---- what the columns mean


def test_loss_is_the_mean_over_samples() -> None:
    columns = select(Store.from_frame(two_ranks()), "loss")
    assert columns["iteration"].to_list() == [0, 1, 2, 3, 4]
    expected = [(10 * (2 - i / 10) + 30 * (3 - i / 10)) / 40 for i in range(5)]
    assert columns["loss"].to_list() == pytest.approx(expected)
    assert columns["seconds"].to_list() == pytest.approx([0.012 + 0.02 * i for i in range(5)])


def test_exposed_is_what_no_computing_hides_of_communication() -> None:
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
    assert columns.row(0, named=True)["exposed_ms"] == 0, "what lies between is not communication"


def test_time_in_which_the_ranks_are_held_is_not_communication() -> None:
    rows = [
        row(0, 0, "forward", 0, 4),
        row(0, 0, "collective", 4, 30, lane="comm"),
        row(0, 0, "optimizer", 30, 31),
    ]
    held = json.dumps([[START + 6 * MS, START + 26 * MS]])
    columns = select(Store.from_frame(table(rows), {"holds": held}), "communication")
    assert columns.row(0, named=True) == pytest.approx(
        {"iteration": 0, "seconds": 0.031, "step_ms": 11, "compute_ms": 5, "exposed_ms": 6}
    )


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
    rows.append(metric(0, 1, "bucket full", 3, 25))  # not a rank's metric
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
    metrics: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for one in events.iter_rows(named=True):
        key = one["iteration"], one["rank"]
        if one["kind"] == "metric":
            metrics[key][one["name"]] = one["value"]
        else:
            spans[key].append((one["start_ns"], one["end_ns"], one["kind"]))
    result = {}
    for iteration in {i for i, _ in spans}:
        ranks = sorted(rank for i, rank in spans if i == iteration)
        steps, exposed, losses, samples = 0.0, 0.0, 0.0, 0.0
        for rank in ranks:
            own = spans[iteration, rank]
            first, last = min(s for s, _, _ in own), max(e for _, e, _ in own)
            computes = [(s, e) for s, e, kind in own if kind != "collective"]
            steps += last - first
            calls = [(s, e) for s, e, kind in own if kind == "collective"]
            exposed += sum(
                any(s <= t < e for s, e in calls) and not any(s <= t < e for s, e in computes)
                for t in range(first, last, MS // 10)
            ) * (MS // 10)
            losses += metrics[iteration, rank]["loss"] * metrics[iteration, rank]["samples"]
            samples += metrics[iteration, rank]["samples"]
        result[iteration] = (losses / samples, steps / len(ranks) / MS, exposed / len(ranks) / MS)
    return result


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


@settings(max_examples=10)
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
        curve = curves.select("loss")
        now = dict(zip(curve["iteration"], curve["loss"], strict=True))
        assert {i: now[i] for i in shown} == shown
        shown = now
    for batch in from_frame(events.slice(at), store.number):
        store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
    store.metadata["ok"] = "True"
    curves.update()
    for name in NAMES:
        assert_frame_equal(curves.select(name), select(Store.from_frame(events), name))


@pytest.mark.alone
def test_an_update_costs_what_is_new() -> None:
    """Over a store of 100,000 events, 2,000 more: a small part of what reading all takes."""
    events = training(1000)
    store = Store({"experiment": "iterations: 4000\n"})
    for batch in from_frame(events, store.number):
        store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
    curves = Curves(store)
    began = time.thread_time()
    curves.update()
    whole = time.thread_time() - began
    more = from_frame(training(20, start=2 * 10**12), store.number)
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
        "ranks": 2,
        "iterations": 8,
        "batch_size": 16,
        "pad_compute": "90 ms",
        "network": wb.Network(latency="5 ms"),
    }
    by_hand = wb.run(wb.Experiment(**alike))
    by_hand.wait(60)
    ddp = wb.run(wb.Experiment(strategy="ddp", options={"bucket_cap_mb": 0.02}, **alike))
    ddp.wait(60)
    median = {
        run: select(run.store, "communication").tail(-1)["exposed_ms"].median()
        for run in (by_hand, ddp)
    }
    assert median[by_hand] > 10 * 2 * 5  # ten tensors, two steps, 5 ms each
    assert 2 * 5 < median[ddp] < 0.6 * median[by_hand]  # the last bucket's way, at least


@pytest.mark.full
def test_measuring_leaves_no_trace_in_the_training() -> None:
    """Dropout draws, running means and modes are as if nothing had been measured on the way."""

    class Noisy:
        def model(self):
            import torch

            return torch.nn.Sequential(
                torch.nn.Linear(4, 8),
                torch.nn.BatchNorm1d(8),
                torch.nn.Dropout(0.5),
                torch.nn.Dropout(0.5).eval(),
                torch.nn.Linear(8, 2),
            )

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
                curve = select(run.store, "accuracy")
                assert set(curve["metric"]) == {"right"}
                names = [trace.name for trace in run.figure("accuracy").data]
                assert names == ["right, minibatch", "right, validation"]
    assert losses[0] == losses[1]
    assert losses[2] == losses[3]
