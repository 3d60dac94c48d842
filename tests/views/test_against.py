"""Measures against an option: the values, the order, what is refused."""

from __future__ import annotations

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from workbench.analysis.option_costs import against, value_of


def table(**measures: list[float]) -> pl.DataFrame:
    """Of runs a, b, c; bars reach one down and two up."""
    columns = {"name": ["a", "b", "c"], "seeds": [2, 2, 2]}
    for name, mean in measures.items():
        columns |= {name: mean, f"{name}_least": [m - 1 for m in mean]}
        columns |= {f"{name}_most": [m + 2 for m in mean]}
    return pl.DataFrame(columns)


def test_points_are_in_the_order_of_the_option_with_bars_to_least_and_most() -> None:
    measures = table(step_ms=[5.0, 3.0, 9.0], exposed_ms=[2.0, 1.0, 4.0])
    values = {"a": 0.4, "b": 0.02, "c": 25.0}
    cell = against(values, measures, "bucket_cap_mb", ["step_ms", "exposed_ms"])
    step, exposed = cell.traces
    assert step.x.tolist() == [0.02, 0.4, 25.0] and step.y.tolist() == [3.0, 5.0, 9.0]
    assert exposed.y.tolist() == [1.0, 2.0, 4.0]
    bars = cell.looks[0]["error_y"]
    assert bars["array"].tolist() == [2.0] * 3 and bars["arrayminus"].tolist() == [1.0] * 3
    assert cell.chart.across["type"] == "log"
    assert "least 3 with bucket_cap_mb = 0.02" in cell.title


def test_words_are_categories_in_the_order_given() -> None:
    values = {"a": "none", "b": "fp16", "c": "bf16"}
    cell = against(values, table(step_ms=[5.0, 3.0, 9.0]), "compression", ["step_ms"])
    assert cell.traces[0].x.tolist() == ["none", "fp16", "bf16"]
    assert cell.chart.across["type"] == "category"


def test_runs_that_did_not_come_to_their_end_have_no_point() -> None:
    measures = table(step_ms=[5.0, 3.0, 9.0]).with_columns(seeds=pl.Series([1, 0, 1]))
    cell = against({"a": 1, "b": 2, "c": 3}, measures, "accumulate", ["step_ms"])
    assert cell.traces[0].x.tolist() == [1, 3]
    nothing = against({"a": 1}, measures.clear(), "accumulate", ["step_ms"])
    assert "appears with the first run" in nothing.title


def test_where_an_option_is_looked_for() -> None:
    exp = wb.Experiment(
        strategy="ddp",
        ranks=2,
        task="mlp_layers",
        task_options={"width": 32},
        options={"accumulate": 3},
    )
    names = ("accumulate", "bucket_cap_mb", "width", "ranks", "batch_size")
    assert [value_of(exp, name) for name in names] == [3, 25.0, 32, 2, exp.batch_size]
    with pytest.raises(KeyError, match="'bucket_size'"):
        value_of(exp, "bucket_size")


def test_a_comparison_draws_it() -> None:
    comparison = wb.compare({f"{n}": lenet(ranks=n, record=True) for n in (1, 2)}).wait(120)
    figure = comparison.against("ranks")
    assert [list(trace.x) for trace in figure.data] == [[1, 2], [1, 2]]
    with pytest.raises(ValueError, match="no measure 'speed'"):
        comparison.against("ranks", "speed")
