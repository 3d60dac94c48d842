"""The river: what the fullest rank holds, kinds upon each other, as its ledger has it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from workbench.analysis.curves import RIVER, Curves, select
from workbench.analysis.ledger_chart import COLORS, EMPTY, cell
from workbench.analysis.ledgers import KEEP
from workbench.store.event_store import Store


@pytest.fixture(scope="module")
def run() -> wb.Run:
    run = wb.run(
        lenet(
            strategy="zero",
            optimizer="adam",
            options={"zero": 2},
            memory_limit="1.5 MB",
            iterations=KEEP + 2,
        )
    )
    curves = Curves(run.store)
    while not run.done:  # as a live chart does
        curves.update()
    run.wait(timeout=60)
    curves.update()
    assert RIVER in curves.offered
    assert curves.select(RIVER).equals(select(run.store, RIVER)), "read as it came, or at the end"
    return run


def test_the_river_is_what_the_ledger_counts(run: wb.Run) -> None:
    river, table = select(run.store, RIVER), run.memory()
    (rank,) = river["rank"].unique()
    kinds = [kind for kind in COLORS if kind in river.columns]
    assert set(kinds) == set(table["kind"]) - {"all"}
    peaks = dict(table.filter(pl.col("rank") == rank).select("kind", "peak_bytes").iter_rows())
    for kind in kinds:
        assert river[kind].max() == peaks[kind], kind
    assert river.select(pl.sum_horizontal(kinds)).to_series().max() == peaks["all"]
    assert peaks["all"] == table.filter(kind="all")["peak_bytes"].max(), "the fullest rank"
    assert river["seconds"].is_sorted() and river["iteration"].to_list()[0] == 2
    assert river["parameters"].min() > 0, "held since before the newest iterations"


def test_its_chart_stacks_kinds_below_the_limit(run: wb.Run, tmp_path: Path) -> None:
    run.store.save(tmp_path / "run.parquet")
    for theme in ("light", "dark"):
        figure = wb.load(tmp_path / "run.parquet").figure("river", theme)
        *bands, limit = figure.data
        assert {band.stackgroup for band in bands} == {"held"}
        assert limit.name == "memory_limit" and set(limit.y) == {1_500_000}
        title = figure.layout.annotations[0].text
        assert "newest 20 iterations" in title and "most 1.1" in title
        assert "unreduced gradients" in title


def test_a_run_without_a_ledger_has_an_empty_chart() -> None:
    columns = select(Store(), RIVER)
    assert EMPTY in cell(columns).title and RIVER not in Curves(Store()).offered
