"""Graphs over which replicas mix, and what theory says of them: no processes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.rank.parameter_sketch import Sketch
from workbench.training.gossip import graphs, theory

SIZES = range(1, 17)
NAMES = ["ring", "complete", "torus", "exponential", "halton", "bipartite"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", SIZES)
def test_weights_keep_agreement_and_the_mean(name: str, n: int) -> None:
    topology = graphs.NAMED[name](n)
    W = topology.weights
    np.testing.assert_allclose(W.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-12)
    assert W.min() > -1e-12
    assert len(topology.parts) == 1
    assert theory.rate(W) < 1  # connected, and no pair that only swaps
    linked = {(a, b) for b, a in np.argwhere(W > 1e-12).tolist() if a != b}
    assert linked == topology.edges


@pytest.mark.parametrize("n", range(3, 17))
def test_the_ring_has_weights_of_a_third_and_its_formula(n: int) -> None:
    W = graphs.ring(n).weights
    assert W[0, 0] == pytest.approx(1 / 3) and W[0, 1] == pytest.approx(1 / 3)
    ring_rate = (1 + 2 * math.cos(2 * math.pi / n)) / 3
    # Of the formula it is λ₂; where n is even, the least eigenvalue is -1/3.
    assert theory.rate(W) == pytest.approx(max(ring_rate, (n % 2 == 0) / 3), abs=1e-12)


@pytest.mark.parametrize("n", range(2, 10))
def test_a_complete_graph_makes_all_equal_at_once(n: int) -> None:
    W = graphs.complete(n).weights
    np.testing.assert_allclose(W, 1 / n)
    assert theory.rate(W) == 0
    assert theory.expected_disagreement(W, 1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [36, 64])
def test_more_edges_agree_faster(n: int) -> None:
    """Of 16 ranks the torus and the exponential graph are equally fast: both 3/5."""
    ring, torus, exponential = (
        theory.rate(graphs.NAMED[name](n).weights) for name in ("ring", "torus", "exponential")
    )
    assert ring > torus + 0.05
    assert torus > exponential + 0.05 > 0.05


def test_the_torus_is_as_square_as_can_be() -> None:
    assert graphs.torus(12).into(0) == [1, 3, 4, 8]  # 3 rows of 4
    assert graphs.torus(7).edges == graphs.ring(7).edges
    assert graphs.torus(9).into(4) == [1, 3, 5, 7]


HALTON = {
    1: [],
    2: [1],
    3: [1],
    4: [2, 1],
    5: [2],
    6: [3, 1],
    7: [3],
    8: [4, 2, 6, 1],
    12: [6, 3, 9, 1],
    16: [8, 4, 12, 2, 10, 6, 14, 1],
}


@pytest.mark.parametrize("n, offsets", HALTON.items())
def test_halton_offsets(n: int, offsets: list[int]) -> None:
    assert graphs.halton_offsets(n) == offsets


@pytest.mark.parametrize("n", range(2, 65))
def test_halton_offsets_connect_all_and_no_fewer_would(n: int) -> None:
    offsets = graphs.halton_offsets(n)
    assert math.gcd(n, *offsets) == 1
    assert len(graphs.halton(n).parts) == 1
    if len(offsets) > 1:
        assert math.gcd(n, *offsets[:-1]) > 1
        assert len(graphs.by_offsets("", n, offsets[:-1]).parts) > 1


def test_the_first_lg_n_halton_offsets_leave_eight_ranks_apart() -> None:
    assert graphs.halton_offsets(8, math.ceil(math.log2(8))) == [4, 2, 6]
    assert graphs.halton(8, 3).parts == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert graphs.halton(8).parts == [[*range(8)]]


def test_disagreement_shrinks_by_the_second_eigenvalue_in_the_end() -> None:
    for name in ("ring", "torus", "exponential"):
        W = graphs.NAMED[name](8).weights
        late = theory.expected_disagreement(W, 41) / theory.expected_disagreement(W, 40)
        assert late == pytest.approx(theory.rate(W), rel=1e-3), name
    assert theory.expected_disagreement(graphs.ring(8).weights, 0) == pytest.approx(1)


def test_pairs_agree_as_simulated() -> None:
    """The bound is of the mean square: many draws keep to it, and come near."""
    topology, rounds = graphs.bipartite(6), 12
    active = [0, 2, 4]
    bound = theory.pairs_rate(topology, active) ** rounds
    random = np.random.default_rng(1)
    left = []
    for _ in range(400):
        x = random.normal(size=6)
        x -= x.mean()
        before = float(x @ x)
        for _ in range(rounds * len(active)):
            a = random.choice(active)
            b = random.choice(topology.out_of(a))
            x[a] = x[b] = (x[a] + x[b]) / 2
        left.append(float(x @ x) / before)
    assert bound**2 / 10 < np.mean(left) < bound**2 * 1.2


@pytest.mark.parametrize("n", range(2, 10))
def test_two_sides(n: int) -> None:
    sides = graphs.two_sides(graphs.bipartite(n))
    assert sides == [rank % 2 for rank in range(n)]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gossip", {"graph": "rign"}, "did you mean 'ring'"),
    ("gossip", {"graph": "bipartite"}, "Allowed"),
    ("gossip", {"graph": [[0, 1], [2, 3]]}, "falls apart"),
    ("gossip", {"graph": [[0, 4]]}, "there are ranks 0 to 3"),
    ("gossip", {"graph": [[0, 0]]}, "a rank with itself"),
    ("gossip", {"mix": "during"}, "must be 'before' or 'after'"),
    ("gossip", {"spread": -1.0}, "0 or more"),
    ("ad_psgd", {"pairs": [[0, 1], [1, 2], [2, 0], [2, 3]]}, "odd number of ranks"),
    ("malt", {"cb": 0}, "1 or more"),
    ("malt", {"peers": 4}, "3 others"),
    ("malt", {"peers": 1, "dataflow": "ring"}, "belongs to dataflow = 'halton'"),
    ("malt", {"bound": 2}, "wait = true"),
    ("malt", {"gather": "median"}, "must be 'average', or a function"),
]


@pytest.mark.parametrize("strategy, options, words", REFUSED)
def test_what_cannot_be_is_refused_before_anything_starts(
    strategy: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(wb.SpecError, match=words):
        wb.Experiment(strategy=strategy, ranks=4, options=options)


def test_a_ring_of_pairs_needs_an_even_number() -> None:
    with pytest.raises(wb.SpecError, match="odd number of ranks"):
        wb.Experiment(strategy="ad_psgd", ranks=5, options={"pairs": "ring"})
    wb.Experiment(strategy="ad_psgd", ranks=6, options={"pairs": "ring"})


# ---- sketches


@pytest.mark.full
def test_a_sketch_is_linear_and_keeps_distances() -> None:
    draw = torch.Generator().manual_seed(3)
    ratios = []
    for _ in range(200):
        a, b = (
            [torch.randn(40, 50, generator=draw), torch.randn(300, generator=draw)]
            for _ in range(2)
        )
        of_a, of_b = np.array(Sketch(a).numbers()), np.array(Sketch(b).numbers())
        mean = Sketch([(x + y) / 2 for x, y in zip(a, b, strict=True)]).numbers()
        np.testing.assert_allclose(mean, (of_a + of_b) / 2, atol=1e-4)
        distance = sum(float((x - y).square().sum()) for x, y in zip(a, b, strict=True))
        ratios.append(float(((of_a - of_b) ** 2).sum()) / distance)
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)  # 0.5 / √200 = 0.035
    assert np.std(ratios) == pytest.approx(0.5, abs=0.12)


def test_a_sketch_sees_parameters_as_they_are_now() -> None:
    one = torch.zeros(10)
    sketch = Sketch([one])
    assert sketch.numbers() == [0.0] * 8
    one += 1
    assert any(sketch.numbers())
