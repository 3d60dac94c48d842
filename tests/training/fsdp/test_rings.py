"""All-gather and reduce-scatter in rings: right, identical on every rank, in p-1 steps, and the
bytes that the formula says.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from tests.processes import values
from workbench.common.torch_names import all_gather_single, reduce_scatter_single

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bfloat16]
SIZES = [0, 1, 2, 5, 1000, 4097, 70_001]  # elements a rank: the last ones take several slots
OPS = ["SUM", "AVG", "PRODUCT", "MAX", "MIN"]
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8}


def _own(rank: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    drawn = np.random.default_rng([rank, elements]).uniform(0.5, 1.5, elements)
    return torch.from_numpy(drawn * (1 if dtype.is_floating_point else 100)).to(dtype)


def _rings(rank: int, n: int) -> int:
    """Every case on this rank; how many there were."""
    group = dist.group.WORLD
    count = 0
    for dtype in DTYPES:
        for size in SIZES:
            mine = _own(rank, size, dtype)
            kept, out = mine.clone(), torch.empty(n * size, dtype=dtype)
            all_gather_single(out, mine, group=group)
            assert torch.equal(out, torch.cat([_own(r, size, dtype) for r in range(n)]))
            assert torch.equal(mine, kept)
            # In place, as FSDP does it: what this rank has lies where it will be.
            whole = torch.zeros(n * size, dtype=dtype)
            part = whole[rank * size : (rank + 1) * size]
            part.copy_(mine)
            work = all_gather_single(whole, part, group=group, async_op=True)
            assert work is not None
            work.wait()
            assert torch.equal(whole, out)
            for op in OPS if dtype.is_floating_point else OPS[2:]:
                _scatter(rank, n, size, dtype, op)
            count += 1
    return count


def _scatter(rank: int, n: int, size: int, dtype: torch.dtype, op: str) -> None:
    mine = _own(rank, n * size, dtype)
    kept, out = mine.clone(), torch.empty(size, dtype=dtype)
    reduce_scatter_single(out, mine, getattr(dist.ReduceOp, op))
    assert torch.equal(mine, kept), "what was passed is untouched"
    all_ranks = torch.stack([_own(r, n * size, dtype).double() for r in range(n)])
    here = all_ranks[:, rank * size : (rank + 1) * size]
    if op in ("SUM", "AVG"):
        right = here.sum(0) / (n if op == "AVG" else 1)
        bound = (n + 1) * UNIT[dtype] * here.abs().sum(0)
        assert bool(((out.double() - right).abs() <= bound).all()), (dtype, size, op)
    elif op == "PRODUCT":
        right = here.prod(0)
        unit = UNIT.get(dtype, 0.0)
        assert bool(((out.double() - right).abs() <= (n + 1) * unit * right.abs()).all())
    else:
        right = here.amax(0) if op == "MAX" else here.amin(0)
        assert torch.equal(out.double(), right)


@pytest.mark.parametrize("n", first(2, [1, 2, 3, 5, 8]))
def test_rings_are_right_for_every_size_and_dtype(n: int) -> None:
    assert values(_rings, n, timeout=120.0) == [len(DTYPES) * len(SIZES)] * n


def _of_other_kinds(rank: int, n: int) -> bool:
    """Strided ones, complex ones, truth values: as right."""
    mine = torch.arange(12.0).view(3, 4).T + rank
    out = torch.empty(n * 4, 3)
    all_gather_single(out, mine.contiguous())
    odd = torch.complex(torch.full((5,), float(rank)), torch.ones(5))
    gathered = torch.empty(5 * n, dtype=odd.dtype)
    all_gather_single(gathered, odd)
    flags = torch.empty(n, dtype=torch.bool)
    all_gather_single(flags, torch.tensor([rank % 2 == 0]))
    right = torch.cat([(torch.arange(12.0).view(3, 4).T + r) for r in range(n)])
    return (
        torch.equal(out, right)
        and gathered.real.tolist() == [float(r) for r in range(n) for _ in range(5)]
        and flags.tolist() == [r % 2 == 0 for r in range(n)]
    )


def test_what_numpy_does_not_add_is_gathered_too() -> None:
    assert values(_of_other_kinds, 3) == [True] * 3


def _disagree(rank: int, n: int) -> str:
    try:
        all_gather_single(torch.empty(n * (4 + rank)), torch.zeros(4 + rank))
    except RuntimeError as error:
        return str(error)
    return ""


def test_ranks_that_disagree_are_told() -> None:
    messages = values(_disagree, 2, timeout=60.0)
    named = ["all_gather of 4 float32" in words and "5 float32" in words for words in messages]
    assert any(named), messages


@pytest.mark.parametrize("ranks", first(1, [3, 2, 4]))
def test_steps_bytes_and_chunks_are_the_ring_s(ranks: int) -> None:
    run = wb.run(lenet(strategy="fsdp", ranks=ranks, batch_size=12, iterations=2))
    result = run.wait(timeout=60)
    events = run.events.filter(pl.col("group") == "default", pl.col("iteration") >= 0)
    of_ring = events.filter(
        pl.col("collective").cast(pl.String).is_in(["all_gather", "reduce_scatter"])
    )
    assert set(of_ring["algorithm"].cast(pl.String).unique()) == {"ring"}
    sends = of_ring.filter(pl.col("kind") == "send")
    outer = of_ring.filter(pl.col("kind") == "collective")
    for rank in range(ranks):
        for op, nbytes in outer.filter(pl.col("rank") == rank).select("op", "nbytes").iter_rows():
            own = sends.filter((pl.col("rank") == rank) & (pl.col("op") == op))
            assert own["nbytes"].sum() * ranks == nbytes * (ranks - 1)
            assert sorted(own["step"].unique()) == list(range(ranks - 1))
            assert own["chunk"].n_unique() == ranks - 1, "each chunk but one passes each rank"
    assert sends["nbytes"].sum() == sum(result.bytes_sent.values())
    assert math.isclose(len(outer) / ranks, 2 * 3 * 5), "three collectives a layer and iteration"
