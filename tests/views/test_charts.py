"""Charts of a run: their figures, and how they follow a live one."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import polars as pl
import pytest
from ipywidgets.widgets.widget import comm as channels

import workbench as wb
from tests.conftest import remains
from tests.views.chart_rows import two_ranks
from workbench.analysis.chart_cells import CHARTS, FIRST_SCALE, cell, scale, tokens
from workbench.analysis.curves import NAMES, Curves, select
from workbench.analysis.points import EMPTY_WORDS, MOST_POINTS, thin_out, traces
from workbench.store.event_store import Store
from workbench.views.pages import figures
from workbench.views.pages.live_charts import Charts

# ---- figures


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_empty_chart_has_its_axes_and_says_what_will_come(name: str, theme: str) -> None:
    figure = figures.figure(Store(), name, theme)
    title = figure.layout.annotations[0].text
    assert CHARTS[name].title in title and EMPTY_WORDS in title
    assert figure.layout.xaxis.title.text in ("iteration", "seconds")
    assert figure.layout.yaxis.title.text
    assert figure.layout.paper_bgcolor == tokens(theme)["ground"]
    assert [len(trace.x) for trace in figure.data] == [0] * len(figure.data)


def test_colors_are_the_stages() -> None:
    for theme, comm in (("light", "#cd6602"), ("dark", "#fb8f03")):
        chart = figures.figure(Store.from_frame(two_ranks()), "communication", theme)
        assert [trace.name for trace in chart.data] == ["computing", "communication and waiting"]
        assert chart.data[1].line.color == comm == tokens(theme)["comm"]
        assert comm in chart.layout.annotations[0].text  # the title is the key
    with pytest.raises(ValueError, match="must be 'light' or 'dark'"):
        tokens("gray")


def test_an_iteration_during_which_the_ranks_were_held_flattens_no_chart() -> None:
    columns = pl.DataFrame({"iteration": range(40)}).with_columns(
        seconds=pl.col("iteration") / 100,
        step_ms=pl.when(pl.col("iteration") == 20).then(5000.0).otherwise(10.0),
        compute_ms=pl.lit(4.0),
        exposed_ms=pl.when(pl.col("iteration") == 20).then(4996.0).otherwise(6.0),
    )
    chart = figures.draw("communication", columns)
    assert chart.layout.yaxis.range == (0, 15), "as if the long one were not there"
    assert "1 point is higher, up to 5,000 ms" in chart.layout.annotations[0].text
    assert max(chart.data[1].y) == 4996, "pointed at, it says how long it was"
    bursts = columns.with_columns(
        exposed_ms=pl.when(pl.col("iteration") % 4 == 3).then(90.0).otherwise(1.0)
    )
    chart = figures.draw("communication", bursts)
    assert chart.layout.yaxis.autorange and "higher" not in chart.layout.annotations[0].text


def test_a_long_curve_is_drawn_with_few_points_that_stay_where_they_are() -> None:
    columns = pl.DataFrame({"iteration": range(100_000)}).with_columns(
        seconds=pl.col("iteration") / 100, loss=1 / (1 + pl.col("iteration"))
    )
    thin, many = thin_out("loss", columns)
    assert many == 256 and thin.height <= MOST_POINTS
    assert thin["loss"][1] == pytest.approx(columns["loss"][256:512].mean())
    assert "a point for 256 iterations" in cell("loss", columns).title
    longer, same = thin_out("loss", columns.head(90_000))
    assert same == many and longer["iteration"].to_list()[:300] == thin["iteration"].to_list()[:300]


def test_a_thinned_speed_is_samples_over_time() -> None:
    n = 1000
    took = [0.01 if i % 2 else 0.03 for i in range(n)]
    columns = pl.DataFrame(
        {
            "iteration": range(n),
            "seconds": np.cumsum(took),
            "took_s": took,
            "iterations_per_s": [1 / t for t in took],
            "samples_per_s": [64 / t for t in took],
        }
    )
    (trace,) = traces("throughput", columns)
    assert list(trace.y) == pytest.approx([3200.0] * len(trace.y))
    assert trace.name == "samples a second"
    unknown = columns.with_columns(samples_per_s=pl.lit(None, pl.Float64))
    (trace,) = traces("throughput", unknown)
    assert trace.name == "iterations a second"
    assert list(trace.y) == pytest.approx([50.0] * len(trace.y))
    assert figures.draw("throughput", unknown).layout.yaxis.title.text == "iterations a second"


def test_an_axis_of_iterations_grows_by_doubling() -> None:
    assert scale(0, 200) == 200
    assert scale(0, 10_000) == FIRST_SCALE
    assert scale(FIRST_SCALE, 10_000) == 2 * FIRST_SCALE
    assert scale(9_999, 10_000) == 10_000


def test_a_comparison_has_a_line_for_each_run_twice() -> None:
    loss = select(Store.from_frame(two_ranks()), "loss")
    chart = figures.comparison({"1 · a": loss, "2 · b": loss.head(2), "3 · c": loss.head(0)})
    assert [trace.name for trace in chart.data] == ["1 · a", "2 · b", "3 · c"] * 2
    assert [trace.showlegend for trace in chart.data] == [True] * 3 + [False] * 3
    assert len({(t.line.color, t.line.dash) for t in chart.data}) == 3
    assert list(chart.data[0].x) == [1, 2, 3, 4, 5]
    assert list(chart.data[3].x) == pytest.approx(loss["seconds"].to_list())
    assert figures.comparison({}).layout.annotations[0].text.count("appear")


def test_figures_are_json_that_a_browser_takes() -> None:
    chart = figures.figure(Store.from_frame(two_ranks()), "overhead")  # no cost known: NaN
    assert "NaN" not in json.dumps(json.loads(chart.to_json()))


def test_cells_of_a_grid_do_not_overlap() -> None:
    store = Store.from_frame(two_ranks())
    cells = [cell(name, select(store, name)) for name in NAMES]
    chart = figures.grid(cells)
    boxes = []
    for number in range(len(cells)):
        x = chart.layout[f"xaxis{number + 1 if number else ''}"]
        y = chart.layout[f"yaxis{2 * number + 1 if number else ''}"]
        assert 0 <= x.domain[0] < x.domain[1] <= 1 and 0 <= y.domain[0] < y.domain[1] <= 1
        boxes.append((*x.domain, *y.domain))
    for at, (left, right, low, high) in enumerate(boxes):
        for other in boxes[:at]:
            apart = right <= other[0] or other[1] <= left or high <= other[2] or other[3] <= low
            assert apart
    assert chart.layout.height == 3 * figures.HEIGHT


# ---- live


def chart_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "workbench charts"]


@pytest.mark.full
def test_charts_follow_a_run_to_its_end() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=100_000, batch_size=16, pad_compute="10 ms"))
    live = run.charts("loss", "overhead")
    assert repr(live) == "Charts(loss, overhead)"
    lengths = set()
    deadline = time.monotonic() + 60
    while len(lengths) < 4 and time.monotonic() < deadline:
        lengths.add(len(live.figure.data[0].x))
        time.sleep(0.05)
    run.stop()
    run.wait(60)
    assert len(lengths) == 4, "the chart did not grow while the run went on"
    assert remains(chart_threads, 10) == []
    trace = traces("loss", select(run.store, "loss"))[0]
    assert list(live.figure.data[0].y) == pytest.approx(list(trace.y))
    assert trace.x[-1] == len(run.result.losses), "iterations count from 1"
    live.close()


def test_charts_that_are_closed_leave_no_thread_and_the_run_goes_on() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=100_000, batch_size=16, pad_compute="10 ms"))
    live = run.charts()
    assert len(live.names) == 5
    live.figure  # noqa: B018 - as a page does
    live.close()
    assert remains(chart_threads, 5) == []
    assert not run.done
    run.stop()
    run.wait(120)


def test_charts_show_what_they_are_asked_to() -> None:
    with pytest.raises(ValueError, match="no chart 'x'"):
        Charts(None, "x")
    live = Charts(None, "loss")
    live.show("communication", "loss")
    assert live.names == ("loss", "communication")
    assert [trace.name for trace in live.figure.data] == [
        "loss",
        "computing",
        "communication and waiting",
    ]
    light = live.figure.layout.paper_bgcolor
    live.ground.dark = True
    assert live.figure.layout.paper_bgcolor == tokens("dark")["ground"] != light
    live.ground.colour = "rgb(17, 17, 17)"
    layout = live.figure.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgb(17, 17, 17)", "no box in the page"
    loss = select(Store.from_frame(two_ranks()), "loss")
    live.compare({"a": loss, "b": loss})
    assert [trace.name for trace in live.figure.data][3:] == ["a", "b"] * 2
    high = live.figure.layout.legend3
    assert (high.y, high.yanchor) == (live.figure.layout.yaxis5.domain[0], "bottom")
    falls = loss.with_columns(loss=1 / (1 + pl.col("iteration").cast(pl.Float64)))
    live.compare({"a": falls, "b": falls})
    assert live.figure.layout.legend3.yanchor == "top", "lines end low: above them is room"
    live.compare({})
    assert len(live.figure.data) == 3
    live.close()


def test_charts_of_a_theme_that_was_asked_for_bring_their_own_ground() -> None:
    live = Charts(None, "loss", theme="dark")
    live.ground.colour = "rgb(255, 255, 255)"
    assert live.figure.layout.paper_bgcolor == tokens("dark")["ground"]
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
    assert state["_widget_data"][0]["x"] == list(range(1, 11))
    assert live.figure.get_state("comm").keys() <= {"comm"}
    live.close()


def test_a_page_is_told_of_a_chart_once_it_has_its_ground_its_axes_and_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever comes later may be lost: a page that knows no more draws a white box and axes."""
    openings: list[tuple[dict[str, Any], str]] = []
    create = channels.create_comm

    def listening(**opening: Any) -> Any:
        openings.append((opening["data"]["state"], opening.get("comm_id", "")))
        return create(**opening)

    monkeypatch.setattr(channels, "create_comm", listening)
    live = Charts(None, "loss")
    assert live.children == (live.ground,), "nothing is shown before the page has said how it is"
    live.ground.dark = True
    assert live.children == (live.figure, live.ground)
    (state, name), *others = [one for one in openings if "_widget_layout" in one[0]]
    assert others == [] and state["_config"] == {"displayModeBar": False}
    assert state["_widget_layout"]["annotations"][0]["text"] and state["_widget_layout"]["yaxis"]
    assert name == live.figure.model_id == state["_own"]
    assert sum(len(str(value)) for value in state.values()) < 60_000, "Plotly itself comes once"
    assert state["source"] == f"IPY_MODEL_{live.figure.source.model_id}"
    live.close()


def test_a_page_that_missed_edits_of_a_chart_is_told_how_it_is_now() -> None:
    live = Charts(None, "loss")
    figure, sent = live.figure, []
    figure.send = lambda content, buffers=None: sent.append(content)
    figure.send_state = lambda key=None: None if key else sent.append("state")
    edits = {"layout": figure._last_layout_edit_id, "trace": figure._last_trace_edit_id}
    figure._handle_custom_msg({"type": "edits", **edits}, [])
    assert sent == [{"type": "edits", "lost": False}]
    live.ground.width = 640
    figure._handle_custom_msg({"type": "edits", **edits}, [])
    assert sent[1:] == ["state", {"type": "edits", "lost": True}]
    for nonsense in (None, [], {"type": "hello"}):
        figure._handle_custom_msg(nonsense, [])
    assert len(sent) == 3
    live.close()


def test_a_chart_is_not_made_again_when_it_grows() -> None:
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
