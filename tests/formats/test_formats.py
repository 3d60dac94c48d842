"""What others recorded: files that torch writes here, and what Horovod, NCCL and Chakra write."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.processes import command, values
from workbench import laws
from workbench.common.errors import WorkbenchError
from workbench.formats._alignment import shifts
from workbench.formats._recording import _Lanes
from workbench.formats.reading import read

OPERATIONS = [  # after those of DDP's construction, which only the flight recorder has seen
    *("all_reduce", "broadcast", "broadcast", "all_reduce"),  # two iterations, buckets rebuilt
    *("all_reduce", "broadcast", "all_gather", "barrier"),
]


def _recorded(rank: int, n: int, folder: str) -> None:
    """Record a small job with all that torch has."""
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    dist.init_process_group("gloo", rank=rank, world_size=n)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = ExecutionTraceObserver().register_callback(f"{folder}/et.{rank}.json")
    cpu = [ProfilerActivity.CPU]
    with profile(activities=cpu, record_shapes=True, execution_trace_observer=observer) as profiler:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 30)).sum().backward()
            optimizer.step()
        x = torch.ones(1000)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather([torch.zeros(1000) for _ in range(n)], x)
        dist.barrier()
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
    profiler.export_chrome_trace(f"{folder}/kineto.{rank}.json.gz")
    text = torch._C._distributed_c10d._dump_fr_trace_json(True, False)  # type: ignore[attr-defined]
    Path(folder, f"fr.{rank}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    env = {"TORCH_FR_BUFFER_SIZE": "2000"}
    values(_recorded, 2, str(folder), backend="", env=env)
    return folder


def _calls(store: Any, rank: int) -> list[str]:
    calls = store.events.filter(kind="collective", rank=rank).sort("op")
    assert calls["op"].to_list() == list(range(len(calls)))
    return [str(name) for name in calls["collective"]]


def test_the_profilers_traces(recorded: Path) -> None:
    store = read(sorted(recorded.glob("kineto.*")))
    events = store.events
    assert store.metadata["precision"] == "operations only, by torch's profiler"
    assert store.metadata["ranks"] == "2"
    assert laws.check_events(events, complete=False) == []
    for rank in (0, 1):
        assert _calls(store, rank) == OPERATIONS
        computing = events.filter(rank=rank, lane="compute").sort("start_ns")
        assert [*computing["kind"]] == ["forward", "backward", "optimizer"] * 2
        assert computing["iteration"].to_list() == [0, 0, 0, 1, 1, 1]
    calls = events.filter(rank=0, kind="collective").sort("op")
    sizes = [4 * 930, 12, 4, 4 * 930, 4000, 4000, 8000, 0]
    assert calls["nbytes"].to_list()[3:7] == sizes[3:7], "an all-gather's is the whole"
    assert (calls["end_ns"] > calls["start_ns"]).all()
    sent = events.filter(kind="send").row(0, named=True)
    assert (sent["rank"], sent["peer"], sent["nbytes"]) == (0, 1, 4000)


def test_clocks_that_messages_contradict_are_set_right(recorded: Path, tmp_path: Path) -> None:
    """Rank 1's clock is 3 s behind: no message of its ends before it began, and it is said."""
    for rank in (0, 1):
        with gzip.open(recorded / f"kineto.{rank}.json.gz") as file:
            trace = json.load(file)
        for event in trace["traceEvents"]:
            if "ts" in event and rank == 1:
                event["ts"] -= 3_000_000
        with gzip.open(tmp_path / f"kineto.{rank}.json.gz", "wt") as file:
            json.dump(trace, file)
    store, before = (read(sorted(place.glob("kineto.*"))) for place in (tmp_path, recorded))
    assert laws.check_events(store.events, complete=False) == []
    (finding,) = json.loads(store.metadata["findings"])
    assert finding.startswith("Rank 1's clock was behind by ")
    moved, kept = (
        (one.events["end_ns"] - one.events["start_ns"]).sort().to_list() for one in (store, before)
    )
    assert np.allclose(moved, kept, atol=2000), "spans keep their length, to the trace's precision"


