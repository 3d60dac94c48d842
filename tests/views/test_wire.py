"""How rows travel: what a page unpacks is the event table, whatever was packed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.page import unpack
from tests.store.batches import ROW, batch
from tests.synthetic import training
from workbench.recording.events import CONTEXT, KINDS
from workbench.recording.events import ROW as RECORD
from workbench.store.event_store import Store
from workbench.store.table import SCHEMA, Batch, from_frame, to_frame
from workbench.views.packing import PASSAGE_LAYOUT, ROW_LAYOUT, pack, passages


def unpacked_rows(batches: list[Batch], store: Store, origin: int) -> pl.DataFrame:
    header, block = pack(batches, origin)
    return unpack(header | {"kinds": KINDS, "origin": origin}, block, store.names())


def held(store: Store) -> list[Batch]:
    return list(store._raw)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 30)), max_size=8)
)
def test_what_is_packed_is_the_table(batches: list[tuple[int, str, int]]) -> None:
    store, origin = Store(), 10**15
    for at, (rank, lane, count) in enumerate(batches):
        batch(store, rank, lane, at * 100, count)
    packed = unpacked_rows(held(store), store, origin)
    limit = pl.col("version").clip(upper_bound=2**31 - 1)  # 32 bits on the way
    assert_frame_equal(packed, store.events.with_columns(limit))


def test_columns_begin_at_whole_words_and_are_as_wide_as_the_layout_says() -> None:
    store = Store()
    batch(store, 0, "comm", 0, 13)
    header, block = pack(held(store), 0)
    assert dict(header["layout"]) == ROW_LAYOUT and dict(header["passage_layout"]) == PASSAGE_LAYOUT
    assert header["rows"] == 13 and 1 <= header["passages"] <= 13
    wide = 13 * np.array([8] * 4 + [4] * 4 + [2] * 3 + [1])
    also = header["passages"] * np.array([4] * 7 + [2] * 5)
    assert len(block) == sum(-(-size // 8) * 8 for size in [*wide, *also])


def test_a_passage_ends_where_the_lane_or_the_context_does() -> None:
    contexts = np.zeros(2, CONTEXT)
    contexts["op"] = 7, 8
    rows = np.zeros(6, RECORD)
    rows["context"] = 0, 0, 1, 1, 0, 0
    one, other = Batch(0, 1, rows, contexts), Batch(1, 1, rows[:2], contexts)
    runs = passages([one, other, Batch(2, 1, rows[:0], contexts[:0])])
    assert runs.first.tolist() == [0, 2, 4, 6] and runs.count.tolist() == [2, 2, 2, 2]
    assert runs.context["op"].tolist() == [7, 8, 7, 7] and runs.rank.tolist() == [0, 0, 0, 1]


def test_nothing_packs_to_nothing() -> None:
    header, block = pack([], 5)
    assert (header["rows"], header["passages"], block) == (0, 0, b"")


def test_times_are_exact_for_days() -> None:
    store, origin = Store(), 2**60
    rows, contexts = np.zeros(1, RECORD), np.zeros(1, CONTEXT)
    rows["start_ns"], rows["end_ns"] = origin + 2**52 - 1, origin + 2**52 + 1
    store.append(0, store.number("comm"), rows, contexts)
    assert unpacked_rows(held(store), store, origin).select("start_ns", "end_ns").row(0) == (
        origin + 2**52 - 1,
        origin + 2**52 + 1,
    )


# ---- batches from frames


@given(st.lists(ROW, max_size=20))
def test_a_frame_as_batches_is_the_frame(rows: list[dict[str, object]]) -> None:
    for at, row in enumerate(rows):
        row |= {"kind": KINDS[at % len(KINDS)], "peer": int(row["peer"]) % 100 - 1}  # type: ignore[call-overload]
    frame, store = pl.DataFrame(rows, schema=SCHEMA, orient="row"), Store()
    batches = from_frame(frame, store.number)
    assert all(len(batch.rows) for batch in batches)
    assert_frame_equal(to_frame(batches, store._names), frame)


def test_a_frame_by_rank_makes_a_batch_a_lane() -> None:
    frame, store = training(3).sort("rank", "lane", "seq"), Store()
    batches = from_frame(frame, store.number)
    assert len(batches) == 5  # four ranks' comm, and where the losses are
    assert_frame_equal(to_frame(batches, store._names), frame)
    assert_frame_equal(unpacked_rows(batches, store, 0), frame)


def test_a_kind_that_does_not_exist_is_left_out() -> None:
    frame = training(1)
    strange = pl.when(pl.int_range(pl.len()) == 3).then(pl.lit("juggle")).otherwise("kind")
    store = Store()
    batches = from_frame(
        frame.with_columns(strange.cast(pl.Categorical).alias("kind")), store.number
    )
    kept = frame.filter(pl.int_range(pl.len()) != 3)
    assert_frame_equal(to_frame(batches, store._names), kept)


@pytest.mark.parametrize("frame", [training(1).clear()])
def test_an_empty_frame_makes_no_batch(frame: pl.DataFrame) -> None:
    assert from_frame(frame, Store().number) == []
