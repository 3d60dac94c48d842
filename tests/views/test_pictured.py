"""A figure's still picture: each point where the chart has it, the key in words, its own ground."""

from __future__ import annotations

import math
import pickle
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import polars as pl
import pytest

from workbench.analysis.chart_cells import CHARTS, cell, tokens
from workbench.analysis.option_costs import against
from workbench.store.event_store import Store
from workbench.views.pages import figures
from workbench.views.pages.figure_with_still import Pictured, with_picture
from workbench.views.stills import chart_svg
from workbench.views.stills.chart_svg import LEFT, PLOT, RIGHT, TOP, WIDTH, svg

MIME = "application/vnd.plotly.v1+json"


def overlap(hidden: list[float], exposed: list[float], hidable: list[float]) -> pl.DataFrame:
    n = len(hidden)
    return pl.DataFrame(
        {
            "iteration": range(n),
            "seconds": np.arange(n) / 10,
            "hidden_ms": hidden,
            "exposed_ms": exposed,
            "hidable_ms": hidable,
        }
    )


def lines(picture: str) -> list[list[tuple[float, float]]]:
    """The points of all lines, in shares of the plot: x from the left, y from below."""
    curves = []
    for points in re.findall(r'<polyline points="([^"]*)"', picture):
        pairs = (pair.split(",") for pair in points.split())
        curves.append(
            [
                ((float(x) - LEFT) / (WIDTH - LEFT - RIGHT), 1 - (float(y) - TOP) / PLOT)
                for x, y in pairs
            ]
        )
    return curves


def test_areas_stand_on_each_other_and_a_limit_is_a_line() -> None:
    columns = overlap([10, 20, 30], [30, 20, 10], [20, 25, 30])
    picture = svg(cell("overlap", columns))
    ET.fromstring(picture)
    hidden, both, limit = lines(picture)
    for curve, expected in ((hidden, [10, 20, 30]), (both, [40, 40, 40]), (limit, [20, 25, 30])):
        assert [x for x, _ in curve] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-3)
        assert [40 * y for _, y in curve] == pytest.approx(expected, abs=0.1)
    areas = re.findall(r'<polygon points="([^"]*)"', picture)
    assert len(areas) == 2
    lower = [pair.split(",")[1] for pair in areas[1].split()[3:]]  # where the first one ends
    assert lower == [pair.split(",")[1] for pair in areas[0].split()[2::-1]]
    assert "hidden 30.00 of" in re.sub("<[^>]*>", "", picture)
    assert "▨" not in picture and "┅" not in picture, "no font need have them"


def test_an_option_far_apart_is_told_on_a_logarithm() -> None:
    table = pl.DataFrame(
        {
            "name": ["a", "b", "c"],
            "seeds": [1, 1, 1],
            "step_ms": [8.0, 4.0, 6.0],
            "step_ms_least": [8.0, 3.0, 6.0],
            "step_ms_most": [8.0, 5.0, 6.0],
        }
    )
    chart = against({"a": 0.01, "b": 0.1, "c": 1.0}, table, "bucket_cap_mb", ["step_ms"])
    picture = svg(chart)
    (points,) = lines(picture)
    xs = [x for x, _ in points]
    assert xs[2] - xs[1] == pytest.approx(xs[1] - xs[0], abs=1e-3), "a tenfold is a tenfold"
    assert [8 * y for _, y in points] == pytest.approx([8, 4, 6], abs=0.05)
    assert picture.count("<circle") == 3 and picture.count("<path") == 1, "a bar where runs differ"
    texts = re.findall(r">([^<>]+)</text>", picture)
    assert {"0.01", "0.1", "1", "bucket_cap_mb", "Against bucket_cap_mb"} <= {*texts}
    words = against({"a": "x<y", "b": "z", "c": "&"}, table, "compression", ["step_ms"])
    assert "x&lt;y" in svg(words)
    ET.fromstring(svg(words))


def test_labels_of_an_axis_do_not_touch() -> None:
    caps = [round(1 + number / 1000, 3) for number in range(200)]
    names = [str(cap) for cap in caps]
    table = pl.DataFrame(
        {"name": names, "seeds": 1, "step_ms": caps, "step_ms_least": caps, "step_ms_most": caps}
    )
    chart = against(dict(zip(names, caps, strict=True)), table, "bucket_cap_mb", ["step_ms"])
    labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*middle">([^<]*)<', svg(chart))
    along = [(float(x), label) for x, y, label in labels if float(y) == TOP + PLOT + 16]
    assert 2 < len(along) < len(caps)
    for (b, wide), (a, other) in pairwise(along):
        assert b - a > (len(wide) + len(other)) / 2 * chart_svg.DIGIT


@pytest.mark.parametrize("name", [name for name in CHARTS if not CHARTS[name].y2])
def test_an_empty_chart_has_a_picture(name: str) -> None:
    chart = figures.figure(Store(), name, "dark")
    assert isinstance(chart, Pictured)
    ET.fromstring(chart._still)
    assert tokens("dark")["ground"] not in chart._still, "the picture has its own, light ground"


def test_values_that_are_not_numbers_are_left_out() -> None:
    picture = svg(cell("overlap", overlap([1.0, math.nan, 3.0], [1, 1, 1], [2, 2, 2])))
    hidden, both, _ = lines(picture)
    assert [4 * y for _, y in hidden] == pytest.approx([1, 3], abs=0.01)
    assert [4 * y for _, y in both] == pytest.approx([2, 1, 4], abs=0.01)
    assert "nan" not in "".join(re.findall(r'="[^"]*"', picture))


class Shows:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[dict[str, Any]] = []
        monkeypatch.setattr(
            "IPython.display.display", lambda bundle, raw=False: self.shown.append(bundle)
        )


def test_a_notebook_gets_both(monkeypatch: pytest.MonkeyPatch) -> None:
    shows = Shows(monkeypatch)
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    chart = figures.figure(Store(), "overlap")
    chart._ipython_display_()
    (bundle,) = shows.shown
    assert {MIME, "image/svg+xml"} <= {*bundle} and bundle["image/svg+xml"] == chart._still
    assert bundle[MIME]["layout"] == chart.to_plotly_json()["layout"]
    copy = pickle.loads(pickle.dumps(chart))
    assert isinstance(copy, go.Figure) and copy.to_json() == chart.to_json()


def test_a_chart_with_two_axes_stays_as_it_is() -> None:
    figure = go.Figure()
    assert (
        with_picture(
            figure,
            cell(
                "overhead",
                pl.DataFrame({"seconds": [], "events_per_s": [], "record_ns": [], "share": []}),
            ),
        )
        is figure
    )
