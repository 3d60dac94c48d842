"""Changes of links in the event table: in columns, also those of runs that were saved before."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from workbench.shared_memory.link_state import LinkState
from workbench.store import parquet
from workbench.store.event_store import Store
from workbench.store.link_faults import direction, link_of_row, row_values
from workbench.store.table import EMPTY
from workbench.views.pages.tally import Tally

OLD = {
    "link 0->1 20 ms, 10 Mbit/s": ("link", "0->1", 0.02, 1_250_000),
    "link 0->1 cut": ("cut", "0->1", 0.0, -1),
    "link 10->1 100 Mbit/s": ("link", "10->1", 0.0, 12_500_000),
    "link 2->3 restored": ("link", "2->3", 0.0, -1),
    "link to nowhere": ("link to nowhere", "", math.nan, -1),
    "kill": ("kill", "", math.nan, -1),
}
COLUMNS = ["name", "group", "value", "nbytes"]


@pytest.mark.parametrize(
    "link",
    [LinkState(20_000_000, 800_000, False), LinkState(0, 0, False), LinkState(5_000, 0, True)],
    ids=["slow", "restored", "cut"],
)
def test_a_row_says_what_a_link_is(link: LinkState) -> None:
    name, value, nbytes = row_values(link)
    assert link_of_row(name, direction(3, 12), value, nbytes) == {(3, 12): link}
    assert link_of_row("kill", "", math.nan, -1) is None
    assert link_of_row("link", "default", 0.0, -1) is None


def rows(names: list[str]) -> pl.DataFrame:
    """Fault rows of the driver as an older version wrote them."""
    plain = {"rank": -1, "lane": "driver", "kind": "fault", "peer": 1, "value": math.nan}
    blank = {name: "" if kind == pl.Categorical else -1 for name, kind in EMPTY.schema.items()}
    records = [
        blank | plain | {"name": name, "seq": at, "start_ns": at, "end_ns": at}
        for at, name in enumerate(names)
    ]
    return pl.DataFrame(records, schema=EMPTY.schema)


def test_a_run_that_was_saved_before_shows_its_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.parquet"
    monkeypatch.setattr(parquet, "_LINKS", "of no meaning yet")
    parquet.write([rows([*OLD, "pause"])], path, 0, {})
    monkeypatch.undo()
    loaded = wb.load(path)
    faults = loaded.events.sort("seq").select(pl.col("name", "group").cast(str), "value", "nbytes")
    expected = [*OLD.values(), ("pause", "", math.nan, -1)]
    assert faults.equals(pl.DataFrame(expected, schema=faults.schema, orient="row"))
    tally = Tally(loaded.store, {})
    tally.catch_up(len(loaded.store))
    assert {ends: link.words for ends, link in tally.links.items()} == {
        (0, 1): "cut",
        (10, 1): "100 Mbit/s",
        (2, 3): "",
    }
    assert "rank 1 killed" in tally.badges


def test_a_run_that_is_saved_now_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "new.parquet"
    old = rows(["link 0->1 20 ms"])
    parquet.write([old], path, 0, {})
    assert wb.load(path).events["name"].cast(str).to_list() == ["link 0->1 20 ms"]
    assert Store.from_frame(old).events["name"].cast(str).to_list() == ["link"]
