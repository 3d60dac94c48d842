"""What torch's profiler says of communication: the same operations, as often, under our name."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from tests.drop_in.both import compare

LATE = 0.2  # seconds


def _profiled(rank: int, n: int) -> dict[str, Any]:
    backend, x = dist.get_backend(), torch.ones(4000)
    out, into = torch.zeros(4000 * n), torch.zeros(4000)
    store = dist.distributed_c10d._get_default_store()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as traced:
        if rank:  # rank 0 has begun the first by then, and waits
            store.wait(["begun"])
            time.sleep(LATE)
        first = dist.all_reduce(x, async_op=True)
        store.set("begun", "")
        assert first is not None
        first.wait()
        for _ in range(3):
            dist.all_reduce(x)
        works = [dist.all_reduce(x, async_op=True), dist.broadcast(x, 0, async_op=True)]
        for work in works:
            assert work is not None
            work.wait()
        dist.all_gather_into_tensor(out, x)
        dist.reduce(x, 0)
        dist.all_to_all_single(out, out.clone())
        dist.barrier()
        work = dist.isend(x, (rank + 1) % n)
        dist.recv(into, (rank - 1) % n)
        assert work is not None
        work.wait()
        with dist.distributed_c10d.record_comm("mine"):
            dist.gather(x, [*out.chunk(n)] if rank == 0 else None)
    prefix = f"{backend}:"
    ours = [e for e in traced.events() if e.name.startswith(prefix) or e.name == "mine"]
    counts = Counter(event.name.removeprefix(prefix) for event in ours)
    operators = Counter(event.name for event in traced.events() if event.name.startswith("c10d::"))
    counts.pop("gather", None)  # Gloo says it beside the title
    sums = [event for event in ours if event.name == f"{prefix}all_reduce"]
    longest = max(event.time_range.elapsed_us() for event in sums)
    return {
        "counts": dict(sorted(counts.items())),
        "torch's names of operators": dict(sorted(operators.items())),
        "shapes": next(filter(None, (event.input_shapes for event in sums))),
        "each takes time": all(event.time_range.elapsed_us() > 0 for event in ours),
        "what is asynchronous lasts until it is done": rank > 0 or longest > 0.9e6 * LATE,
    }


@pytest.mark.full
def test_the_profiler_sees_the_same_operations() -> None:
    compare([_profiled], 2)
