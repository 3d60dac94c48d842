"""Charts of a parameter server: right by hand-made rows, by brute force, and by real runs."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import workbench as wb
from tests.synthetic import table
from tests.views.chart_rows import metric, row, two_ranks
from workbench.analysis import servers
from workbench.analysis.curves import NAMES, SERVED, Curves, select
from workbench.analysis.server_charts import EMPTY, NEWEST
from workbench.store.event_store import Store
from workbench.store.table import from_frame
from workbench.views.pages import figures
from workbench.views.pages.figures import cell

SPEC = "strategy: parameter_server\noptions:\n  consistency: ssp\n  staleness: 2\niterations: 9\n"


def pushed(worker: int, i: int, at: float, version: int, staleness: int = 0) -> list[dict]:
    """An iteration of 10 ms from ``at`` on: clock, pull 1 ms, forward 6, push 2; applied 1 later.

    Before it the worker has waited 3 ms for its grant.
    """
    loss = {"value": 3.0 - i / 10, "version": version}
    return [
        row(worker, i - 1, "wait", at - 3, at, lane=servers.GRANTS, group="control", peer=0),
        row(worker, i, "clock", at, at, version=version, value=i),
        row(worker, i, "pull", at, at + 1, peer=0, nbytes=400, version=version),
        row(worker, i, "forward", at + 1, at + 7, version=version),
        row(worker, i, "push", at + 7, at + 9, peer=0, nbytes=400, version=version),
        {**metric(worker, i, "loss", 0, at + 9), **loss},
        metric(worker, i, "samples", 4, at + 9),
        row(
            0,
            i,
            "apply",
            at + 9,
            at + 10,
            lane="server",
            peer=worker,
            version=version + 1,
            value=staleness,
        ),
        metric(0, i, "queue", 1, at + 9, lane="server", peer=worker),
    ]


def two_workers() -> pl.DataFrame:
    """Worker 1 takes 13 ms an iteration; worker 2 takes 26 and is one behind from its third on."""
    rows = [metric(0, -1, "elements", 100, 0, lane="server")]
    for i in range(4):
        rows += pushed(1, i, 3 + 13 * i, 2 * i)
    for i in range(2):
        rows += pushed(2, i, 3 + 26 * i, 3 * i, staleness=i)
    return table(sorted(rows, key=lambda one: one["end_ns"]))


def store_of(events: pl.DataFrame, spec: str = SPEC) -> Store:
    return Store.from_frame(events, {"experiment": spec, "ok": "True"})


# ---- what the columns mean


def test_clocks_are_grants_and_the_slowest_is_what_every_worker_has_in() -> None:
    columns = select(store_of(two_workers()), "clocks")
    of_worker = columns.filter(what="worker", worker=1)
    assert of_worker["clock"].to_list() == [0, 1, 2, 3]
    assert of_worker["seconds"].to_list() == pytest.approx([0.003, 0.016, 0.029, 0.042])
    slowest = columns.filter(what="slowest")
    assert slowest["clock"].to_list() == [1, 2]
    assert slowest["seconds"].to_list() == pytest.approx([0.013, 0.039])
    waits = columns.filter(what="wait", worker=2)
    assert waits["seconds"].to_list() == pytest.approx([0.0, 0.026])
    assert waits["clock"].to_list() == [0, 1] or waits["clock"].to_list() == [-1, 0]
    assert columns["bound"].unique().to_list() == [2]


def test_a_lost_worker_is_waited_for_no_more() -> None:
    gone = row(0, -1, "detect", 35, 35, lane="server", name="lost", peer=2)
    events = pl.concat([two_workers(), table([gone])], how="vertical_relaxed")
    slowest = select(store_of(events), "clocks").filter(what="slowest")
    assert slowest["clock"].to_list() == [1, 2, 3, 4]
    assert slowest["seconds"].to_list() == pytest.approx([0.013, 0.039, 0.039, 0.052])


def test_staleness_counts_each_gradient_once_whatever_the_shards() -> None:
    second = [
        row(9, i, "apply", 60, 61, lane="server", peer=1, version=1, value=5) for i in range(4)
    ]
    events = pl.concat([two_workers(), table(second)], how="vertical_relaxed")
    columns = select(store_of(events), "staleness")
    assert columns.rows() == [(0, 5), (1, 1)]


def brute_force(events: pl.DataFrame, worker: int) -> dict[str, float]:
    """Each microsecond of a worker's, in the first class that holds it."""
    of_worker = events.filter(rank=worker).filter(pl.col("end_ns") > pl.col("start_ns"))
    spans: dict[str, list[tuple[int, int]]] = {"compute": [], "moving": [], "blocked": []}
    classes = {
        "forward": "compute",
        "load": "compute",
        "push": "moving",
        "pull": "moving",
        "wait": "blocked",
    }
    for one in of_worker.iter_rows(named=True):
        spans[classes[one["kind"]]].append((one["start_ns"], one["end_ns"]))
    first, last = of_worker["start_ns"].min(), of_worker["end_ns"].max()
    seconds_of = dict.fromkeys([*spans, "other"], 0.0)
    for at in range(first, last, 100_000):
        holds = [name for name, each in spans.items() if any(a <= at < b for a, b in each)]
        seconds_of[(holds or ["other"])[0]] += 1e-4
    return seconds_of


