"""Of many ranks one works out what "auto" takes; each of them would find the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import HashStore

from tests.processes import values
from workbench.choosing import choose, together
from workbench.choosing.costs import Costs, adapt, default_costs

SIZES = (400, 1 << 18, 1 << 22)
N = 16


def costs() -> Costs:
    return adapt(Costs.from_json(default_costs()))


def choice(store: Any, own: Costs, rank: int, nbytes: int, works: bool = True) -> str:
    return together.choose_together(
        "all_reduce", N, nbytes, own, store=store, rank=rank, works=lambda _: works
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that were worked out, each as often as it was."""
    computed_sizes: list[int] = []
    times = choose.times

    def counting(operation: str, n: int, nbytes: int, costs: Costs) -> dict[str, float]:
        computed_sizes.append(nbytes)
        return times(operation, n, nbytes, costs)

    monkeypatch.setattr(choose, "times", counting)
    return computed_sizes


def test_one_works_it_out_and_all_take_the_same(counted: list[int]) -> None:
    alone = [choose.choose("all_reduce", N, nbytes, costs()) for nbytes in SIZES]
    counted.clear()
    store, choices = HashStore(), dict[int, list[str]]()

    def ask(rank: int, own: Costs) -> None:
        twice = [choice(store, own, rank, nbytes) for nbytes in SIZES for _ in range(2)]
        choices[rank] = twice[::2]

    threads = [threading.Thread(target=ask, args=(rank, costs())) for rank in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert choices == dict.fromkeys(range(5), alone)
    assert len(counted) == len(set(counted)) == len(SIZES)


class Mute(HashStore):
    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        raise NotImplementedError


def test_a_rank_without_an_answer_finds_it_out(counted: list[int]) -> None:
    """The rank that was first has gone; or the store cannot say which was first."""
    alone = choose.choose("all_reduce", N, 400, costs())
    store = HashStore()
    key = "/".join(map(str, choose.key_of("all_reduce", N, 400)))
    assert store.compare_set(f"{key}/by", "", "3") == b"3"
    counted.clear()
    assert choice(store, costs(), 0, 400, works=False) == alone and len(counted) == 1
    assert choice(Mute(), costs(), 0, 400) == alone and len(counted) == 2


def _sizes_without_end(rank: int, n: int) -> tuple[int, int, list[float]]:
    import torch

    from workbench.process_group.plans import MOST_PLANS

    group, first = dist.group.WORLD, torch.ones(1)
    for size in range(1, MOST_PLANS + 200):
        dist.all_reduce(torch.empty(size))
        if size % 100 == 0:
            dist.all_reduce(first)  # what is used again and again stays
    plans = group.context.plans  # type: ignore[union-attr]
    kept = 1 in plans.sizes()
    x = torch.full((5,), float(rank))
    dist.all_reduce(x)
    return len(plans), kept, x.tolist()


def test_plans_of_sizes_without_end_do_not_pile_up() -> None:
    for count, kept, x in values(_sizes_without_end, 2):
        assert (count, kept, x) == (1024, True, [1.0] * 5)
