"""What operations have to do with each other, whichever algorithm does them: exactly, in int64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from tests.collectives.cases import FILES, SLOT
from tests.collectives.ranks import call_plainly
from tests.pairwise import first
from tests.processes import values
from workbench.collectives import OPERATIONS, algorithms
from workbench.theory import cost_model

N = 1000


def own(rank: int, elements: int) -> Any:
    return np.random.default_rng(rank).integers(-(2**40), 2**40, elements)


class Group:
    """One rank's end of the whole group, and how many combinations of algorithms were compared."""

    def __init__(self, rank: int, n: int) -> None:
        self.rank, self.n, self.root, self.whole, self.count = rank, n, n - 1, N * n, 0
        self.group: Any = dist.group.WORLD

    @property
    def at_root(self) -> bool:
        return self.rank == self.root

    def do(self, operation: str, name: str, *arguments: Any) -> None:
        call_plainly(self.group, operation, name, *arguments)

    def same(self, x: Any, y: Any, words: str) -> None:
        assert (x == y).all(), words
        self.count += 1


def _sums(rank: int, n: int) -> int:
    here = Group(rank, n)
    for name in algorithms("all_reduce"):
        x = own(rank, here.whole)
        here.do("all_reduce", name, x)
        for up, down in product(algorithms("reduce"), algorithms("broadcast")):
            y = own(rank, here.whole)
            here.do("reduce", up, y, here.root)
            here.do("broadcast", down, y, here.root)
            here.same(x, y, f"all_reduce/{name} is not reduce/{up} and broadcast/{down}")
        for before, then in product(algorithms("reduce_scatter"), algorithms("all_gather")):
            part, y = np.empty(N, np.int64), np.empty(here.whole, np.int64)
            here.do("reduce_scatter", before, own(rank, here.whole), part)
            here.do("all_gather", then, part, y)
            here.same(x, y, f"all_reduce/{name} is not reduce_scatter/{before}, all_gather/{then}")
    return here.count


def _parts(rank: int, n: int) -> int:
    here = Group(rank, n)
    root, whole, at_root = here.root, here.whole, here.at_root
    for name, other in product(algorithms("gather"), algorithms("reduce")):
        into, placed = np.zeros(whole, np.int64), np.zeros(whole, np.int64)
        placed[rank * N : (rank + 1) * N] = own(rank, N)
        here.do("gather", name, own(rank, N), into if at_root else None, root)
        here.do("reduce", other, placed, root)
        if at_root:
            here.same(into, placed, f"gather/{name} is not reduce/{other} of parts in their places")
    for name, other in product(algorithms("scatter"), algorithms("gather")):
        there, part, back = own(7, whole), np.empty(N, np.int64), np.zeros(whole, np.int64)
        here.do("scatter", name, there if at_root else None, part, root)
        here.do("gather", other, part, back if at_root else None, root)
        if at_root:
            here.same(back, there, f"gather/{other} does not undo scatter/{name}")
    for name, other in product(algorithms("all_to_all"), algorithms("scatter")):
        x, into, parts = own(rank, whole), np.empty(whole, np.int64), np.empty(whole, np.int64)
        here.do("all_to_all", name, x, into, [N] * n, [N] * n)
        for source in range(n):
            part = parts[source * N : (source + 1) * N]
            here.do("scatter", other, x if rank == source else None, part, source)
        here.same(into, parts, f"all_to_all/{name} is not scatter/{other} of every rank's")
    return here.count


@pytest.mark.full
@pytest.mark.parametrize("n", first(1, [2, 5]))
def test_operations_are_made_of_others(n: int) -> None:
    env = {"WORKBENCH_CHUNK": str(SLOT)}
    assert min(values(_sums, n, env=env)) >= 6 * 8
    counts = values(_parts, n, env=env)
    assert min(counts) >= 2 and max(counts) >= 10


def test_files_are_told_apart_by_operation_and_every_formula_has_one() -> None:
    assert {operation for operation, _ in FILES} == set(OPERATIONS) == set(cost_model.OPERATIONS)
    formulas = {
        (operation, one) for operation, all_ in cost_model.OPERATIONS.items() for one in all_
    }
    assert formulas <= set(FILES)
    assert "scatter_ring" not in algorithms("reduce") and "ring" in algorithms("reduce_scatter")
