"""The event store saved and loaded: equal, in pieces, and of few bytes an event."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.store.batches import ROW, TEXT, filled, settle
from workbench.runs.loaded import load
from workbench.store import parquet
from workbench.store.event_store import Store
from workbench.store.table import SCHEMA


@given(st.lists(ROW, max_size=20), st.dictionaries(TEXT, st.text(), max_size=3), st.integers(0))
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, object]],
    metadata: dict[str, str],
    dropped: int,
) -> None:
    for seq, row in enumerate(rows):
        row["seq"] = seq
    path = tmp_path_factory.mktemp("saved") / "run.parquet"
    store = Store.from_frame(pl.DataFrame(rows, schema=SCHEMA, orient="row"), metadata)
    store.dropped = dropped
    store.save(path)
    loaded = load(path)
    assert loaded.store.metadata == metadata and loaded.dropped == dropped
    assert len(loaded.store) == len(rows) and loaded.events.schema == SCHEMA
    key = lambda row: (row["rank"], row["lane"], row["seq"])  # noqa: E731
    records = loaded.events.to_dicts()
    for one, other in zip(records, sorted(rows, key=key), strict=True):
        assert all(one[name] == value or math.isnan(value) for name, value in other.items())  # type: ignore[arg-type]
    assert loaded.events.null_count().sum_horizontal().sum() == 0
    assert sorted(path.parent.iterdir()) == [path]  # nothing of the writing is left


def test_a_long_run_is_saved_in_pieces_and_asked_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PIECE_ROWS", 700)
    store = settle(filled(Store(memory_rows=500)))
    store.save(tmp_path / "run.parquet")
    lazy = Store.load(tmp_path / "run.parquet", memory_rows=10)
    key = ["rank", "lane", "seq"]
    assert_frame_equal(lazy.events.sort(key), store.events.sort(key))
    for (_, _), lane in lazy.events.group_by("rank", "lane", maintain_order=True):
        assert lane["seq"].is_sorted()
    for ask in (pl.col("start_ns") > 2**49, pl.col("kind") == "send", pl.col("rank") == 1):
        plan = lazy.scan().filter(ask).explain()
        assert "SELECTION" in plan and "FILTER" not in plan  # the file's reader does it
        assert lazy.scan().filter(ask).collect().height == store.events.filter(ask).height > 0
    ends = pl.col("end_ns") > 2**49
    assert lazy.scan().filter(ends).collect().height == store.events.filter(ends).height > 0


def test_a_frame_from_elsewhere_gets_the_columns_types_and_no_nulls() -> None:
    plan = pl.DataFrame(
        {name: [None] for name in SCHEMA} | {"rank": [1], "kind": ["send"], "extra": [5]}
    ).with_columns(pl.col("kind").cast(pl.Enum(["send", "recv"])))
    row = Store.from_frame(plan).events.to_dicts()[0]
    assert math.isnan(row.pop("value")) and (row.pop("rank"), row.pop("kind")) == (1, "send")
    assert set(row.values()) == {-1, ""}


def test_a_realistic_run_takes_few_bytes_an_event(tmp_path: Path) -> None:
    """Ring all-reduce of 4 ranks, 150 calls: sends, waits and recvs with lognormal durations."""
    chance, pieces = np.random.default_rng(0), []
    kinds, steps = np.tile(["send", "wait", "recv"], 12), np.repeat(np.arange(6), 6)
    for rank in range(4):
        count = 150 * 36
        took, gap = chance.lognormal(10, 0.5, count).astype(int), chance.integers(200, 1200, count)
        end, step, kind = np.cumsum(took + gap) + 10**15, np.tile(steps, 150), np.tile(kinds, 150)
        sending = kind == "send"
        own = pl.DataFrame(
            {
                "seq": np.arange(count),
                "start_ns": end - took,
                "end_ns": end,
                "kind": kind,
                "step": step,
                "chunk": (rank - step - ~sending) % 4,
                "slot": np.arange(count) // 3 % 2,
                "op": np.arange(count) // 36,
                "iteration": np.arange(count) // 144,
                "peer": np.where(sending, (rank + 1) % 4, (rank - 1) % 4),
                "nbytes": np.where(kind == "wait", -1, 65_536),
                "phase": np.where(step < 3, "reduce_scatter", "all_gather"),
            }
        ).with_columns(
            rank=rank,
            lane=pl.lit("comm"),
            collective=pl.lit("all_reduce"),
            algorithm=pl.lit("ring"),
            group=pl.lit("default"),
        )
        pieces.append(
            own.with_columns(pl.lit(None).alias(c) for c in SCHEMA if c not in own.columns)
        )
    store = Store.from_frame(pl.concat(pieces))
    store.save(tmp_path / "run.parquet")
    assert (tmp_path / "run.parquet").stat().st_size <= 12 * len(store)
