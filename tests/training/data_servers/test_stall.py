"""The input stall of a run: its curve, its chart and its measure, from made rows."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from workbench.analysis.curves import Curves
from workbench.presets import data_servers
from workbench.presets.catalogue import comparisons
from workbench.presets.catalogue import presets as all_presets
from workbench.store.event_store import Store
from workbench.views.pages import figures

MS = 1_000_000
BLANK: dict[str, Any] = {
    "lane": "compute",
    "generation": 0,
    "collective": "",
    "algorithm": "",
    "phase": "",
    "group": "",
    "op": -1,
    "peer": -1,
    "step": -1,
    "chunk": -1,
    "slot": -1,
    "nbytes": -1,
    "microbatch": -1,
    "stage": -1,
    "version": -1,
    "value": math.nan,
    "name": "",
}


def store(stall: dict[int, float], *, served: bool = True, iterations: int = 6) -> Store:
    """Each rank loads for 1 ms and computes for 9; before that it waits for its stall, in ms."""
    rows = []
    for rank, ms in stall.items():
        for iteration in range(iterations):
            start = (10**6 + iteration * 100) * MS
            here = {"rank": rank, "iteration": iteration}
            came = start + int(ms * MS)
            if served:
                rows.append({**here, "kind": "pull", "start_ns": start, "end_ns": came})
                metric = {"name": "stall", "value": ms + 1, "start_ns": came + MS}
                rows.append({**here, "kind": "metric", "end_ns": came + MS, **metric})
            rows.append({**here, "kind": "load", "start_ns": came, "end_ns": came + MS})
            rows.append(
                {**here, "kind": "forward", "start_ns": came + MS, "end_ns": came + 10 * MS}
            )
    whole = [{**BLANK, "seq": n, **row} for n, row in enumerate(rows)]
    return Store.from_frame(pl.DataFrame(whole, infer_schema_length=None))


def curve(events: Store) -> tuple[Curves, pl.DataFrame]:
    curves = Curves(events)
    curves.update()
    return curves, curves.select("input")


def test_the_stall_is_the_mean_over_ranks_and_the_wait_is_exposed() -> None:
    curves, columns = curve(store({1: 4.0, 2: 8.0}))
    assert columns["stall_ms"].to_list() == pytest.approx([7.0] * 6)
    assert columns["step_ms"].to_list() == pytest.approx([16.0] * 6)
    assert "input" in curves.offered
    exposed = curves.select("communication")["exposed_ms"]
    assert exposed.to_list() == pytest.approx([6.0] * 6)


def test_without_a_server_it_is_what_loading_takes_and_no_chart_is_offered() -> None:
    curves, columns = curve(store({0: 0.0, 1: 0.0}, served=False))
    assert columns["stall_ms"].to_list() == pytest.approx([1.0] * 6)
    assert "input" not in curves.offered


def test_the_chart_says_it_in_numbers() -> None:
    figure = figures.figure(store({1: 4.0}), "input")
    assert "stands still for examples 5.00 ms of a" in figure.layout.annotations[0].text
    assert "step of 14.00 ms" in figure.layout.annotations[0].text
    assert [trace.name for trace in figure.data] == ["stands still for examples", "the whole step"]


def test_its_presets_and_comparisons_are_among_all() -> None:
    own = [name for name, *_ in data_servers.presets()]
    assert {all_presets()[name].group for name in own} == {"Examples"}
    for name, _, make in data_servers.comparisons():
        assert comparisons()[name].make() == make() and len(make()) > 2
