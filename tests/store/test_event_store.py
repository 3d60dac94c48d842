"""The store: the contract's table at any moment, the same if spilled, saved or looked at often."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import workbench.store.event_store
from tests.store.batches import batch, filled, settle
from workbench.recording import events
from workbench.runs.loaded import load
from workbench.store.event_store import Store, Tap
from workbench.store.private_folder import private_folder
from workbench.store.table import SCHEMA, Names, to_frame


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 30)), max_size=8)
)
def test_the_table_is_what_was_appended(batches: list[tuple[int, str, int]]) -> None:
    store, records, position, parts = Store(), [], 0, [pl.DataFrame(schema=SCHEMA)]
    for at, (rank, lane, count) in enumerate(batches):
        records += batch(store, rank, lane, at * 100, count)
        if at % 2:
            new, position = store.since(position)
            parts.append(new)
    table = store.events
    assert table.schema == SCHEMA
    assert table.columns == events.COLUMNS
    assert table.to_dicts() == records
    assert len(store) == len(records)
    new, position = store.since(position)
    assert_frame_equal(pl.concat([*parts, new]), table)
    assert position == len(records) and store.since(position)[0].is_empty()
    assert_frame_equal(store.scan().collect(), table)
    assert_frame_equal(pl.concat([pl.DataFrame(schema=SCHEMA), *store.pieces()]), table)


def test_strings_compare_as_strings_do() -> None:
    table = filled(Store()).events
    kinds = table["kind"].to_list()
    assert table.filter(pl.col("kind") == "send").height == kinds.count("send") > 0
    assert table.filter(pl.col("kind").is_in(["send", "recv", "no such kind"])).height > 0
    assert table.filter(pl.col("kind") == "no such kind").is_empty()
    assert set(table["kind"].unique()) == set(kinds)
    assert (
        table.filter(pl.col("lane").cast(pl.String).str.starts_with("com")).height == table.height
    )
    assert table.group_by("kind").len()["len"].sum() == table.height
    plan = table.with_columns(pl.col("kind").cast(pl.String).cast(pl.Categorical))
    assert table.join(plan, on=["rank", "lane", "seq", "kind"]).height == table.height


def test_an_empty_store_has_the_columns() -> None:
    store = Store()
    assert store.events.schema == store.scan().collect_schema() == SCHEMA
    assert store.now.is_empty() and {"rank", "since_ns", "values"} <= set(store.now.columns)
    assert (len(store), store.dropped, store.since(0)[1]) == (0, 0, 0)


def test_a_snapshot_stays_as_it_was_and_is_cheap_to_take_again() -> None:
    store = filled(Store())
    before = store.events
    frames = [*store._frames]
    batch(store, 0, "comm", 10_000, 50)
    after = store.events
    assert (before.height, after.height) == (4000, 4050)
    assert all(one is other for one, other in zip(frames, store._frames, strict=False))


def test_many_small_batches_become_few_frames() -> None:
    store = Store()
    for i in range(600):
        batch(store, 0, "comm", i, 1)
        store.since(i)
    assert len(store._frames) <= workbench.store.event_store._MANY + 1
    assert store.events["seq"].to_list() == list(range(600))


def test_more_names_than_fit_are_said_to_be_too_many() -> None:
    names = Names()
    numbers = [names.number(f"name {i}") for i in range(Names.LIMIT + 10)]
    assert max(numbers) <= 65_535 and names.number("name 5") == numbers[5]
    assert names.texts(np.array([numbers[5], numbers[-1]])).to_list() == ["name 5", Names.FULL]


# ---- a tap


def everything(store: Store, tap: Tap) -> pl.DataFrame:
    """Return what came before the tap, then what it gives."""
    before = [pl.DataFrame(schema=SCHEMA), *store.pieces(tap.position)]
    return pl.concat([*before, to_frame(tap.take(), store._names)])


@pytest.mark.parametrize("memory_rows", [2_000_000, 600])
def test_history_and_tap_are_everything_once(memory_rows: int) -> None:
    store, taps = Store(memory_rows=memory_rows), []
    for i in range(40):
        if i % 7 == 3:
            taps.append(store.tap())
        batch(store, i % 3, "comm", i * 100, 100)
        if i % 5 == 0 and taps:
            for tap in taps:
                tap.take()  # what is taken is history from there on
            _ = store.events
        settle(store)
    assert len({tap.position for tap in taps}) == 2
    for tap in taps:
        assert_frame_equal(everything(store, tap), store.events)
        assert tap.position == len(store) and tap.take() == []


def test_a_tap_gives_the_very_batches_and_keeps_none_when_let_go_of() -> None:
    store = Store()
    tap = store.tap()
    batch(store, 0, "comm", 0, 10)
    (piece,) = tap.take()
    assert piece is store._raw[0]
    batch(store, 0, "comm", 10, 10)
    assert len(store._taps) == 1
    del tap
    gc.collect()
    assert len(store._taps) == 0


@pytest.mark.parametrize("memory_rows", [2_000_000, 500])
def test_pieces_end_at_a_position(memory_rows: int) -> None:
    store = settle(filled(Store(memory_rows=memory_rows)))
    for stop in (0, 1, 99, 100, 101, 2345, 4000, 9999):
        pieces = pl.concat([pl.DataFrame(schema=SCHEMA), *store.pieces(stop)])
        assert_frame_equal(pieces, store.events.head(stop))


def test_names_are_told_from_a_number_on() -> None:
    store = Store()
    numbers = [store.number(text) for text in ("a", "b", "a")]
    assert numbers == [1, 2, 1]
    assert (store.names(), store.names(2), store.names(3)) == (["", "a", "b"], ["b"], [])


# ---- spilling


def test_what_is_put_away_is_read_as_before_and_more_may_come() -> None:
    whole, away = filled(Store()), filled(Store())
    away.put_away()
    assert away._in_memory == 0 and len(away) == len(whole)
    away.put_away()
    assert len(away._parts) == 1, "there was nothing left"
    for store in (whole, away):
        batch(store, 0, "comm", 5000, 10)
    assert_frame_equal(away.events, whole.events)
    Store().put_away()


def test_spilling_changes_nothing(tmp_path: Path) -> None:
    whole, spilled = filled(Store()), Store(memory_rows=600)
    for i in range(40):
        batch(spilled, i % 3, ("comm", "compute")[i % 2], i // 6 * 100, 100)
        settle(spilled)
    assert len(spilled._parts) > 2 and spilled._in_memory <= 600 + 100
    assert len(spilled) == len(whole) == 4000
    assert_frame_equal(spilled.events, whole.events)
    assert_frame_equal(spilled.scan().collect(), whole.scan().collect())
    assert_frame_equal(pl.concat(spilled.pieces()), whole.events)
    for position in (0, 1, 299, 300, 301, 1234, 3999, 4000, 9999):
        ours, theirs = spilled.since(position), whole.since(position)
        assert ours[1] == theirs[1] == 4000
        assert_frame_equal(ours[0], theirs[0])
    for name, store in (("a", whole), ("b", spilled)):
        store.save(tmp_path / name)
    assert_frame_equal(Store.load(tmp_path / "a").events, Store.load(tmp_path / "b").events)
    assert_frame_equal(
        Store.load(tmp_path / "a", memory_rows=10).events, load(tmp_path / "a").events
    )


def test_parts_go_with_the_store() -> None:
    store = settle(filled(Store(memory_rows=500)))
    folder = store._folder
    assert folder is not None and list(folder.iterdir())
    assert store.events.height == 4000
    del store
    gc.collect()
    assert not folder.exists()


def test_parts_go_at_the_interpreters_exit_and_not_at_a_childs() -> None:
    code = """if True:
        import os, sys
        from tests.store.batches import Store, filled, settle
        store = settle(filled(Store(memory_rows=500)))
        if os.fork() == 0:
            sys.exit(0)
        assert os.wait()[1] == 0 and any(store._folder.iterdir())
        print(store._folder)
    """
    root, command = (
        Path(workbench.store.event_store.__file__).parents[2],
        [sys.executable, "-c", code],
    )
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True, timeout=60)
    folder = Path(done.stdout.decode().strip())
    assert folder.name.startswith("workbench-events-") and not folder.exists()


def test_parts_of_a_killed_process_go_with_the_next_one(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys
        from tests.store.batches import Store, filled, settle
        store = settle(filled(Store(memory_rows=500)))
        print(*os.listdir(sys.argv[1]), flush=True)
        if sys.argv[2:]:
            os.kill(os.getpid(), signal.SIGKILL)
    """
    root, folder = Path(workbench.store.event_store.__file__).parents[2], tmp_path / "temporary"
    folder.mkdir()
    living = private_folder(place := Store())  # of this process
    os.rename(living, folder / living.name)
    folders = [
        subprocess.run(
            [sys.executable, "-c", code, str(folder), *how],
            cwd=root,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            timeout=60,
        ).stdout.split()
        for how in (["killed"], [])
    ]
    assert [len(names) for names in folders] == [2, 2] and {*folders[0]} != {*folders[1]}
    assert os.listdir(folder) == [living.name], "a process that lives keeps its own"
    assert place is not None


