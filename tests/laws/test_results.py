"""The laws of results: replicas that are the same, sums that are within what rounding allows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench import laws


def test_replicas() -> None:
    assert laws.replicas_identical({}) == []
    assert laws.replicas_identical({0: "ab", 1: "ab"}) == []
    (broken,) = laws.replicas_identical({0: "ab", 1: "cd", 2: "ab"})
    assert broken.rank == 1
    assert (
        str(broken) == "replicas identical: rank 1's parameters have digest cd, most ranks' have ab"
    )


@given(st.integers(1, 8), st.integers(0, 50), st.integers(0, 1000))
def test_sums_in_any_order_are_within_the_bound(n: int, elements: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for dtype in (np.float32, np.float64):
        xs = [chance.normal(size=elements).astype(dtype) for _ in range(n)]
        total = np.zeros(elements, dtype)
        for x in sorted(xs, key=lambda _: chance.random()):
            total += x
        assert laws.sum_error(total, xs) <= 1
        if elements and n > 1:
            wrong = total.copy()
            wrong[0] += (n + 1) * np.finfo(dtype).eps * sum(abs(x[0]) for x in xs)
            assert laws.sum_error(wrong, xs) > 1


def test_integers_are_exact_and_nonsense_is_refused() -> None:
    xs = [torch.tensor([2**60, 1]), torch.tensor([1, 2**62])]
    assert laws.sum_error(xs[0] + xs[1], xs) == 0
    assert laws.sum_error(xs[0] + xs[1] + 1, xs) == float("inf")
    assert laws.sum_error(torch.tensor([1.5]), [torch.tensor([1.5])]) == 0
    assert laws.sum_error(torch.tensor([1.6]), [torch.tensor([1.5])]) == float("inf")
    assert laws.sum_error(np.array([np.inf]), [np.array([np.inf]), np.array([1.0])]) == 0
    assert laws.sum_error(np.array([np.nan]), [np.array([1.0]), np.array([1.0])]) == float("inf")
    with pytest.raises(ValueError, match=r"a sum of float64\[2\] cannot be float64\[1\]"):
        laws.sum_error(np.zeros(1), [np.zeros(2)])
