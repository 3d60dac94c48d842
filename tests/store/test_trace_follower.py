"""WORKBENCH_TRACE=folder: any user's script leaves its records there, whatever becomes of it."""

from __future__ import annotations

import signal
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.pairwise import first
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


@pytest.mark.parametrize("n", first(1, [2, 3]))
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
        "if rank != 1: dist.send(x, 1)\n"  # the other has left the barrier before it ends
        "else: dist.recv(x, 0), os.kill(os.getpid(), signal.SIGKILL)\n"
        "try: dist.all_reduce(x)\n"
        "except workbench.PeerLost as error: sys.exit(0 if 'rank 1' in str(error) else 9)\n"
    )
    ended = run(script, 2, env=env(tmp_path))
    assert [rank.code for rank in ended] == [0, -signal.SIGKILL], ended
    events = wb.load(tmp_path).events
    kinds = events.group_by("rank", "kind").len()
    rows = {(rank, str(kind)): count for rank, kind, count in kinds.rows()}
    assert rows[1, "send"] > 0 and rows[1, "recv"] > 0 and rows[1, "collective"] > 0
    killed = events.filter((pl.col("rank") == 1) & (pl.col("kind") == "collective"))
    assert killed["collective"].cast(pl.String).to_list()[-1] == "barrier"
    assert laws.check_events(events, complete=False) == []


@pytest.mark.full
def test_nothing_is_recorded_unless_asked(tmp_path: Path) -> None:
    ended = run(SCRIPT, 2, env={"WORKBENCH_ALL_REDUCE": "ring"})
    assert [rank.code for rank in ended] == [0, 0], ended
    assert not list(Path.cwd().glob("rank-*"))


def test_a_missing_algorithm_is_named(tmp_path: Path) -> None:
    ended = run(SCRIPT, 2, env={"WORKBENCH_ALL_REDUCE": "rings"})
    for rank in ended:
        assert rank.code == 1
        assert "WORKBENCH_ALL_REDUCE='rings'" in rank.err and "naive, one_shot" in rank.err


GROUPS = """
import torch, torch.distributed as dist
import workbench
dist.init_process_group("workbench")
rank, n = dist.get_rank(), dist.get_world_size()
for i in range(45):
    group, x = dist.new_group(), torch.ones(1 + i)
    dist.all_reduce(x, group=group)
    work = dist.isend(x, (rank + 1) % n, group=group)
    dist.recv(torch.empty(1 + i), (rank - 1) % n, group=group)
    work.wait()
    dist.destroy_process_group(group)
dist.barrier()
"""


@pytest.mark.full
def test_every_group_is_in_the_record_however_many(tmp_path: Path) -> None:
    ended = run(GROUPS, 2, env=env(tmp_path))
    assert [rank.code for rank in ended] == [0, 0], ended
    store = wb.load(tmp_path)
    assert store.dropped == 0 and laws.check_events(store.events) == []
    spans = store.events.filter(
        (pl.col("kind") == "collective") & (pl.col("collective") == "all_reduce")
    )
    # Each group has its own size, and so no group's rows are told of another.
    sizes = spans.select("rank", pl.col("group").cast(pl.String), "nbytes").unique()
    assert sizes.height == 90 and sizes["nbytes"].unique().len() == 45
    assert sizes["group"].n_unique() == 45
    lanes = store.events.select("rank", "lane").unique()["lane"].cast(pl.String)
    for kind in ("comm:", "send:", "recv:"):
        assert lanes.str.starts_with(kind).sum() == 90


MESHES = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import workbench
dist.init_process_group("workbench")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
again = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
pair = [rank - rank % 2, rank - rank % 2 + 1]
mine = dist.new_group(pair, use_local_synchronization=True, group_desc="a pair of my own")
for group in (mesh.get_group("dp"), mesh.get_group("tp"), mine, dist.new_group([0, 1, 2, 3])):
    dist.all_reduce(torch.ones(3), group=group)
"""


@pytest.mark.full
def test_groups_are_called_what_their_makers_called_them(tmp_path: Path) -> None:
    ended = run(MESHES, 4, env=env(tmp_path))
    assert [rank.code for rank in ended] == [0] * 4, ended
    events = wb.load(tmp_path).events
    spans = events.filter(kind="collective").with_columns(pl.col("group").cast(pl.String))
    members = {
        str(name): sorted(rows["rank"].unique()) for (name,), rows in spans.group_by("group")
    }
    kinds = {"mesh_dp": [[0, 2], [1, 3]], "mesh_tp": [[0, 1], [2, 3]]}
    kinds["a pair of my own"] = [[0, 1], [2, 3]]
    for kind, groups in kinds.items():
        own = {name: ranks for name, ranks in members.items() if name.startswith(f"{kind}:")}
        assert sorted(own.values()) == groups, "two groups of one description have two names"
    (number,) = [name for name in members if name.isdecimal()]
    assert members[number] == [0, 1, 2, 3], "one without a description keeps torch's number"
    assert laws.check_events(events) == []
