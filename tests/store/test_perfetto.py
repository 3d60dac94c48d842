"""The Perfetto export: every row once, exact times, an arrow for each message."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.common.errors import WorkbenchError
from workbench.store.event_store import Store
from workbench.store.perfetto import match_messages
from workbench.store.table import SCHEMA

WAYS = "flow_out", "flow_in"
START = 3_000_000_000_123_457
BLANK = {
    n: "" if t == pl.Categorical else math.nan if n == "value" else -1 for n, t in SCHEMA.items()
}


def row(rank: int, lane: str, kind: str, start: int, end: int, **more: object) -> dict[str, object]:
    where = {
        "rank": rank,
        "lane": lane,
        "kind": kind,
        "start_ns": START + start,
        "end_ns": START + end,
    }
    return BLANK | where | more


def message(sender: int, receiver: int, op: int, at: int = 0) -> list[dict[str, object]]:
    key = {
        "collective": "all_reduce",
        "group": "default",
        "op": op,
        "step": 0,
        "chunk": 1,
        "slot": 0,
    }
    return [
        row(sender, "comm", "send", at, at + 500, peer=receiver, nbytes=64, generation=0, **key),
        row(
            receiver,
            "comm",
            "recv",
            at + 200,
            at + 900,
            peer=sender,
            nbytes=64,
            generation=0,
            **key,
        ),
    ]


def exported(
    rows: list[dict[str, object]], path: Path, metadata: dict[str, str] | None = None
) -> Any:
    for seq, one in enumerate(rows):
        one["seq"] = seq
    Store.from_frame(pl.DataFrame(rows, schema=SCHEMA, orient="row"), metadata).to_perfetto(path)
    return json.loads(path.read_text())


def test_what_perfetto_is_told(tmp_path: Path) -> None:
    rows = [
        row(0, "comm", "collective", 0, 2_000_001, name='bucket "0" ü', op=7, iteration=3),
        *message(0, 1, 7),
        row(1, "compute", "metric", 1000, 1000, name="loss", value=0.25, iteration=3),
        row(1, "compute", "metric", 1001, 1001, name="loss"),  # NaN: JSON has no such number
        row(1, "server", "fault", 5000, 5000, name="killed"),
    ]
    trace = exported(rows, tmp_path / "run.json", {"spec": 'a: "b"\n'})
    assert trace["otherData"] == {"origin_ns": str(START), "dropped": "0", "spec": 'a: "b"\n'}
    by_phase = {phase: [e for e in trace["traceEvents"] if e["ph"] == phase] for phase in "MXC"}
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in by_phase["M"] if e["name"] == "thread_name"
    }
    assert [e["args"]["name"] for e in by_phase["M"] if e["name"] == "process_name"] == [
        "rank 0",
        "rank 1",
    ]
    assert sorted(threads.values()) == ["comm", "comm", "compute", "server"]

    outer, send, recv, fault = by_phase["X"]  # ordered by start, the outer span first
    assert outer == {
        "ph": "X",
        "pid": 0,
        "tid": send["tid"],
        "cat": "collective",
        "ts": 0,
        "dur": 2000.001,
        "name": 'collective bucket "0" ü',
        "args": {"op": 7, "iteration": 3, "seq": 0},
    }
    assert threads[0, send["tid"]] == "comm" and send["name"] == "send"
    assert send["args"] == {
        "generation": 0,
        "op": 7,
        "peer": 1,
        "step": 0,
        "chunk": 1,
        "slot": 0,
        "nbytes": 64,
        "seq": 1,
        "collective": "all_reduce",
        "group": "default",
    }
    assert (recv["pid"], recv["ts"], recv["dur"]) == (1, 0.2, 0.7)
    assert (fault["name"], fault["ts"], fault["dur"]) == ("fault killed", 5, 0)
    loss = {"ph": "C", "pid": 1, "name": "loss", "ts": 1, "args": {"value": 0.25}}
    assert by_phase["C"] == [loss]
    assert send["bind_id"] == recv["bind_id"] and send["flow_out"] and recv["flow_in"]
    assert "flow_in" not in send and "flow_out" not in recv
    assert "bind_id" not in outer | fault


def test_spans_are_called_what_they_are(tmp_path: Path) -> None:
    rows = [
        row(0, "comm", "collective", 0, 9, collective="all_reduce", name="bucket 0"),
        row(0, "comm", "collective", 10, 19, collective="broadcast"),
        row(0, "comm", "send", 11, 12, collective="broadcast"),
        row(0, "comm", "collective", 20, 21),
        row(0, "send", "send", 0, 1, collective="p2p", name="activation"),
        row(0, "recv", "recv", 2, 3, collective="p2p"),
        row(0, "recv", "wait", 1, 2, collective="p2p"),
        row(0, "compute", "forward", 0, 1, name="layer"),
    ]
    exported(rows, tmp_path / "run.json")
    trace = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert sorted((e["cat"], e["name"]) for e in trace if e["ph"] == "X") == sorted(
        zip(
            [one["kind"] for one in rows],
            "all_reduce bucket 0|broadcast|send|collective|p2p send activation|p2p recv|p2p wait|"
            "forward layer".split("|"),
            strict=True,
        )
    )


def test_whole_nanoseconds_survive(tmp_path: Path) -> None:
    rows = [row(0, "comm", "send", at, at + 1) for at in (0, 1, 999, 1000, 1001, 10**15 + 7)]
    exported(rows, tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text()
    for microseconds in ("0.000", "0.001", "0.999", "1.000", "1.001", "1000000000000.007"):
        assert f'"ts":{microseconds},"dur":0.001' in text


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), max_size=12),
    st.sets(st.integers(0, 23), max_size=6),
)
def test_arrows_are_the_matched_messages(
    tmp_path_factory: pytest.TempPathFactory, keys: set[tuple[int, int, int]], lost: set[int]
) -> None:
    whole = [one for at, key in enumerate(sorted(keys)) for one in message(*key, at=1000 * at)]
    rows = [one for at, one in enumerate(whole) if at not in lost]
    pairs = [key for at, key in enumerate(sorted(keys)) if not {2 * at, 2 * at + 1} & lost]
    trace = exported(rows, tmp_path_factory.mktemp("perfetto") / "run.json")["traceEvents"]
    ends = {way: {e["bind_id"]: e["pid"] for e in trace if way in e} for way in WAYS}
    tails, heads = ends.values()
    assert tails.keys() == heads.keys()
    arrows = Counter((tails[i], heads[i]) for i in tails)
    assert arrows == Counter((sender, receiver) for sender, receiver, _ in pairs)
    assert sum(e.get("ph") == "X" for e in trace) == len(rows)


def test_a_row_that_is_there_twice_has_one_arrow() -> None:
    send, recv = message(0, 1, 7)
    table = pl.DataFrame([send, recv, send, recv], schema=SCHEMA, orient="row")
    assert match_messages(table.lazy()).collect().height == 1


def test_every_part_of_the_key_counts() -> None:
    for column, other in (
        ("generation", 1),
        ("group", "b"),
        ("collective", "p2p"),
        ("op", 8),
        ("step", 1),
        ("chunk", 0),
        ("slot", 1),
        ("rank", 2),
        ("peer", 2),
    ):
        send, recv = message(0, 1, 7)
        table = pl.DataFrame([send, recv, recv | {column: other}], schema=SCHEMA, orient="row")
        assert match_messages(table.lazy()).collect().height == 1, column
        assert match_messages(table[[0, 2]].lazy()).collect().is_empty(), column


def test_an_empty_run_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    trace = exported([], tmp_path / "run.json")
    assert [e for e in trace["traceEvents"] if e] == []
    with pytest.raises(WorkbenchError, match="cannot write a Perfetto trace to"):
        Store().to_perfetto(tmp_path / "nowhere" / "run.json")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "run.json"]


def test_a_run_of_several_pieces_is_one_trace(tmp_path: Path) -> None:
    rows = [one for op in range(300) for one in message(0, 1, op, at=1000 * op)]
    for seq, one in enumerate(rows):
        one["seq"] = seq
    Store.from_frame(pl.DataFrame(rows, schema=SCHEMA, orient="row")).save(tmp_path / "run.parquet")
    for memory_rows in (100, 10_000):  # read from disk, from memory
        store = Store.load(tmp_path / "run.parquet", memory_rows=memory_rows)
        store.to_perfetto(tmp_path / f"{memory_rows}.json")
    one, other = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (100, 10_000))
    phases = Counter(e["ph"] for e in one["traceEvents"])
    assert phases == Counter(e["ph"] for e in other["traceEvents"])
    assert phases["X"] == 600
    for trace in (one, other):
        assert [sum(way in e for e in trace["traceEvents"]) for way in WAYS] == [300, 300]
