"""The fast path of plain calls: what a call is, is worked out once, and again where anything of it
is new.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.processes import values
from workbench.process_group import fast_path

N = 1000


def _counted(rank: int, n: int) -> dict[str, int]:
    """Return how often the kinds of calls below were worked out, each group of calls by itself."""
    group: Any = dist.group.WORLD
    short, plans = group._fast_path, group.context.plans
    find, plan, totals = short._find, plans.plan, [0, 0]

    def counting(*arguments: Any) -> Any:
        totals[0] += 1
        return find(*arguments)

    def planning(*arguments: Any, **named: Any) -> Any:
        totals[1] += 1
        return plan(*arguments, **named)

    short._find, plans.plan = counting, planning
    counts = {}

    def count(what: str, call: Any) -> None:
        totals[:] = [0, 0]
        call()
        counts[what], counts[f"{what}, planned"] = totals

    x, other, part = torch.ones(N), torch.ones(N), torch.ones(N // n)

    def same() -> None:
        for times in range(1, 6):
            x.fill_(1.0)
            dist.all_reduce(x)
            assert (x == n).all(), times

    def each_new() -> None:
        dist.all_reduce(x, dist.ReduceOp.MAX)
        dist.all_reduce(x[: N // 2])
        dist.all_reduce(x.view(torch.int32))
        dist.all_reduce(other)

    def others() -> None:
        for _ in range(5):
            dist.broadcast(x, 0)
            dist.all_gather_into_tensor(x, part)
            dist.reduce_scatter_tensor(part, other)
            dist.all_to_all_single(other, x)

    def another_algorithm() -> None:
        before, group.context.session.all_reduce = group.context.session.all_reduce, "ring"
        dist.all_reduce(x)
        group.context.session.all_reduce = before
        dist.all_reduce(x)

    for name in (same, each_new, others, another_algorithm):
        count(name.__name__, name)
    count("long", lambda: [dist.all_reduce(x, async_op=True).wait() for _ in range(3)])
    return counts


def _remembered(rank: int, n: int) -> int:
    """Return the arrays whose parts are kept after more kinds of calls than are remembered."""
    group: Any = dist.group.WORLD
    for size in range(1, fast_path.MOST + 4):
        part, whole = torch.full((size + 1,), float(rank)), torch.empty(n * (size + 1))
        for _ in range(2):
            dist.all_gather_into_tensor(whole.zero_(), part)
            assert whole.view(n, -1).eq(torch.arange(n).view(n, 1)).all(), size
    return len(group.comm._cut)


def test_what_is_remembered_of_calls_does_not_grow() -> None:
    assert values(_remembered, 2) == [2 * 3] * 2  # two arrays a call, of those after the boundary


def test_a_plain_call_is_worked_out_once() -> None:
    expected = {"same": 1, "each_new": 4, "others": 4, "another_algorithm": 1}
    both = {name: times for what, times in expected.items() for name in (what, f"{what}, planned")}
    assert values(_counted, 2) == [{**both, "long": 0, "long, planned": 3}] * 2
