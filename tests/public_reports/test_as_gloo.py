"""Reports in which the engine must do what Gloo does, or better: many in one job."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from tests.live import ROOT
from tests.public_reports.attached import record
from tests.public_reports.cases import BY_DRIFT, SAID, SURROUNDINGS, WAIT

TWO = """
    # 01: broadcast, reduce and scatter of a column of a matrix
    def column(value):
        return torch.full((2, 4), -1.0).index_fill_(1, torch.tensor(1), float(value))[:, 1]
    a, b, c = column(me + 1), column(me + 1), column(0)
    dist.broadcast(a, src=0)
    dist.reduce(b, dst=0)
    dist.scatter(c, [column(10), column(11)] if me == 0 else None, src=0)
    assert a.tolist() == [1, 1] and c.tolist() == [10 + me] * 2 and (me or b.tolist() == [3, 3])

    # 02: reduce-scatter with AVG
    out = torch.empty(1)
    dist.reduce_scatter_tensor(out, torch.full((2,), float(me + 1)), op=dist.ReduceOp.AVG)
    assert out.item() == 1.5

    # 27: sends and receives, one within the other
    inbox, works = [torch.full((1,), -1.0) for _ in range(3)], []
    for i in range(3):
        if me == 0:
            works += [dist.isend(torch.tensor([float(i)]), 1), dist.irecv(inbox[i], 1)]
        else:
            works.append(dist.irecv(inbox[i], 0))
    if me:
        works += [dist.isend(torch.tensor([10.0 + i]), 0) for i in range(3)]
    for work in works:
        work.wait()
    assert [x.item() for x in inbox] == ([0, 1, 2] if me else [10, 11, 12])

    # 35: gathers of bool, and of nothing
    flags = [torch.zeros(1, dtype=torch.bool) for _ in range(2)]
    dist.all_gather(flags, torch.tensor([me == 0]))
    empty = [torch.zeros(1, 0, 2) for _ in range(2)]
    dist.all_gather(empty, torch.ones(1, 0, 2))
    assert [f.item() for f in flags] == [True, False]
    assert [tuple(e.shape) for e in empty] == [(1, 0, 2)] * 2
    dist.destroy_process_group()
"""
FOUR = """
    import inspect
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    # 24: a group in an order of its own
    if "sort_ranks" in inspect.signature(dist.new_group).parameters:
        turned = dist.new_group([3, 2, 1, 0], sort_ranks=False)
        got = [torch.zeros(1) for _ in range(4)]
        dist.all_gather(got, torch.tensor([float(me)]), group=turned)
        assert [int(g) for g in got] == [3, 2, 1, 0]

    # 28: the view of a tensor that is sharded over columns
    line, x = init_device_mesh("cpu", (4,)), torch.arange(96.0).view(12, 8)
    viewed = distribute_tensor(x, line, [Shard(1)]).view(16, 6)
    assert torch.equal(viewed.full_tensor(), x.view(16, 6))

    # 29: two gathers in one lose a row, in torch 2.13; the day it does not, this says so
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    x = torch.arange(15.0).view(5, 3)
    def gathered():
        parts = distribute_tensor(x, mesh, [Shard(0), Shard(0)])
        return parts.redistribute(mesh, [Replicate(), Replicate()]).to_local()
    assert torch.equal(gathered(), x)
    mesh._flatten("ab")
    if torch.__version__.startswith("2.13."):
        assert not torch.equal(gathered(), x), "torch has mended it: the report is closed"

    # 31: sharded over one rank, replicated over four
    torch.manual_seed(0)
    one = init_device_mesh("cpu", (4, 1), mesh_dim_names=("replica", "shard"))
    model = fully_shard(torch.nn.Linear(3, 1, bias=False), mesh=one)
    model(torch.full((1, 3), float(me + 1))).sum().backward()
    assert model.weight.grad.to_local().flatten().tolist() == [2.5] * 3

    # 08: an all-reduce over replicas in each microbatch, then in the last alone
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    for last_alone in (False, True):
        torch.manual_seed(0)
        model = fully_shard(torch.nn.Linear(16, 16, bias=False), mesh=mesh)
        for micro in range(4):
            if last_alone:
                model.set_requires_all_reduce(micro == 3)
            model(torch.ones(2, 16)).mean().backward()

    # 25: members alone make a group
    x = torch.ones(1)
    if me < 2:
        dist.all_reduce(x, group=dist.new_group([0, 1], use_local_synchronization=True))
    dist.all_reduce(x)
    assert x.item() == 6
    dist.destroy_process_group()
"""


def test_every_report_has_a_place() -> None:
    numbers = [*SAID, *WAIT, *BY_DRIFT]
    assert sorted(numbers) == [*range(1, 38)], "each of the 37 once"
    for words in [*SAID.values(), *SURROUNDINGS.values()]:
        place = re.search(r"tests/[\w/.]+", words)
        assert place is None or (ROOT / place[0]).exists(), words


def test_two_ranks_end_as_over_gloo_or_better(tmp_path: Path) -> None:
    job = record(tmp_path, 2, TWO)
    assert job.failure is None and job.calls()["completed"].all()


@pytest.mark.full
def test_four_ranks_end_as_over_gloo_and_the_axis_is_named(tmp_path: Path) -> None:
    calls = record(tmp_path, 4, FOUR).calls()
    replicas = calls.filter(pl.col("group").str.contains("replica"), collective="all_reduce")
    of_one = replicas.group_by("group", "nbytes").len().filter(nbytes=512)
    assert of_one["len"].to_list() == [5, 5], "4 and 1 of 512 B on each of two groups of replicas"
