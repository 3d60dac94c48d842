"""Overlap in numbers: exact on rows written out; on paced links most of what can be hidden is."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.training.ddp.test_ddp import SMALL, ddp
from workbench.analysis.curves import Curves
from workbench.presets.ddp import bucketed
from workbench.store import overlap
from workbench.store.table import SCHEMA
from workbench.views.pages import figures

MS = 1_000_000


def row(kind: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """A row of rank 0 in iteration 2, in ms."""
    plain = {"rank": 0, "iteration": 2, "lane": "compute", "name": "", "value": math.nan}
    return plain | {"kind": kind, "start_ns": int(start * MS), "end_ns": int(end * MS)} | more


def bucket(number: int, start: float, end: float) -> dict[str, Any]:
    name = f"bucket {number}"
    return row("collective", start, end, lane="comm", name=name, nbytes=1000, group="default")


def full(number: int, at: float) -> dict[str, Any]:
    return row("metric", at, at, name="bucket full", value=float(number))


END = {"name": "runqueue", "value": 0.0}
# forward 0-10, backward 10-30; buckets full at 14, 20, 30; the optimizer 45-50
STEP = [
    row("forward", 0, 10),
    row("backward", 10, 30),
    full(0, 14),
    full(1, 20),
    full(2, 30),
    bucket(0, 14, 22),
    bucket(1, 22, 34),
    bucket(2, 34, 44),
    row("optimizer", 45, 50),
    row("metric", 50, 50, **END),
]


def table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    defaults = {"nbytes": -1, "phase": "", "group": "", "collective": ""}
    schema = {name: SCHEMA[name] for name in SCHEMA if name in defaults | rows[0]}
    return pl.DataFrame([defaults | one for one in rows], schema=schema)


def test_the_parts_of_a_step_are_what_the_rows_say() -> None:
    measured = overlap.measure(table(STEP))
    assert measured.table.rows(named=True) == [
        {
            "iteration": 2,
            "rank": 0,
            "step_ms": 50.0,
            "compute_ms": 35.0,
            "communication_ms": 30.0,
            "hidden_ms": 16.0,
            "exposed_ms": 14.0,  # 1 ms lies between
            "hidable_ms": 16.0,  # of 20 of the first two buckets: as long as backward goes on
        }
    ]
    assert measured.hidden_share == 1.0
    assert measured.exposed_share == 0.28
    assert measured.buckets.select("bucket", "nbytes", "full", "begins", "ends").rows() == [
        (0, 1000, 14.0, 14.0, 22.0),
        (1, 1000, 20.0, 22.0, 34.0),
        (2, 1000, 30.0, 34.0, 44.0),
    ]
    assert measured.words == (
        "a step takes 50.0 ms, of which 14.0 ms (28%) are exposed communication and waiting; "
        "16.0 ms are hidden behind computing, 100% of the 16.0 ms that could be"
    )


def test_a_bucket_s_times_are_medians_of_iterations_that_settled() -> None:
    """The first two are left out: there DDP builds its buckets."""
    rows = pl.DataFrame(
        {
            "iteration": [0, 1, 2, 3, 4],
            "rank": [0] * 5,
            "bucket": [0] * 5,
            "full": [90.0, 90, 1, 2, 4],
            "begins": [90.0, 90, 2, 3, 5],
            "ends": [90.0, 90, 3, 9, 6],
        }
    )
    assert overlap.Overlap(pl.DataFrame(), rows).by_bucket().rows() == [(0, 2.0, 3.0, 6.0)]


def test_short_buckets_limit_what_could_be_hidden() -> None:
    rows = [*STEP[:5], bucket(0, 14, 17), bucket(1, 29, 32), bucket(2, 34, 44), *STEP[8:]]
    measured = overlap.measure(table(rows))
    assert measured.mean("hidable") == 6.0  # all of the first two: less than backward's rest
    assert measured.mean("hidden") == 4.0
    assert measured.hidden_share == pytest.approx(2 / 3)


def test_without_buckets_nothing_says_what_could_be_hidden() -> None:
    rows = [one for one in STEP if one["name"] != "bucket full"]
    measured = overlap.measure(table(rows))
    assert measured.mean("hidden") == 16.0
    assert math.isnan(measured.mean("hidable")) and math.isnan(measured.hidden_share)
    assert "that could be" not in measured.words


def test_iterations_without_an_end_are_left_out() -> None:
    assert overlap.measure(table(STEP[:-1])).words == "no iteration is complete"


def test_collectives_that_overlap_each_other_count_once() -> None:
    rows = [*STEP[:5], bucket(0, 14, 26), bucket(1, 20, 34), bucket(2, 30, 44), *STEP[8:]]
    assert overlap.measure(table(rows)).mean("communication") == 30.0


@pytest.mark.alone
def test_most_of_what_can_be_hidden_on_slow_links_is() -> None:
    by_ddp = wb.run(bucketed(8, bucket_cap_mb=0.1))
    by_ddp.wait(timeout=60)
    by_hand = wb.run(bucketed(8).replace(strategy="data_parallel"))
    by_hand.wait(timeout=60)
    ours, theirs = by_ddp.overlap(), by_hand.overlap()
    assert (
        ours.hidden_share > 0.6
    )  # 0.9 and more where nothing else runs: tools/benchmarks/overlap.py
    assert ours.mean("exposed") < theirs.mean("exposed")
    assert theirs.mean("hidden") < 0.1 * theirs.mean("communication")
    assert ours.by_rank()["rank"].to_list() == [0, 1, 2, 3]


def test_the_curve_is_the_measure_and_the_chart_appears_with_buckets(tmp_path: Any) -> None:
    run = wb.run(ddp(ranks=3, iterations=6, pad_compute="10 ms"))
    run.wait(timeout=60)
    curves = Curves(run.store)
    curves.update()
    assert "overlap" in curves.offered
    own = (
        run.overlap()
        .table.group_by("iteration")
        .agg(pl.col("hidden_ms", "exposed_ms", "hidable_ms").mean())
    )
    curve = curves.select("overlap")
    for name in ("hidden_ms", "exposed_ms", "hidable_ms"):
        each = own.sort("iteration")[name].to_list()
        assert curve[name].to_list() == pytest.approx(each, abs=1e-6), name
    figure = figures.figure(run.store, "overlap")
    assert [len(trace.x) for trace in figure.data] == [6, 6, 6]
    run.store.save(tmp_path / "run.parquet")
    assert wb.load(tmp_path / "run.parquet").overlap().words == run.overlap().words


def test_a_run_without_buckets_offers_no_chart_of_them() -> None:
    exp = wb.Experiment(ranks=2, iterations=3, task="mlp_layers", task_options=SMALL, batch_size=8)
    run = wb.run(exp)
    run.wait(timeout=60)
    curves = Curves(run.store)
    curves.update()
    assert "overlap" not in curves.offered