def test_a_full_disk_keeps_everything_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.warns(UserWarning, match="No space left"):
        store = settle(filled(Store(memory_rows=500)))
    assert store.events.height == 4000 and not store._parts


def test_what_spilled_is_given_back_to_the_machine() -> None:
    """Batches are small and come between other things: freed alone, their memory stays ours."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        pytest.skip("another C library than glibc")
    rows, batches, others = 200, 2_000, []
    store = Store(memory_rows=rows * batches - 1)  # the last one has them spilled
    lane, contexts = store.number("comm"), np.zeros(1, events.CONTEXT)
    for first in range(0, rows * batches, rows):
        records = np.zeros(rows, events.ROW)
        records["seq"] = np.arange(first, first + rows) + 1
        if first == rows * (batches - 1):
            trim(0)
        store.append(0, lane, records, contexts.copy())
        others.append(bytearray(600))
    for thread in threading.enumerate():
        if thread.name == "workbench spill":
            thread.join()
    assert len(store._parts) == 1
    before = anonymous()
    trim(0)
    kept = before - anonymous()
    assert kept < rows * batches * events.RECORD_BYTES / 4


def anonymous() -> int:
    """Bytes of this process's own memory that are resident."""
    words = Path("/proc/self/statm").read_text().split()
    return (int(words[1]) - int(words[2])) * mmap.PAGESIZE


# ---- threads


@pytest.mark.parametrize("memory_rows", [2_000_000, 3_000])
def test_one_writes_while_others_read(memory_rows: int) -> None:
    store, wrong, ended = Store(memory_rows=memory_rows), [], threading.Event()

    def watch() -> None:
        position, count = 0, 0
        while not ended.is_set() or count < len(store):
            new, position = store.since(position)
            expected = np.arange(count, count + new.height)
            if not np.array_equal(new["seq"].to_numpy(), expected):
                wrong.append(("since", count, new))
            count += new.height

    def look() -> None:
        while not ended.is_set():
            for table in (store.events, store.scan().select("seq").collect()):
                if not np.array_equal(table["seq"].to_numpy(), np.arange(table.height)):
                    wrong.append(("events", table))

    threads = [threading.Thread(target=work) for work in (watch, look, look)]
    for thread in threads:
        thread.start()
    for i in range(200):
        batch(store, 0, "comm", i * 50, 50)
    ended.set()
    for thread in threads:
        thread.join(30)
    assert not wrong, wrong[0]
    assert settle(store).events.height == len(store) == 10_000
