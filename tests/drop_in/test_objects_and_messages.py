"""Objects that travel pickled, and messages: any source, tags, batches, sub-groups, to oneself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.drop_in.both import compare, raised
from tests.processes import values


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def things(rank: int) -> list[Any]:
    return [{"rank": rank, "text": "x" * rank}, [Point(rank).x] * (rank * 3000), None, {1, rank}]


def _objects(rank: int, n: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    gathered: list[Any] = [None] * n
    dist.all_gather_object(gathered, things(rank))
    results["all_gather_object"] = gathered
    objects = things(rank) if rank == 1 else [None] * 4
    dist.broadcast_object_list(objects, src=1)
    results["broadcast_object_list"] = objects
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [things(i) for i in range(n)] if rank == 0 else None, src=0)
    results["scatter_object_list"] = mine
    into: list[Any] | None = [None] * n if rank == n - 1 else None
    dist.gather_object(things(rank), into, dst=n - 1)
    results["gather_object"] = into
    for batch in (False, True):
        back: list[Any] = [None] * 4
        if rank == 0:
            dist.send_object_list(things(7), dst=1, use_batch=batch)
        elif rank == 1:
            sender = dist.recv_object_list(back, src=0, use_batch=batch)
            results[f"recv_object_list {batch}"] = [sender, back]
    if rank == 0:
        dist.send_object_list([Point(3).x], dst=1, device=torch.device("cpu"))
    elif rank == 1:
        back = [None]
        dist.recv_object_list(back, src=0, device=torch.device("cpu"))
        results["with a device"] = back
    pair = dist.new_group([0, 1])
    if rank < 2:
        objects = [rank, "of the pair"]
        dist.broadcast_object_list(objects, group_src=1, group=pair)
        gathered = [None] * 2
        dist.all_gather_object(gathered, rank, group=pair)
        results["in a pair"] = [objects, gathered]
    return results


def _messages(rank: int, n: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if rank == 0:  # from any rank, then by tag, in another order than they were sent
        arrivals = []
        for _ in range(n - 1):
            x = torch.zeros(3000)
            frm = dist.recv(x)
            arrivals.append([frm, x[0].item()])
        results["from any rank"] = sorted(arrivals)
        xs = [torch.zeros(5) for _ in range(3)]
        for tag in (2, 1, 0):
            results[f"sender of {tag}"] = dist.recv(xs[tag], src=1, tag=5 + tag)
        results["by tag"] = xs
        anyone = torch.zeros(2)
        work = dist.irecv(anyone, tag=9)
        assert work is not None
        work.wait()
        results["any source, one tag"] = [anyone, work._source_rank()]
    else:
        dist.send(torch.full((3000,), float(rank)), 0)
        if rank == 1:
            works = [dist.isend(torch.full((5,), float(i)), 0, tag=5 + i) for i in range(3)]
            for work in works:
                work.wait()
        if rank == n - 1:
            dist.send(torch.ones(2), 0, tag=9)
    dist.barrier()
    right, left = (rank + 1) % n, (rank - 1) % n
    xs = [torch.zeros(4), torch.zeros(60_000), torch.zeros(2, 2, dtype=torch.int64)]
    ops = []
    for i, x in enumerate(xs):
        ops += [
            dist.P2POp(dist.isend, torch.full_like(x, rank * 10 + i), right),
            dist.P2POp(dist.irecv, x, left),
        ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    results["batch"] = xs
    results["complex"] = []
    for dtype in (torch.complex64, torch.complex128):
        x = torch.zeros(6, dtype=dtype)
        work = dist.isend(torch.full((6,), complex(rank, 1), dtype=dtype), right)
        dist.recv(x, left)
        work.wait()
        results["complex"].append(x)
    pair = dist.new_group([n - 1, 0], sort_ranks=False)
    if rank in (0, n - 1):
        x = torch.zeros(3)
        if rank == 0:
            dist.send(torch.full((3,), 4.0), group=pair, group_dst=0)
        else:
            results["group ranks"] = [dist.recv(x, group=pair, group_src=1), x]
        x = torch.full((2,), float(rank))
        op = dist.P2POp(dist.isend if rank else dist.irecv, x, n - 1 - rank, group=pair)
        for work in dist.batch_isend_irecv([op]):
            work.wait()
        results["batch in a group"] = x
    return results


def _refused(rank: int, n: int) -> dict[str, Any]:
    x = torch.ones(3)
    return {
        "to oneself": raised(lambda: dist.send(x, rank)),
        "no tensor": raised(lambda: dist.send(3, (rank + 1) % n)),  # type: ignore[arg-type]
        "two groups": raised(lambda: dist.batch_isend_irecv([dist.P2POp(dist.all_reduce, x, 0)])),
    }


def _to_oneself(rank: int, n: int) -> list[float]:
    x, into = torch.full((3,), rank + 1.0), torch.zeros(3)
    works = [dist.irecv(into, rank), dist.isend(x, rank)]
    for work in works:
        assert work is not None
        work.wait()
    assert raised(lambda: dist.send(x, n)) == "CollectiveError"  # Gloo waits for that rank
    dist.barrier()
    return into.tolist()


@pytest.mark.full
def test_objects_and_messages() -> None:
    compare([_objects, _messages, _refused], 3, exact=True)


def test_a_message_to_oneself() -> None:
    """Which torch allows, and Gloo answers by breaking its connections."""
    assert values(_to_oneself, 2) == [[1.0] * 3, [2.0] * 3]
