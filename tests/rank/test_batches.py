"""The samples of a minibatch, and which rank takes which: known cases, and laws over many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairwise import every_value, full, pairwise, sampled
from workbench.rank.batches import Minibatches, order_of, partition, portion, portion_size

sizes = st.integers(1, 60)


def test_the_second_minibatch_of_24_samples_in_order() -> None:
    second = np.arange(24)[8:16]  # m = 8
    assert partition(second, 0, 2).tolist() == [8, 10, 12, 14]
    assert partition(second, 1, 2).tolist() == [9, 11, 13, 15]


def test_the_second_minibatch_of_a_permutation() -> None:
    second = np.array([10, 8, 17, 15, 1, 7, 23, 14])  # its positions 8 to 15
    assert partition(second, 0, 2).tolist() == [10, 17, 1, 23]
    assert partition(second, 1, 2).tolist() == [8, 15, 7, 14]


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=40), st.integers(1, 9))
def test_the_parts_of_a_minibatch_are_the_minibatch(ids: list[int], ranks: int) -> None:
    parts = [partition(np.array(ids, np.int64), rank, ranks) for rank in range(ranks)]
    assert sorted(np.concatenate(parts).tolist()) == sorted(ids)
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


@given(sizes, sizes, st.integers(0, 2**63 - 1), st.integers(0, 3))
def test_an_epoch_has_every_sample_once(samples: int, batch: int, seed: int, epoch: int) -> None:
    minibatches = Minibatches(samples, batch, seed)
    first = epoch * minibatches.per_epoch
    parts = [minibatches.ids(first + i) for i in range(minibatches.per_epoch)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    assert all(len(part) == min(batch, samples) for part in parts[:-1])
    assert 1 <= len(parts[-1]) <= batch


def test_the_last_minibatch_of_an_epoch_is_what_is_left() -> None:
    lengths = [len(Minibatches(1437, 100, 0).ids(i)) for i in range(16)]
    assert lengths == [100] * 14 + [37, 100]


@given(sizes, sizes, st.integers(0, 1000), st.lists(st.integers(0, 200), min_size=1, max_size=8))
def test_seed_and_iteration_alone_decide(
    samples: int, batch: int, seed: int, iterations: list[int]
) -> None:
    """A rank that asks in another order, or for one iteration only, gets the same ids."""
    one = Minibatches(samples, batch, seed)
    for iteration in iterations:
        fresh = Minibatches(samples, batch, seed).ids(iteration)
        assert one.ids(iteration).tolist() == fresh.tolist()


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(Minibatches(50, 50, seed).ids(e).tolist()) for seed in (0, 1) for e in (0, 1)}
    assert len(orders) == 4


@pytest.mark.parametrize("counts", [(2, 2, 2), (5, 4, 2, 2), (8, 3, 2, 3, 2)])
def test_pairwise_covers_every_pair(counts: tuple[int, ...]) -> None:
    """The sample that the other tests take: every pair of values, in a fraction of the cases."""
    factors = {f"factor {i}": range(count) for i, count in enumerate(counts)}
    cases = pairwise(factors)
    pairs, covered = (
        {(a, case[a], b, case[b]) for case in some for a in case for b in case if a < b}
        for some in (full(factors), cases)
    )
    assert covered == pairs
    assert cases == pairwise(factors)
    assert len(cases) <= 2 * sorted(counts)[-1] * sorted(counts)[-2]


@pytest.mark.parametrize("counts", [(2, 2, 2), (5, 4, 2, 2), (8, 3, 2, 3, 2)])
def test_the_sample_of_make_test_has_every_value(counts: tuple[int, ...]) -> None:
    """As few cases of the product as the longest factor has values; the others are marked full."""
    factors = {f"factor {i}": range(count) for i, count in enumerate(counts)}
    chosen = every_value(full(factors))
    assert len(chosen) == max(counts)
    for factor, values in factors.items():
        assert {case[factor] for case in chosen} == set(values)
    cases = sampled(full(factors))
    assert [case for case in cases if isinstance(case, dict)] == [
        case for case in full(factors) if case in chosen
    ]
    assert all(case.marks for case in cases if not isinstance(case, dict))


@pytest.mark.parametrize("shares", [None, (1.0, 0.0, 2.5), (3.0, 1.0, 1.0)])
def test_the_size_of_a_portion_is_that_of_its_ids(shares: tuple[float, ...] | None) -> None:
    for samples in (1, 7, 64):
        ids = range(samples)
        sizes = [portion_size(samples, worker, 3, shares) for worker in range(3)]
        assert sizes == [len(portion(ids, worker, 3, shares)) for worker in range(3)]
        assert sum(sizes) == samples


@given(st.integers(1, 400), st.integers(1, 500), st.integers(0, 2**63 - 1), st.integers(0, 3))
def test_a_shuffle_buffer_holds_no_more_and_takes_every_sample_once(
    samples: int, buffer: int, seed: int, epoch: int
) -> None:
    order = order_of(samples, seed, epoch, buffer).tolist()
    assert sorted(order) == [*range(samples)]
    read, taken = -1, set[int]()
    for at, one in enumerate(order):
        read = max(read, one)
        assert abs(one - at) < buffer, "a sample is taken near its place in the files"
        assert read + 1 - len(taken) <= buffer, "that many were read and not yet taken"
        taken.add(one)
    assert order == order_of(samples, seed, epoch, buffer).tolist()


def test_a_larger_shuffle_buffer_mixes_more_and_epochs_differ() -> None:
    moved = [
        np.abs(order_of(1000, 0, 0, buffer) - np.arange(1000)).mean() for buffer in (1, 10, 100)
    ]
    assert moved[0] == 0 and moved[1] * 5 < moved[2]
    assert not np.array_equal(order_of(1000, 0, 0, 100), order_of(1000, 0, 1, 100))
