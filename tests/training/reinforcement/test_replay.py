"""Replay: what is drawn, how often, and what is gone; the sum tree under it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.reinforcement.replay import LITTLE, PRIORITY, Replay
from workbench.training.reinforcement.sum_tree import SumTree
from workbench.training.reinforcement.transitions import BESIDE, layout_of

LAYOUT = layout_of(np.dtype(np.uint8), (2, 3))


def transitions(count: int, first: int = 0, priority: object = 1.0, actor: int = 0) -> np.ndarray:
    """Transitions of an actor, numbered from ``first``."""
    records = np.zeros(count, LAYOUT)
    records["number"], records["actor"] = first + np.arange(count), actor
    records["priority"] = priority
    return records


def test_a_transition_has_no_gaps() -> None:
    assert LAYOUT.itemsize == 2 * 6 + BESIDE


# -- the tree --


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.data())
def test_the_tree_finds_what_a_walk_along_the_leaves_finds(
    masses: list[float], data: st.DataObject
) -> None:
    tree = SumTree(len(masses))
    tree.set(np.arange(len(masses)), np.array(masses))
    assert math.isclose(tree.total, math.fsum(masses), rel_tol=1e-9, abs_tol=1e-12)
    if tree.total <= 0:
        return
    share = data.draw(st.floats(0, 1, exclude_max=True))
    (leaf,) = tree.find(np.array([share * tree.total]))
    ends = np.cumsum(masses)
    slack = 1e-9 * max(1.0, tree.total)
    assert masses[leaf] > 0
    assert ends[leaf] - masses[leaf] - slack <= share * tree.total <= ends[leaf] + slack


def test_a_mass_that_is_changed_changes_every_sum_above_it() -> None:
    tree = SumTree(5)
    tree.set(np.arange(5), np.ones(5))
    tree.set(np.array([4, 1]), np.array([10.0, 0.0]))
    assert tree.total == 13 and tree.masses(np.arange(5)).tolist() == [1, 0, 1, 1, 10]
    assert tree.find(np.array([0.5, 1.5, 2.5, 12.9])).tolist() == [0, 2, 3, 4]


# -- what is drawn --


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_each_is_drawn_in_proportion_to_its_priority(alpha: float) -> None:
    """Chi-square over 10^5 draws, against the 99.9 % point of its distribution."""
    kinds, draws = 32, 100_000
    priorities = np.linspace(0.1, 4.0, kinds)
    replay = Replay(kinds, LAYOUT, 7, (alpha, 0.4))
    replay.add(transitions(kinds, priority=priorities))
    batches = [replay.sample(100)["transition"]["number"] for _ in range(draws // 100)]
    counts = np.bincount(np.concatenate(batches), minlength=kinds)
    mass = (priorities.astype(np.float32).astype(np.float64) + LITTLE) ** alpha
    expected = draws * mass / mass.sum()
    chi_square = float((((counts - expected) ** 2) / expected).sum())
    freedom = kinds - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi_square < limit


def test_uniform_replay_draws_all_alike() -> None:
    replay = Replay(20, LAYOUT, 3)
    replay.add(transitions(20, priority=np.arange(20)))
    batches = [replay.sample(100) for _ in range(1000)]
    counts = np.bincount(np.concatenate([one["transition"]["number"] for one in batches]))
    assert (((counts - 5000) ** 2) / 5000).sum() < 50  # 19 degrees of freedom
    assert all((one["weight"] == 1).all() for one in batches)


def test_what_is_drawn_more_often_counts_less() -> None:
    replay = Replay(4, LAYOUT, 0, (1.0, 0.5))
    replay.add(transitions(4, priority=[1, 1, 2, 4]))
    batch = replay.sample(64)
    for record in batch:
        share = [1, 1, 2, 4][record["transition"]["number"]] / 8
        assert record["weight"] == pytest.approx((4 * share) ** -0.5, rel=1e-4)


# -- what is there --

STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=20)


@given(STEPS, st.integers(5, 17), st.booleans())
def test_what_is_drawn_was_inserted_once_and_has_not_gone(
    steps: list[tuple[int, int]], capacity: int, prioritised: bool
) -> None:
    replay = Replay(capacity, LAYOUT, 1, (0.6, 0.4) if prioritised else None)
    inserted: list[tuple[int, int]] = []
    counts = [0, 0, 0, 0]
    for count, actor in steps:
        replay.add(transitions(count, counts[actor], actor=actor))
        inserted += [(actor, counts[actor] + one) for one in range(count)]
        counts[actor] += count
        batch = replay.sample(8)
        for record in batch:
            transition = int(record["transition"]["actor"]), int(record["transition"]["number"])
            assert inserted[record["key"]] == transition
            assert record["key"] >= len(inserted) - capacity, "it had gone before"
    assert len(replay) == min(capacity, len(inserted)) and replay.inserted == len(inserted)


def test_a_priority_of_one_that_is_gone_changes_nothing() -> None:
    replay = Replay(4, LAYOUT, 0, (1.0, 0.0))
    replay.add(transitions(4))
    late = np.zeros(2, PRIORITY)
    late["key"], late["priority"] = [0, 3], [1000.0, 5.0]
    replay.add(transitions(1, first=4))  # in the place of the first one
    assert replay.update(late) == 1
    numbers = np.concatenate([replay.sample(80)["transition"]["number"] for _ in range(50)])
    assert np.bincount(numbers, minlength=5) / 4000 == pytest.approx(
        [0, 1 / 8, 1 / 8, 5 / 8, 1 / 8], abs=0.03
    )


@given(st.integers(12, 60), st.integers(0, 100), st.data())
def test_the_likelihood_of_each_age_is_the_mean_of_its_priorities(
    capacity: int, more: int, data: st.DataObject
) -> None:
    replay = Replay(capacity, LAYOUT, 0, (1.0, 0.4))
    priorities = data.draw(st.lists(st.floats(0.1, 9), min_size=12 + more, max_size=12 + more))
    for i, one in enumerate(priorities):
        replay.add(transitions(1, i, one))
    held = np.array(priorities[::-1][: len(replay)]) + LITTLE  # the newest first
    firsts = [math.ceil(k * len(held) / 12) for k in range(13)]
    means = [held[a:b].mean() for a, b in itertools.pairwise(firsts)]
    assert replay.likelihood(12) == pytest.approx(np.array(means) / held.mean(), rel=1e-4)


def test_all_alike_have_no_likelihood_of_their_own() -> None:
    replay = Replay(40, LAYOUT, 0)
    replay.add(transitions(30))
    assert not len(replay.likelihood(12))