def test_a_workers_time_is_shared_out_once() -> None:
    both = [
        row(1, 0, "load", 3.5, 4.5),  # while it pulls
        row(
            1, 0, "wait", 10.5, 13, lane=servers.GRANTS, group="control", peer=0
        ),  # while it pushes
    ]
    events = pl.concat([two_workers(), table(both)], how="vertical_relaxed")
    by_worker = {one["worker"]: one for one in select(store_of(events), "waiting").to_dicts()}
    for worker in (1, 2):
        one, truth = by_worker[worker], brute_force(events, worker)
        assert one["compute_s"] == pytest.approx(truth["compute"])
        assert one["communication_s"] == pytest.approx(truth["moving"])
        assert one["blocked_s"] == pytest.approx(truth["blocked"])
        assert one["other_s"] == pytest.approx(truth["other"], abs=1e-9)
        assert one["wall_s"] == pytest.approx(sum(truth.values()))
    assert by_worker[1]["blocked_s"] == pytest.approx(4 * 0.003 + 0.001)
    assert by_worker[1]["communication_s"] == pytest.approx(4 * 0.003 - 0.0005)


def test_what_goes_through_a_server_is_what_was_pushed_and_pulled() -> None:
    (totals,) = select(store_of(two_workers()), "servers").to_dicts()
    assert (totals["server"], totals["elements"]) == (0, 100)
    assert totals["in_bytes"] == totals["out_bytes"] == 6 * 400
    assert totals["queue"] == totals["queue_most"] == 1
    assert totals["busy_s"] == pytest.approx(6 * 0.001)


def test_progress_is_a_point_for_as_many_gradients_as_workers() -> None:
    columns = select(store_of(two_workers()), "updates")
    assert columns["iteration"].to_list() == [0, 1, 2]
    assert columns["seconds"].to_list() == pytest.approx([0.012, 0.038, 0.051])
    assert columns["loss"].to_list() == pytest.approx([3.0, (2.9 + 2.8) / 2, (2.9 + 2.7) / 2])
    assert columns["updates"].to_list() == [0, 4, 6]


@pytest.mark.parametrize("known_at_once", [True, False])
def test_piece_by_piece_gives_the_same_as_at_once(known_at_once: bool) -> None:
    """As batches, from the store, and where a server is noticed by its rows alone."""
    spec = SPEC if known_at_once else SPEC.replace("parameter_server", "own")
    events = two_workers()
    store = Store({"experiment": spec})
    curves = Curves(store)
    for at in range(0, events.height, 7):
        for batch in from_frame(events.slice(at, 7), store.number):
            store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
        curves.update()
        if at % 3 == 2:
            curves.rest()
    store.metadata["ok"] = "True"
    curves.update()
    assert curves.offered == (*NAMES, *SERVED)
    for name in SERVED:
        at_once = select(store_of(events, spec), name)
        order = at_once.columns
        assert_frame_equal(curves.select(name).sort(order), at_once.sort(order))


def test_a_loss_by_iteration_needs_no_server_to_take_part() -> None:
    """While the run goes on too: the server's own rows are of no iteration of its own."""
    events = pl.concat(
        [two_workers(), table(pushed(2, 2, 55, 6) + pushed(2, 3, 81, 7))], how="vertical_relaxed"
    )
    store = Store.from_frame(events, {"experiment": SPEC})
    assert select(store, "loss")["iteration"].to_list() == [0, 1]


# ---- figures


def test_charts_that_have_nothing_to_say_are_not_offered() -> None:
    curves = Curves(Store.from_frame(two_ranks()))
    curves.update()
    assert curves.offered == NAMES
    waits = Curves(Store({"experiment": SPEC}))  # before its first row
    assert waits.offered == (*NAMES, *SERVED)


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_empty_chart_has_its_axes_and_says_what_will_come(name: str, theme: str) -> None:
    figure = figures.figure(Store(), name, theme)
    assert EMPTY in figure.layout.annotations[0].text
    assert figure.layout.xaxis.title.text and figure.layout.yaxis.title.text
    assert sum(len(trace.x) for trace in figure.data) == 0