def test_shifts_go_on_from_rank_to_rank_and_stop_where_nothing_helps() -> None:
    def message(sender: int, receiver: int, begun: int, ended: int) -> list[dict[str, Any]]:
        return [
            {"rank": sender, "kind": "send", "peer": receiver, "op": 0, "start_ns": begun},
            {"rank": receiver, "kind": "recv", "peer": sender, "op": 0, "end_ns": ended},
        ]

    chain = message(0, 1, 100, 40) + message(1, 2, 50, 60)
    assert shifts(chain) == {1: 60, 2: 50}
    assert shifts(message(0, 1, 100, 140)) == {}
    circle = message(0, 1, 100, 40) + message(1, 0, 100, 40)
    assert shifts(circle) == {}, "no shift makes both right"


def test_the_flight_recorders_dumps_and_what_is_missing(recorded: Path, tmp_path: Path) -> None:
    store = read(sorted(recorded.glob("fr.*")))
    assert "when they were called" in store.metadata["precision"]
    assert laws.check_events(store.events, complete=False) == []
    for rank in (0, 1):
        assert _calls(store, rank)[-len(OPERATIONS) :] == OPERATIONS
    assert json.loads(store.metadata["findings"]) == []

    for rank in (0, 1):
        text = json.loads((recorded / f"fr.{rank}.json").read_text())
        if rank == 1:  # as if it were elsewhere: the barrier, and all after it, were never called
            own = [one for one in text["entries"] if "barrier" not in one["profiling_name"]]
            text["entries"] = [one for one in own if not one["is_p2p"]]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(text))
    (finding,) = json.loads(wb.load(tmp_path).store.metadata["findings"])
    number = len(_calls(store, 0)) - 1
    assert finding == f"Rank 1 never called barrier {number} of group default; Rank 0 did."


def test_pytorchs_execution_traces(recorded: Path) -> None:
    store = read(sorted(recorded.glob("et.*")))
    assert store.metadata["precision"].endswith("without times: their order")
    for rank in (0, 1):
        assert _calls(store, rank) == OPERATIONS
    assert store.events.filter(kind="send")["peer"].to_list() == [1]


def test_a_run_as_a_chakra_trace_and_back(recorded: Path, tmp_path: Path) -> None:
    before = read(sorted(recorded.glob("kineto.*")))
    before.to_chakra(tmp_path)
    loaded = wb.load(tmp_path)
    assert (
        loaded.store.metadata["precision"]
        == "operations only, from a Chakra trace, to the microsecond"
    )
    order = ["rank", "lane", "seq"]
    same = ["rank", "kind", "collective", "op", "peer", "nbytes", "iteration", "group"]
    text = pl.col(pl.Categorical).cast(pl.String)
    one, two = (
        store.events.sort(order).select(same).with_columns(text) for store in (before, loaded.store)
    )
    kept = one.with_columns(
        pl.when(pl.col("kind").is_in(["forward", "backward", "optimizer"]))
        .then(pl.lit(-1))
        .otherwise("nbytes")
        .cast(pl.Int64)
        .alias("nbytes")
    )
    assert two.equals(kept)
    took = (
        (store.events.sort(order).select(pl.col("end_ns") - pl.col("start_ns"))).to_series()
        for store in (before, loaded.store)
    )
    assert max(abs(a - b) for a, b in zip(*took, strict=True)) < 1000, "to the microsecond"
    assert laws.check_events(loaded.events, complete=False) == []


@pytest.mark.full
def test_a_folder_a_file_and_the_command(recorded: Path, tmp_path: Path) -> None:
    whole = recorded.parent / "traces"
    whole.mkdir()
    for file in recorded.glob("kineto.*"):
        shutil.copy(file, whole)
    assert len(wb.load(whole).events) == 2 * len(wb.load(whole / "kineto.0.json.gz").events)
    words = ["open", *map(str, sorted(whole.iterdir())), "--save", str(tmp_path / "run.parquet")]
    ended = command(
        [sys.executable, "-m", "workbench.cli", *words, "--html", str(tmp_path / "run.html")]
    )
    assert ended.returncode == 0, ended.stderr
    assert "operations only, by torch's profiler" in ended.stdout
    saved = wb.load(tmp_path / "run.parquet")
    assert len(saved.events) == len(wb.load(whole).events)
    assert saved.store.metadata["precision"] == "operations only, by torch's profiler"
    assert (tmp_path / "run.html").stat().st_size > 100_000


