"""The charts of what decides a comparison: each value as measured, and what formulas say of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.chart_cells import Cell
from workbench.analysis.deciding_charts import charts
from workbench.analysis.tables import traffic
from workbench.analysis.verdict import NOUNS
from workbench.runs.history import Past
from workbench.store.result import Result
from workbench.studies.comparison.deciding import by_formula, deciding_charts
from workbench.views.pages.figures import grid

RECORDED = Path(__file__).parents[2] / "analysis" / "recorded"


def past(name: str, number: int = 1) -> Past:
    """Return a recorded run as one that has been here."""
    run = wb.load(RECORDED / f"{name}.parquet")
    exp = wb.Experiment.from_yaml(run.store.metadata["experiment"])
    facts = {
        "store": run.store,
        "result": Result(ok=True, losses=[0.0] * exp.iterations),
        "done": True,
    }
    return Past(SimpleNamespace(experiment=exp, **facts), number, name)


def measured(values: dict[str, float], of: str, state: str = "finished") -> dict[str, Any]:
    return {name: {"state": state, "iterations": 20, of: one} for name, one in values.items()}


def drawn(cell: Cell, dashed: bool = False) -> list[tuple[str, list[float]]]:
    """Return names and heights: of what was measured, or of the dashed lines."""
    return [
        (trace.name, trace.y.tolist())
        for trace, look in zip(cell.traces, cell.looks, strict=True)
        if (look.get("line", {}).get("dash") == "dash") == dashed
    ]


def test_the_bytes_of_collective_calls_are_those_of_the_formula() -> None:
    for name in ("balanced_ring", "balanced_naive"):
        pasts = [past(name, 1), past(name, 2)]
        pasts[1].title = "again"
        (cell,) = deciding_charts(pasts, ["bytes_all"])
        sent = float(traffic(pasts[0].run.store.scan())["sent"].sum())
        assert drawn(cell) == [(name, [sent]), ("again", [sent])]
        assert drawn(cell, dashed=True) == [("", [sent, sent])] * 2
        assert cell.title.endswith("· ┅ by formula</span>")


def test_of_a_pipeline_the_schedule_says_the_bubble_and_of_a_server_nothing_the_bytes() -> None:
    pipeline, server = past("bubble"), past("balanced_server")
    assert by_formula(pipeline, "bubble") == pipeline.summary()["bubble_planned"] > 0
    assert by_formula(server, "bytes_all") is None is by_formula(server, "memory")
    assert by_formula(pipeline, "bytes_all") is None, "its messages are in no collective"


def test_each_run_has_the_color_of_its_losses_and_a_bar_in_its_place() -> None:
    runs = measured({"a": 3.0, "b, kept after forward": 2.0, "c": 4.0}, "step_ms")
    (cell,) = charts(runs, ["step_ms"], {"c": {"step_ms": 5.0}})
    assert drawn(cell) == [("a", [3.0]), ("b, kept after forward", [2.0]), ("c", [4.0])]
    assert drawn(cell, dashed=True) == [("", [5.0, 5.0])]
    assert np.allclose(cell.traces[-1].x, [1.6, 2.4]), "across the bar of c"
    assert cell.chart.across["ticktext"] == ["a", "b, kept after<br>forward", "c"]
    colors = [look["marker"]["color"] for look in cell.looks[:3]]
    assert len({*colors}) == 3
    figure = grid([cell])
    assert [trace.type for trace in figure.data] == ["bar"] * 3 + ["scatter"]


def test_ways_are_lines_over_the_settings() -> None:
    names = [f"{way}, {n} ranks" for n in (2, 4) for way in ("ring", "naive")]
    runs = measured(dict(zip(names, [1.0, 2.0, 3.0, 6.0], strict=True)), "bytes_all")
    (cell,) = charts(runs, ["bytes_all"], {f"ring, {n} ranks": {"bytes_all": n} for n in (2, 4)})
    assert drawn(cell) == [("ring", [1.0, 3.0]), ("naive", [2.0, 6.0])]
    assert drawn(cell, dashed=True) == [("", [2.0, 4.0])]
    assert cell.key and cell.chart.across["ticktext"] == ["2 ranks", "4 ranks"]


@pytest.mark.parametrize("of", NOUNS)
def test_only_finished_runs_that_compare_are_drawn(of: str) -> None:
    assert charts(measured({"a": 1.0}, of), [of], {}) == []
    assert charts(measured({"a": 1.0, "b": 2.0}, of, "failed"), [of], {}) == []
    assert len(charts(measured({"a": 1.0, "b": 2.0}, of), [of], {})) == 1
