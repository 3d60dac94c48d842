"""``--observe``: torch's own group does the work, and every operation is a span."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import torch
import torch.distributed as dist

import workbench as wb
from tests.processes import values
from workbench import laws
from workbench.runs.attach import Watching

PRECISION = "operations only"


def attached(way: str) -> None:
    """Attach this process as the entry point does: torch is imported here already."""
    from workbench import _autoload

    _autoload._attach(dist.distributed_c10d, way)


def _every_operation(rank: int, n: int, way: str) -> list[Any]:
    if way:
        attached(way)
    dist.init_process_group("gloo", rank=rank, world_size=n)
    assert type(dist.group.WORLD).__name__ == ("ObservedGroup" if way else "ProcessGroup")
    results: list[Any] = [dist.get_backend(), dist.get_world_size(), dist.get_rank()]

    x = torch.full((6,), rank + 1.0)
    dist.all_reduce(x)
    results.append(x.tolist())
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    results.append(x.tolist())
    dist.broadcast(x, 1)
    y = torch.full((6,), float(rank))
    dist.reduce(y, 0)
    parts = [torch.zeros(6) for _ in range(n)]
    dist.all_gather(parts, torch.full((6,), float(rank)))
    results.append([part[0].item() for part in parts])
    whole = torch.zeros(2 * n)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
    results.append(whole.tolist())
    own = torch.zeros(3)
    dist.reduce_scatter_tensor(own, torch.ones(3 * n))
    dist.reduce_scatter(own, [torch.ones(3)] * n)
    dist.all_to_all_single(whole, whole.clone())
    dist.gather(x, parts if rank == 0 else None, dst=0)
    dist.scatter(x, parts if rank == 0 else None, src=0)
    results.append(own.tolist())
    dist.monitored_barrier()
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    results.append(objects)

    right, left = (rank + 1) % n, (rank - 1) % n
    sent, got = torch.full((4,), float(rank)), torch.zeros(4)
    for tag in (0, 0, 5):
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, right, tag=tag),
                dist.P2POp(dist.irecv, got, left, tag=tag),
            ]
        )
        for one in works:
            one.wait()
    results.append(got.tolist())
    if rank == 0:
        dist.send(sent, 1)
    elif rank == 1:
        results.append(dist.recv(got))  # from any rank

    part = dist.new_group([0, 1], group_desc="pair")
    if rank < 2:
        dist.all_reduce(x, group=part)
        results.append([dist.get_backend(part), dist.get_process_group_ranks(part)])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 3), rank + 1.0)).sum().backward()
        optimizer.step()
    results.append(model.module.weight.grad.tolist())  # type: ignore[union-attr,operator]
    reduced = torch.distributed._functional_collectives.all_reduce(x, "sum", dist.group.WORLD)
    results.append(reduced.tolist())
    dist.barrier()
    dist.destroy_process_group()
    return results


def test_every_operation_is_seen_and_nothing_else_changes(tmp_path: Path) -> None:
    n = 3
    env = {"WORKBENCH_TRACE": str(tmp_path)}
    watching = Watching(tmp_path)
    try:
        observed = values(_every_operation, n, "operations", backend="", env=env)
        assert watching.wait(120)
        assert watching.state_in_words == ("finished", "All 3 ranks have ended.")
        assert watching.store.metadata["precision"] == PRECISION
    finally:
        watching.close()
    assert observed == values(_every_operation, n, "", backend="")

    loaded = wb.load(tmp_path)
    events = loaded.events.with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert loaded.store.metadata["precision"] == PRECISION and loaded.dropped == 0
    assert laws.check_events(loaded.events) == []
    assert set(events["kind"]) == {"collective", "send", "recv", "optimizer"}
    calls = events.filter(kind="collective", group="default")
    assert set(calls["algorithm"]) == {"gloo"} and (calls["nbytes"] >= 0).all()
    for rank in range(n):
        counts = Counter(calls.filter(rank=rank)["collective"])
        for operation, least in {
            "all_reduce": 2 + 3 + 1,
            "broadcast": 1,
            "reduce": 1,
            "all_gather": 2 + 2,
            "reduce_scatter": 2,
            "all_to_all": 1,
            "gather": 1,
            "scatter": 1,
            "barrier": 1,
            "monitored_barrier": 1,
        }.items():
            assert counts[operation] >= least, (rank, operation, counts)
    each = calls.group_by("op").agg(
        pl.col("collective").n_unique(), pl.col("rank").n_unique().alias("ranks")
    )
    assert (each["collective"] == 1).all() and (each["ranks"] == n).all()
    messages = events.filter(pl.col("kind").is_in(["send", "recv"]))
    assert messages.height == 2 * (3 * n + 1)
    assert set(events.filter(pl.col("group").str.starts_with("pair:"))["rank"]) == {0, 1}
    assert events.filter(kind="optimizer").height == 3 * n
    assert set(calls["iteration"]) == {0, 1, 2, 3}
    own = Path(__file__).name
    assert calls["name"].str.starts_with(f"{own}:").all(), "each call has the line that made it"
