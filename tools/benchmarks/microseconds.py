"""Time the layers of a small all-reduce one by one, on two ranks, in the least disturbed round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks
from workbench.recording.events import NOWHERE
from workbench.recording.lane import cost_of_a_record
from workbench.transports.mailbox import SLOTS

ELEMENTS = 1024  # float32: 4 KB
ROUNDS, CALLS = 99, 100  # so short that some rounds have their core for themselves
TOGETHER = 20  # calls of two ranks together, a round
MESSAGES = 400


def layers(rank: int, n: int, gloo: Any) -> dict[str, float]:
    """Microseconds a call by layer. What asks for no other rank is timed with an algorithm
    that sends nothing: there an all-reduce is all but its messages.
    """
    x, options = torch.zeros(ELEMENTS), AllreduceOptions()
    options.asyncOp = False
    both: Any = dist.distributed_c10d._get_default_group()
    dist.barrier(group=gloo)
    with _without_messages(both, x):
        through_torch = _least(lambda: dist.all_reduce(x))
        of_group = _least(lambda: both.allreduce([x], options))
    frame = _least(_frame(both, x))
    dist.barrier(group=gloo)
    send, receive = _messages(both, rank, gloo, x)
    sent = both.comm.slots.bytes_sent
    whole = _together(lambda: dist.all_reduce(x), gloo)
    calls = ROUNDS * (TOGETHER + 1)
    messages = max(1, round((both.comm.slots.bytes_sent - sent) / calls / x.nbytes))
    result = {
        "torch.distributed's own wrapper": through_torch - of_group,
        "the fast path: which call it is, the group's lock": of_group - frame,
        "begin and end: context, status, page, outer row": frame,
        "sending ends: claim, copy, header, semaphore, row": send * messages,
        "receiving ends: semaphore, header, add, row": receive * messages,
    }
    result["waiting for the other rank, caches, the algorithm"] = whole - sum(result.values())
    result["whole"], result["one row of these"] = whole, cost_of_a_record(10_000) / 1e3
    return result


@contextmanager
def _without_messages(group: Any, x: torch.Tensor) -> Iterator[None]:
    """Have plain all-reduces of ``x`` do all but call their algorithm."""
    dist.all_reduce(x)
    known = group._fast_path._known
    (key,) = (at for at in known if at[0] == "all_reduce" and x.data_ptr() in at)
    before, known[key] = known[key], known[key]._replace(function=lambda *_: None)
    try:
        yield
    finally:
        known[key] = before


def _least(call: Callable[[], Any]) -> float:
    """Microseconds a call, in the round that was disturbed least."""
    means = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter_ns() - start) / CALLS / 1e3)
    return min(means[1:])


def _together(call: Callable[[], Any], gloo: Any) -> float:
    means = []
    for _ in range(ROUNDS):
        call()
        dist.barrier(group=gloo)
        start = time.perf_counter_ns()
        for _ in range(TOGETHER):
            call()
        means.append((time.perf_counter_ns() - start) / TOGETHER / 1e3)
    return min(means)


def _frame(group: Any, x: torch.Tensor) -> Callable[[], None]:
    """Return what begins and ends every collective."""
    comm, plan, numbers = (
        group.comm,
        group.context.plans.plan("all_reduce", x.dtype, len(x), "SUM"),
        group._numbers,
    )

    def call() -> None:
        start = time.monotonic_ns()
        comm.begin(
            "all_reduce", plan.algorithm, next(numbers), plan.number, NOWHERE, x.shape, "float32"
        )
        comm.end(start, plan.nbytes)

    return call


def _messages(group: Any, rank: int, gloo: Any, x: torch.Tensor) -> tuple[float, float]:
    """A slot's sending end and its receiving end, with its add: neither waits."""
    comm, array, spent = group.comm, x.numpy(), list[float]()
    plan = group.context.plans.plan("all_reduce", x.dtype, len(x), "SUM")
    comm.begin(
        "all_reduce", plan.algorithm, next(group._numbers), plan.number, NOWHERE, x.shape, "float32"
    )
    for step in range(MESSAGES):
        for turn in range(2):  # first all send, then all receive
            dist.barrier(group=gloo)
            for slot in range(SLOTS if turn == rank else 0):
                start = time.perf_counter_ns()
                if rank == 0:
                    comm.post(array, to=1, step=step, chunk=0, slot=slot)
                else:
                    comm.recv(array, frm=0, reduce="SUM", step=step, chunk=0, slot=slot)
                if slot:  # the first finds caches cold from the barrier
                    spent.append((time.perf_counter_ns() - start) / 1e3)
    comm.end(0, 0)
    mine = torch.tensor([statistics.median(spent)], dtype=torch.float64)
    each = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(each, mine, group=gloo)
    return each[0].item(), each[1].item()


def measure() -> list[Figure]:
    times = on_ranks(2, layers)
    whole = times["whole"]
    return [
        Figure(words, value, None, "µs", False, f"{100 * value / whole:.0f} % of the whole")
        for words, value in times.items()
    ]
