"""WORKBENCH_TRACE=folder: anybody's script leaves its records there, whatever becomes of it."""

from __future__ import annotations

import signal
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.processes import run
from workbench import laws

SCRIPT = """
import os, signal, sys, time
import torch, torch.distributed as dist
import workbench
dist.init_process_group("workbench")
rank, n = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 30))
for _ in range(4):
    model(torch.ones(5, 30)).sum().backward()
x = torch.ones(100_000)
dist.all_reduce(x)
work = dist.isend(x, (rank + 1) % n)
dist.recv(torch.empty(100_000), (rank - 1) % n)
work.wait()
dist.barrier()
"""
MESSAGE = ["generation", "group", "collective", "op", "step", "chunk", "slot"]


def env(folder: Path) -> dict[str, str]:
    return {"WORKBENCH_TRACE": str(folder), "WORKBENCH_ALL_REDUCE": "ring"}


@pytest.mark.parametrize("n", [2, 3])
def test_a_plain_script_leaves_one_table(n: int, tmp_path: Path) -> None:
    ended = run(SCRIPT, n, env=env(tmp_path))
    assert [rank.code for rank in ended] == [0] * n, ended
    assert len(list(tmp_path.iterdir())) == n
    store = wb.load(tmp_path)
    events = store.events
    assert store.dropped == 0
    assert laws.check_events(events) == []
    assert sorted(events["rank"].unique()) == list(range(n))
    assert {"comm", "send", "recv"} <= set(events["lane"].unique().cast(pl.String))
    sends, receives = (
        events.filter(pl.col("kind") == kind).with_columns(pl.col("collective").cast(pl.String))
        for kind in ("send", "recv")
    )
    assert len(sends) == len(receives) > 0
    pairs = receives.join(
        sends,
        left_on=["rank", "peer", *MESSAGE],
        right_on=["peer", "rank", *MESSAGE],
        suffix="_sent",
    )
    assert len(pairs) == len(receives), "every recv has one send"
    assert (pairs["start_ns_sent"] < pairs["end_ns"]).all()
    assert (pairs["nbytes_sent"] == pairs["nbytes"]).all()
    spans = events.filter(pl.col("kind") == "collective")["collective"].cast(pl.String)
    assert set(spans) >= {"all_reduce", "broadcast", "barrier"}
    chunks = laws.steps_and_bytes(events)
    assert chunks == []


def test_the_rows_of_a_killed_rank_can_be_read(tmp_path: Path) -> None:
    script = SCRIPT + (
        "if rank != 1: dist.send(x, 1)\n"  # the others have left the barrier before it ends
        "else: dist.recv(x, 0), dist.recv(x, 2), os.kill(os.getpid(), signal.SIGKILL)\n"
        "try: dist.all_reduce(x)\n"
        "except workbench.PeerLost as error: sys.exit(0 if 'rank 1' in str(error) else 9)\n"
    )
    ended = run(script, 3, env=env(tmp_path))
    assert [rank.code for rank in ended] == [0, -signal.SIGKILL, 0], ended
    events = wb.load(tmp_path).events
    kinds = events.group_by("rank", "kind").len()
    rows = {(rank, str(kind)): count for rank, kind, count in kinds.rows()}
    assert rows[1, "send"] > 0 and rows[1, "recv"] > 0 and rows[1, "collective"] > 0
    killed = events.filter((pl.col("rank") == 1) & (pl.col("kind") == "collective"))
    assert killed["collective"].cast(pl.String).to_list()[-1] == "barrier"
    assert laws.check_events(events, complete=False) == []


def test_nothing_is_recorded_unless_asked(tmp_path: Path) -> None:
    ended = run(SCRIPT, 2, env={"WORKBENCH_ALL_REDUCE": "ring"})
    assert [rank.code for rank in ended] == [0, 0], ended
    assert not list(Path.cwd().glob("rank-*"))


def test_a_missing_algorithm_is_named(tmp_path: Path) -> None:
    ended = run(SCRIPT, 2, env={"WORKBENCH_ALL_REDUCE": "rings"})
    for rank in ended:
        assert rank.code == 1
        assert "WORKBENCH_ALL_REDUCE='rings'" in rank.err and "naive, one_shot" in rank.err
