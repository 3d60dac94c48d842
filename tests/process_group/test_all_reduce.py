"""All-reduce of the backend: exact to the bound, the same bits everywhere, any tensor."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.pairwise import first
from tests.process_group.common import DTYPES, OPS, SLOT, bound, inputs, reference
from tests.processes import values
from workbench.collectives import algorithms

NAMES = [*algorithms("all_reduce"), "auto"]


def use(algorithm: str) -> None:
    from workbench.process_group.session import session

    session().all_reduce = algorithm


def check_all_reduce(rank: int, n: int, elements: int, dtype: torch.dtype, op: str) -> str | None:
    """None, or what is wrong. Every rank compares its bits with rank 0's."""
    case = f"n={n} N={elements} {dtype} {op}"
    x = inputs(rank, elements, dtype, op)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    outcome, magnitudes = reference([inputs(r, elements, dtype, op) for r in range(n)], op)
    got = x.double().numpy() if dtype.is_floating_point else x.numpy()
    if dtype.is_floating_point:
        error = np.abs(got.astype(np.longdouble) - outcome)
        limit = bound(n, dtype, op, outcome, magnitudes)
        if not (error <= limit + 1e-300).all():
            return f"{case}: error {error.max()}"
    elif not (got == outcome.astype(got.dtype)).all():
        return f"{case}: {got[:4]} is not {outcome[:4]}"
    mine = x.contiguous().as_strided(x.shape, (1,)).view(torch.uint8)  # Gloo knows no int16
    first = mine.clone()
    dist.broadcast(first, 0)
    same = torch.equal(first, mine)
    return None if same else f"{case}: rank {rank}'s bits differ from rank 0's"


def _all_reduce_laws(rank: int, n: int, chosen: list[str], share: int) -> list[str]:
    """Sizes by dtypes: of each algorithm one in ``share`` of them; 1: all, by every reduction."""
    sizes = sorted({0, 1, 2, max(n - 1, 0), n, n + 1, 1000, 1023, 4097, 16_384})
    wrong = []
    for k, algorithm in enumerate(chosen):
        use(algorithm)
        cases = [
            (N, dtype, op)
            for i, N in enumerate(sizes)
            for j, dtype in enumerate(DTYPES)
            for m, op in enumerate(OPS)
            if share == 1 or ((i + j + k) % share == 0 and m == (i + 2 * j + k) % len(OPS))
        ]
        for N, dtype, op in cases:
            if violation := check_all_reduce(rank, n, N, getattr(torch, dtype), op):
                wrong.append(f"{algorithm}: {violation}")
    return wrong


@pytest.mark.parametrize("n", first(2, [1, 2, 3, 4, 6]))
def test_all_reduce_is_exact_to_the_bound_and_the_same_on_every_rank(n: int) -> None:
    env = {"WORKBENCH_CHUNK": str(SLOT)}
    assert values(_all_reduce_laws, n, NAMES, 4, env=env) == [[]] * n


@pytest.mark.full
@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8])
def test_all_reduce_over_the_full_product(n: int, algorithm: str) -> None:
    env = {"WORKBENCH_CHUNK": str(SLOT)}
    violations = values(_all_reduce_laws, n, [algorithm], 1, env=env, timeout=150.0)
    assert violations == [[]] * n


def test_the_bound_can_be_missed() -> None:
    """A sum that leaves one rank out, or adds in half precision, is outside of the bound."""
    xs = [inputs(r, 1000, torch.float32, "SUM") for r in range(4)]
    outcome, magnitudes = reference(xs, "SUM")
    limit = bound(4, torch.float32, "SUM", outcome, magnitudes)
    right = sum(x.double() for x in xs).numpy()
    assert (np.abs(right - outcome) <= limit).all()
    assert not (np.abs(sum(x.double() for x in xs[1:]).numpy() - outcome) <= limit).all()
    assert not (np.abs(sum(x.half() for x in xs).double().numpy() - outcome) <= limit).all()


def _odd_tensors(rank: int, n: int) -> None:
    total = sum(range(n))
    for make in (
        lambda: torch.full((6, 5), float(rank)).t(),
        lambda: torch.full((8, 8), float(rank))[::2, 1::3],
        lambda: torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last),
        lambda: torch.tensor(float(rank)),
        lambda: torch.full((3, 0, 2), float(rank)),
        lambda: torch.full((5,), float(rank), requires_grad=True),
        lambda: torch.full((70_000, 2), float(rank))[:, 0],
    ):
        x = make()
        with torch.no_grad():
            dist.all_reduce(x)
        assert (x == total).all(), x
    around = torch.full((4, 4), -1.0)
    around[:, 1] = rank
    dist.all_reduce(around[:, 1])
    assert (around[:, 1] == total).all() and (around[:, [0, 2, 3]] == -1).all()
    with pytest.raises(RuntimeError, match=r"AVG takes numbers"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), op=dist.ReduceOp.AVG)
    x = torch.ones(3)
    dist.all_reduce(x)  # a refusal leaves the group whole
    assert (x == n).all()


def _averages_of_what_is_whole(rank: int, n: int) -> None:
    """As programs have them from NCCL, and from Gloo by SUM and a division of their own."""
    AVG = dist.ReduceOp.AVG
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        mine = torch.tensor([rank, -rank, 7, -7, 100 + rank]).to(dtype)
        own = torch.tensor([[r, -r, 7, -7, 100 + r] for r in range(n)]).sum(0)
        right = (own.double() / n).trunc().to(dtype)
        if dtype == torch.int8:
            mine[4] = right[4] = 1  # a sum that does not fit wraps, as SUM's does
        x = mine.clone()
        dist.all_reduce(x, op=AVG)
        assert torch.equal(x, right), (x, right)
        x = mine.clone()
        dist.reduce(x, 0, op=AVG)
        assert rank or torch.equal(x, right), (x, right)
        out = torch.empty_like(mine)
        dist.reduce_scatter_tensor(out, mine.repeat(n), op=AVG)
        assert torch.equal(out, right), (out, right)
    large = torch.tensor([2**60 + 1])  # no float64 holds it
    dist.all_reduce(large, op=AVG)
    assert int(large) == 2**60 + 1
    z = torch.tensor([1 + 2j, -3j]) * (rank + 1)
    right = torch.tensor([1 + 2j, -3j]) * ((n + 1) / 2)
    x, out = z.clone(), torch.empty_like(z)
    dist.all_reduce(x, op=AVG)
    dist.reduce_scatter_tensor(out, z.repeat(n), op=AVG)
    parts = torch.empty_like(z)
    dist.reduce_scatter(parts, [z] * n, op=AVG)
    for mean in (x, out, parts):
        torch.testing.assert_close(mean, right)


def test_averages_of_integers_and_complex_numbers() -> None:
    values(_averages_of_what_is_whole, 3)


@pytest.mark.parametrize("n", [2, 3])
def test_non_contiguous_empty_and_scalar_tensors(n: int) -> None:
    values(_odd_tensors, n)


def _comes_late(rank: int, n: int) -> float:
    if rank == 0:
        time.sleep(2.0)
    before = time.process_time()
    dist.broadcast(torch.ones(5), 0)
    return time.process_time() - before


def test_waiting_for_a_first_message_that_is_long_in_coming_costs_nothing() -> None:
    """The channel is not there yet: what is not there cannot wake a rank."""
    assert values(_comes_late, 2)[1] < 0.06
