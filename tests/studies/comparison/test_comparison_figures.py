"""Curves of several runs as figures: means, bands, axes, and what diverges."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from workbench.analysis.comparison import AXES, compared, first_below, on_common, smooth_curve
from workbench.analysis.measures import beside, nothing
from workbench.studies.comparison.still import svg
from workbench.studies.comparison.trials import CURVE


def curve(losses: list[float], apart: float = 1.0) -> pl.DataFrame:
    n = len(losses)
    return pl.DataFrame(
        {
            "iteration": range(n),
            "updates": [3.0 * i for i in range(n)],
            "seconds": [apart * i for i in range(n)],
            "loss": losses,
            "nbytes": [100 * i for i in range(n)],
            "frames": [None] * n,
            "return": [None] * n,
        },
        schema=CURVE,
    )


def test_a_line_is_the_mean_and_its_band_reaches_from_least_to_most() -> None:
    one, other = curve([4.0, 2.0, 1.0]), curve([2.0, 2.0, 3.0])
    (cell,) = compared({"a": [one, other]}, by=["iterations"])
    low, high, line = cell.traces
    assert list(line.y) == [3, 2, 2] and list(low.y) == [2, 2, 1] and list(high.y) == [4, 2, 3]
    assert [trace.name for trace in cell.traces] == ["", "", "a"]
    assert cell.looks[1]["fill"] == "tonexty" and "fill" not in cell.looks[2]
    assert "least to the most" in cell.title


def test_seeds_that_took_different_times_meet_where_both_have_been() -> None:
    x, losses = on_common([curve([3.0, 2.0, 1.0]), curve([3.0, 1.0, 0.0], apart=2.0)], "seconds")
    assert (x[0], x[-1]) == (0, 2)
    assert list(losses[1]) == pytest.approx(list(np.interp(x, [0, 2, 4], [3, 1, 0])))


def test_losses_that_lie_on_one_another_are_said_to() -> None:
    one, close, other = curve([3.0, 2.0]), curve([3.001, 1.999], apart=2.0), curve([3.0, 2.1])
    coincides = ["on one another" in cell.title for cell in compared({"a": one, "b": close})]
    assert coincides == [True, False, False, False], "by iteration only"
    assert "on one another" not in compared({"a": one, "b": other})[0].title
    assert "on one another" not in compared({"a": one})[0].title


def test_axes() -> None:
    alone = curve([3.0, 2.0]).with_columns(updates=pl.col("iteration").cast(pl.Float64))
    assert len(compared({"a": alone})) == 2  # an update is an iteration: nothing new to see
    titles = [one.chart.title for one in compared({"a": curve([3.0, 2.0])})]
    assert titles == [chart.title for _, chart in AXES.values()]
    with pytest.raises(ValueError, match="no axis 'epochs'; there are iterations, seconds"):
        compared({}, by=["epochs"])


def test_smoothing_looks_back_only() -> None:
    assert smooth_curve(curve([4.0, 2.0, 0.0]), 2)["loss"].to_list() == [4, 3, 1]
    falling = curve([5 - i / 20 for i in range(100)])
    row = first_below(falling, 3.0)  # the mean of two: 3.025 at 40, 2.975 at 41
    assert (row["iterations"], row["updates"], row["bytes"]) == (41, 123, 4100)


def test_several_runs_are_written_as_mean_least_and_most() -> None:
    runs = [nothing() | {"state": "finished", "loss": loss} for loss in (1.0, 2.0)]
    table = beside({"a": runs, "b": [runs[0] | {"state": "failed"}, runs[0]]})
    by_name = {row[0]: row[1:] for row in table.iter_rows()}
    assert by_name["last loss"] == ("1.5000 (1.0000 – 2.0000)", "1.0000")
    assert by_name["state"] == ("finished", "1 failed, 1 finished")


def test_what_diverges_leaves_the_picture_and_breaks_nothing() -> None:
    wild = curve([2.0, 1e9, float("inf"), float("nan")])
    picture = svg(compared({"wild": wild, "tame": curve([2.0, 1.5, 1.0, 0.5])}), "both")
    assert "nan" not in picture and "inf" not in picture
    ElementTree.fromstring(picture)
    ElementTree.fromstring(svg(compared({"none": curve([float("nan")])}), "nothing"))
    ElementTree.fromstring(svg([], ""))