def test_nccls_kernels_are_the_operations_where_there_is_a_gpu(tmp_path: Path) -> None:
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "pid": 0,
        "tid": 20,
        "ts": 1000.5,
        "dur": 200.25,
        "args": {
            "Collective name": "allreduce",
            "In msg nelems": 1024,
            "dtype": "BFloat16",
            "Group size": 2,
            "Process Group Name": "3",
        },
    }
    call = {**kernel, "cat": "user_annotation", "name": "nccl:all_reduce", "dur": 9, "args": {}}
    info = {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "3", "pg_desc": "mesh_dp"}]}
    text = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": [call, kernel]}
    (tmp_path / "trace.json").write_text(json.dumps(text))
    (row,) = wb.load(tmp_path / "trace.json").events.rows(named=True)
    assert (row["rank"], row["collective"], row["group"]) == (1, "all_reduce", "mesh_dp")
    assert (row["start_ns"], row["end_ns"], row["nbytes"]) == (1_000_500, 1_200_750, 2048)


HOROVOD = [
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 9}},
    {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.weight"}},
    {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
    {"ph": "X", "name": "0", "ts": 100, "pid": 1, "dur": 0},
    {"ph": "X", "name": "1", "ts": 400, "pid": 1, "dur": 0},
    {"ph": "E", "ts": 410, "pid": 1},
    {"ph": "B", "name": "ALLREDUCE", "ts": 420, "pid": 1},
    {"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 430, "pid": 1},
    {"ph": "E", "ts": 440, "pid": 1},
    {"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 440, "pid": 1},
    {"ph": "E", "ts": 500, "pid": 1},
    {"ph": "E", "ts": 510, "pid": 1, "args": {"dtype": "float32", "shape": "[30, 30]"}},
]


def test_horovods_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(HOROVOD))
    loaded = wb.load(path)
    assert "Horovod's rank 0" in loaded.store.metadata["precision"]
    calls = loaded.events.filter(kind="collective").sort("rank")
    assert calls.select("rank", "start_ns", "end_ns", "nbytes").rows() == [
        (0, 100_000, 510_000, 3600),
        (1, 400_000, 510_000, 3600),
    ]
    assert [*calls["name"]] == ["grad.weight"] * 2
    waits = loaded.events.filter(kind="wait").sort("rank").select("rank", "start_ns", "end_ns")
    assert waits.rows() == [(0, 100_000, 420_000), (1, 400_000, 420_000)]
    assert len(loaded.events.filter(kind="copy")) == 1
    assert laws.check_events(loaded.events, complete=False) == []
    path.write_text(json.dumps(HOROVOD)[:-1])  # the job was killed
    assert len(wb.load(path).events) == len(loaded.events)


def test_what_cannot_be_read(recorded: Path, tmp_path: Path) -> None:
    bad = tmp_path / "nccl_trace_rank_0"
    bad.write_bytes(pickle.dumps({"entries": []}))
    with pytest.raises(WorkbenchError, match="is a pickle, and reading one can run code"):
        wb.load(bad)
    with pytest.raises(WorkbenchError, match=r"files of one recording, got .*: open one kind"):
        read([recorded / "kineto.0.json.gz", recorded / "fr.0.json"])
    (tmp_path / "notes.txt").write_text("all went well")
    with pytest.raises(WorkbenchError, match=r"notes.txt: expected one of: .*torch profiler"):
        read([tmp_path / "notes.txt"])
    again = tmp_path / "again.json.gz"
    shutil.copy(recorded / "kineto.0.json.gz", again)
    with pytest.raises(WorkbenchError, match=r"is of rank 0, and so is .*again"):
        read([again, recorded / "kineto.0.json.gz"])


def test_damaged_files_are_refused_by_name(recorded: Path, tmp_path: Path) -> None:
    """Whatever is changed in them: rows, or a sentence."""
    dice = random.Random(0)
    read(sorted(recorded.glob("kineto.*"))).to_chakra(tmp_path / "chakra")
    whole = gzip.decompress((recorded / "kineto.0.json.gz").read_bytes())
    sources = {
        "kineto.0.json": whole,
        "kineto.1.json.gz": (recorded / "kineto.1.json.gz").read_bytes(),
        "fr.0.json": (recorded / "fr.0.json").read_bytes(),
        "trace.0.et": (tmp_path / "chakra" / "trace.0.et").read_bytes(),
        "timeline.json": json.dumps(HOROVOD).encode(),
    }
    refused = 0
    for name, data in sources.items():
        for _ in range(25):
            changed = bytearray(data)
            for _ in range(dice.choice([1, 3, 30])):
                changed[dice.randrange(len(changed))] = dice.randrange(256)
            cut = dice.choice([len(changed), dice.randrange(len(changed))])
            path = tmp_path / name
            path.write_bytes(changed[:cut])
            try:
                read([path])
            except WorkbenchError as error:
                refused += 1
                assert str(path) in str(error)
    assert refused > 10


SPAN = {"ph": "X", "ts": 1, "dur": 1, "name": "gloo:all_reduce", "cat": "cpu_op", "tid": 1}


def kineto_of(*spans: dict[str, object], **info: object) -> dict[str, object]:
    known = {"rank": 0, "world_size": 2, **info}
    return {"schemaVersion": 1, "distributedInfo": known, "traceEvents": [*spans]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (kineto_of(SPAN, world_size=10**9), "claims 1000000000 ranks, and 1 to 32,768 can be"),
        (kineto_of(SPAN, rank=70_000), "claims 70001 ranks"),
        (kineto_of(SPAN, rank=10**9), "claims 1000000001 ranks"),
        (kineto_of(SPAN | {"ts": 1e16}), "start_ns = 10+ has more than 63 bits"),
        (kineto_of(SPAN | {"args": {"Process Group Name": "\ud800"}}), "surrogates not allowed"),
        (
            kineto_of(
                SPAN | {"name": "c10d::send", "args": {"Concrete Inputs": ["", "", "99999", "7"]}},
                SPAN | {"name": "gloo:send"},
            ),
            "peer = 99999 has more than 16 bits",
        ),
    ],
)
def test_a_recording_that_claims_too_much_is_refused_in_a_sentence(
    tmp_path: Path, content: dict[str, object], reason: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(content))
    with pytest.raises(WorkbenchError, match=reason) as refused:
        wb.load(path)
    assert str(path) in str(refused.value)


def test_a_text_that_was_packed_a_thousandfold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"schemaVersion":1,"traceEvents":[' + b"[]," * 10_000_000 + b"[]]}")
    with pytest.raises(WorkbenchError, match="100 times what it was packed into"):
        wb.load(path)


def test_lanes_of_spans_that_cross_are_the_first_that_fit() -> None:
    """As if each lane was asked in turn; and 20,000 that all cross take no square of their time."""
    dice = random.Random(3)
    for _ in range(50):
        spans = sorted(
            ((a, a + dice.randrange(30)) for a in (dice.randrange(60) for _ in range(40))),
            key=lambda span: (span[0], -span[1]),
        )
        lanes, open_spans = _Lanes(), [list[int]() for _ in spans]
        for start, end in spans:
            for ends in open_spans:
                ends[:] = [one for one in ends if one > start]
            first = next(i for i, ends in enumerate(open_spans) if not ends or end <= ends[-1])
            open_spans[first].append(end)
            assert lanes.place(0, "comm", start, end) == (
                f"comm ({first + 1})" if first else "comm"
            )

    def seconds(count: int) -> float:
        lanes, began = _Lanes(), time.thread_time()
        for start in range(count):
            lanes.place(0, "comm", start, start + 10**6)
        return time.thread_time() - began

    seconds(100)
    assert seconds(20_000) < 40 * seconds(2_000)  # 10 times as many; a square would be 100