def test_the_wall_stands_at_the_slowest_and_the_bound_and_no_worker_is_beyond() -> None:
    chart = figures.figure(store_of(two_workers()), "clocks")
    by_name = {trace.name: trace for trace in chart.data}
    low, wall = by_name["the slowest"], by_name["the wall"]
    assert [y - x for x, y in zip(low.y, wall.y, strict=True)] == [2] * len(low.y)
    assert list(by_name["worker 1"].y) == [0, 1, 2, 3]
    assert "wall 2 ahead of the slowest" in chart.layout.annotations[0].text
    assert by_name["waits"].line.dash and not by_name["waits"].fill


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ("{}", 0),
        ("{consistency: asp}", None),
        ("{consistency: ssp}", 3),
        ("{consistency: dssp, staleness_max: 7}", 7),
        ("{consistency: dssp, dssp_mode: paper}", None),
        ("{consistency: {name: mine, code: 'x = 1'}}", None),
    ],
)
def test_the_bound_is_the_policys(options: str, bound: int | None) -> None:
    assert servers.bound({"experiment": f"strategy: parameter_server\noptions: {options}"}) == bound


def test_a_long_run_shows_its_newest_steps() -> None:
    rows = [one for i in range(100) for one in pushed(1, i, 3 + 13 * i, i)]
    chart = figures.figure(store_of(table(rows)), "clocks")
    worker = next(trace for trace in chart.data if trace.name == "worker 1")
    assert (min(worker.y), max(worker.y)) == (99 - NEWEST, 99)
    assert f"newest {NEWEST} iterations" in chart.layout.annotations[0].text


def test_a_wide_histogram_has_few_bars() -> None:
    columns = pl.DataFrame({"staleness": [0, 5, 399], "gradients": [1, 2, 3]})
    (bars,) = cell("staleness", columns).traces
    assert len(bars.x) == 40 and bars.y.sum() == 6
    assert (bars.x[0], bars.y[0], bars.y[-1]) == ("0–9", 3, 3)


def test_waiting_is_open_and_parts_make_a_whole() -> None:
    chart = figures.figure(store_of(two_workers()), "waiting")
    assert [sum(t.y[at] for t in chart.data) for at in (0, 1)] == pytest.approx([1, 1])
    waits = next(trace for trace in chart.data if trace.name == "waits for a grant")
    assert waits.marker.pattern.shape == "/"
    assert chart.layout.xaxis.type == "category" and list(waits.x) == ["1", "2"]


# ---- real runs


@pytest.fixture(scope="module")
def run() -> wb.Run:
    """Three workers, two servers with uneven shards, ssp with jitter."""
    training_run = wb.run(
        wb.Experiment(
            strategy="parameter_server",
            ranks=5,
            iterations=30,
            batch_size=24,
            pad_compute="6 ms",
            faults=(wb.Jitter(probability=0.2, factor=6),),
            options={"servers": 2, "placement": (0.75, 0.25), "consistency": "ssp", "staleness": 2},
        )
    )
    training_run.wait(90)
    return training_run


def test_a_real_runs_columns_agree_with_its_rows(run: wb.Run) -> None:
    curves = Curves(run.store)
    curves.update()
    size = 4 * sum(value.numel() for value in run.result.parameters.values())
    through = curves.select("servers")
    assert (through["in_bytes"] + through["out_bytes"]).sum() == 2 * 3 * 30 * size
    assert through["elements"].sum() * 4 == size
    assert through["in_bytes"][0] / through["in_bytes"].sum() == pytest.approx(0.75, abs=0.01)
    stale = curves.select("staleness")
    assert stale["gradients"].sum() == 3 * 30
    time = curves.select("waiting")
    assert time["worker"].to_list() == [2, 3, 4]
    assert (time["compute_s"] >= 30 * 0.006 * 0.99).all()
    assert curves.select("loss").height == 30 == curves.select("updates").height
    columns = curves.select("clocks")
    starts = columns.filter(what="worker").sort("seconds")
    slowest = columns.filter(what="slowest").sort("seconds").select("seconds", low="clock")
    ahead = starts.join_asof(slowest, on="seconds").with_columns(pl.col("low").fill_null(0))
    gap = (ahead["clock"] - ahead["low"]).to_list()
    assert max(gap) == 2, "the bound is kept, and reached"


def test_its_figures(run: wb.Run, tmp_path: Any) -> None:
    run.store.save(tmp_path / "run.parquet")
    saved = wb.load(tmp_path / "run.parquet")
    for name in SERVED:
        figure = run.figure(name)
        assert EMPTY not in figure.layout.annotations[0].text
        assert any(math.isfinite(y) for trace in figure.data for y in trace.y)
        if name != "servers":  # sums of floats in another order
            assert saved.figure(name).to_json() == figure.to_json()
