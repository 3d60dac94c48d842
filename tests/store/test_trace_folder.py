"""Files: what ranks wrote before a crash is read after it, and a bad file is told in words."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.live import until
from workbench.common.errors import WorkbenchError
from workbench.recording import events
from workbench.recording.events import ROWS, SEND
from workbench.recording.recorder import Recorder
from workbench.runs.loaded import load
from workbench.store import parquet
from workbench.store.checksum import BLANK, seal
from workbench.store.event_store import Store
from workbench.store.table import SCHEMA


def writes(folder: Path, rank: int, rows: int, *, lanes: tuple[str, ...] = ("comm",)) -> Path:
    """Write a trace of ``rows`` rows a lane, in this process; its folder."""
    recorder = Recorder.into_folder(folder, rank)
    for name in lanes:
        lane = recorder.lane(name)
        for i in range(rows):
            if i % 100 == 0:
                lane.context(recorder.name("all_reduce"), op=i // 100)
            lane.write(SEND, i, i + 1, 1 - rank, name=recorder.name(f"bucket {i % 3}"))
    return folder / f"rank-{rank}-{os.getpid()}"


def in_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


# ---- folders


def test_a_folder_holds_what_all_ranks_wrote(tmp_path: Path) -> None:
    amounts = {0: ROWS + 10, 1: 300}  # more than a block; less
    lanes = ("comm", "compute")
    pids = [in_child(lambda r=r: writes(tmp_path, r, amounts[r], lanes=lanes)) for r in amounts]  # type: ignore[misc]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    store = Store.load(tmp_path)
    table = load(tmp_path).events
    assert table.schema == SCHEMA and store.events.equals(table, null_equal=True)
    counts = table.group_by("rank", "lane").len().sort("rank", "lane").rows()
    assert counts == [(rank, lane, amounts[rank]) for rank in (0, 1) for lane in lanes]
    i = pl.col("seq")
    assert table.select(
        (
            (pl.col("start_ns") == i)
            & (pl.col("op") == i // 100)
            & (pl.col("peer") == 1 - pl.col("rank"))
        ).all()
    ).item()
    assert table.filter(pl.col("name") == "bucket 2")["seq"].to_numpy()[:3].tolist() == [2, 5, 8]
    assert store.dropped == 0 and "problems" not in store.metadata
    assert all(cost > 0 for cost in json.loads(store.metadata["record_cost_ps"]).values())


def test_a_rank_that_was_killed_while_it_wrote_is_read_to_its_last_row(tmp_path: Path) -> None:
    def work() -> None:
        lane = Recorder.into_folder(tmp_path, 0).lane("comm")
        for i in range(10**9):
            lane.context(op=i)
            lane.write(SEND, i, i)

    pid = in_child(work)
    rows = tmp_path / f"rank-0-{pid}" / "0.rows"
    until(lambda: rows.exists() and rows.stat().st_size > ROWS * 64, what="rows come")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    table = load(tmp_path).events
    assert table.height >= ROWS
    assert table["seq"].to_list() == table["op"].to_list() == list(range(table.height))


def test_a_hole_is_counted(tmp_path: Path) -> None:
    path = writes(tmp_path, 0, 300) / "0.rows"
    data = bytearray(path.read_bytes())
    data[100 * 64 : 110 * 64] = bytes(640)
    path.write_bytes(data)
    store = Store.load(tmp_path)
    assert (len(store), store.dropped) == (290, 10)
    assert store.events["seq"].to_list() == [*range(100), *range(110, 300)]


@pytest.mark.parametrize(
    ("damage", "pattern", "left"),
    [
        (lambda f: os.truncate(f / "0.rows", 100 * 64 + 5), r"0\.rows should have a multiple", 200),
        (lambda f: os.truncate(f / "0.contexts", 133), r"0\.contexts should have a multiple", 200),
        (lambda f: (f / "0.rows").unlink(), r"0\.rows: No such file", 100),
        (
            lambda f: os.truncate(f / "trace", 5000),
            f"trace should have {events.DATA_AT:,} bytes",
            100,
        ),
        (lambda f: (f / "trace").write_bytes(b"foreign!" * 100), "trace should have", 100),
        (lambda f: (f / "trace").unlink(), "No such file", 100),
    ],
)
def test_a_damaged_folder_says_what_could_be_read(
    tmp_path: Path, damage: Callable[[Path], object], pattern: str, left: int
) -> None:
    damage(writes(tmp_path, 0, 300))
    writes(tmp_path, 1, 100)
    with pytest.raises(WorkbenchError, match=pattern) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message and f"rank 0: {left - 100}, rank 1: 100" in message
    store = load(tmp_path, partial=True).store
    assert len(store) == left and re.search(pattern, json.loads(store.metadata["problems"])[0])


def test_a_rank_that_ended_before_its_header_does_no_harm(tmp_path: Path) -> None:
    writes(tmp_path, 0, 10)
    (tmp_path / "rank-1-99").mkdir()
    (tmp_path / "rank-1-99" / "trace").write_bytes(bytes(events.DATA_AT))
    assert load(tmp_path).events.height == 10


def test_folders_that_are_not_a_trace_or_are_several(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="expected a folder that WORKBENCH_TRACE named"):
        load(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(WorkbenchError, match="found 1 other file\\."):
        load(tmp_path)
    own = writes(tmp_path, 0, 10)
    own.rename(tmp_path / "rank-0-1")
    writes(tmp_path, 0, 10)
    with pytest.raises(
        WorkbenchError, match=r"one run, found rank 0 of several: rank-0-1, rank-0-"
    ):
        load(tmp_path)


# ---- Parquet


def saved(path: Path) -> Path:
    frame = pl.DataFrame({name: [None] * 5000 for name in SCHEMA})
    own = pl.int_range(5000)
    chance = pl.Series(np.random.default_rng(0).integers(0, 2**50, 5000))
    Store.from_frame(frame.with_columns(seq=own, start_ns=chance, kind=pl.lit("send"))).save(path)
    return path


def test_a_truncated_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "run.parquet")
    size = path.stat().st_size
    for keep in (size - 1, size // 2, 10):
        os.truncate(path, keep)
        with pytest.raises(
            WorkbenchError, match=rf"run\.parquet: expected .* {keep:,} bytes .*truncated"
        ):
            load(path)


def test_foreign_files(tmp_path: Path) -> None:
    foreign = tmp_path / "photo.png"
    foreign.write_bytes(b"\x89PNG" + bytes(200))
    with pytest.raises(WorkbenchError, match=r"photo\.png: .* begin with b'.x89PNG', not"):
        load(foreign)
    with pytest.raises(WorkbenchError, match="no such file or folder"):
        load(tmp_path / "nothing")
    foreign.write_bytes(b"")
    with pytest.raises(WorkbenchError, match="0 bytes"):
        load(foreign)
    other = tmp_path / "other.parquet"
    pl.DataFrame({"x": [1, 2]}).write_parquet(other)
    with pytest.raises(WorkbenchError, match=r"2 rows of the columns x"):
        load(other)


def test_files_of_other_versions(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    frame = Store.from_frame(pl.DataFrame({name: [None] for name in SCHEMA})).events
    header = {"format": parquet.FORMAT, "checksum": BLANK, "dropped": 0, "metadata": {}}

    def written(table: pl.DataFrame, **fields: Any) -> Path:
        table.write_parquet(path, metadata={"workbench": json.dumps(header | fields)})
        seal(path)
        return path

    with pytest.raises(
        WorkbenchError, match=r"missing: phase, slot\. Found, .* can read: rank, lane"
    ):
        load(written(frame.drop("slot", "phase")))
    with pytest.raises(WorkbenchError, match="expected format 2, found format 9, of a newer"):
        load(written(frame, format=9))
    with pytest.raises(WorkbenchError, match="expected format 2, found format 1, from before"):
        load(written(frame, format=1))
    frame.write_parquet(path, metadata={"workbench": "{"})
    with pytest.raises(WorkbenchError, match="without our metadata"):
        load(path)
    assert load(written(frame.with_columns(pl.lit(1).alias("new")))).events.equals(frame)


def test_a_sealed_file_with_damaged_data_is_refused(tmp_path: Path) -> None:
    """As one that was made to deceive: its checksum is right."""
    path = saved(tmp_path / "run.parquet")
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36  # where the first column begins
    path.write_bytes(data)
    seal(path)
    with pytest.raises(WorkbenchError, match=r"expected 23 whole columns, found damaged data"):
        load(path)


def test_any_changed_bit_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path / "run.parquet")
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(8, len(whole) - 8, 200):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        with pytest.raises(WorkbenchError, match=r"run\.parquet: expected "):
            load(path)
    path.write_bytes(whole)
    assert load(path).events.height == 5000


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    with pytest.raises(
        WorkbenchError, match=r"cannot write the event table to .*nowhere/run\.parquet"
    ):
        store.save(tmp_path / "nowhere" / "run.parquet")
    path = saved(tmp_path / "run.parquet")
    before = path.read_bytes()

    def full(self: pl.LazyFrame, beside: Path, **_: object) -> None:
        beside.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", full)
    with pytest.raises(WorkbenchError, match="No space left"):
        store.save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
