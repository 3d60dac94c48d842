"""The formulas against the literature's numbers, against schedules counted message by message."""

from __future__ import annotations

from math import ceil, inf, log2

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairwise import first
from workbench import laws
from workbench.formulas import WITH_ROOT, Algorithm
from workbench.laws import check_events
from workbench.store.table import SCHEMA
from workbench.theory import cost_model
from workbench.theory.cost_model import Cost, Measurement, Terms, hierarchical

EVERY = sorted(cost_model.ALGORITHMS)
KNOWN = [(operation, name) for operation, named in cost_model.OPERATIONS.items() for name in named]
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 1000, 1023, 4097)
ALPHA_BETA = Cost(alpha_s=1.0, beta_s_per_byte=1.0)  # so that L* comes out in units of α/β
COST = Cost(alpha_s=20e-6, beta_s_per_byte=1e-9, gamma_s_per_byte=0.25e-9)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_chunks_differ_by_one_element_and_the_first_are_longer(elements: int, n: int) -> None:
    chunks = cost_model.chunk_sizes(elements, n)
    assert len(chunks) == n and sum(chunks) == elements
    assert chunks == [elements // n + 1] * (elements % n) + [elements // n] * (n - elements % n)


@pytest.mark.parametrize("algorithm", EVERY)
def test_one_rank_or_nothing_costs_nothing(algorithm: str) -> None:
    assert cost_model.steps(algorithm, 1) == 0
    assert cost_model.messages_sent(algorithm, 1) == (0,)
    assert cost_model.bytes_sent(algorithm, 1, 400) == (0,)
    assert cost_model.predict(algorithm, 1, 400, COST) == 0
    assert cost_model.bytes_sent(algorithm, 4, 0) == (0, 0, 0, 0)
    assert cost_model.predict(algorithm, 4, 0, COST) == 0


def test_the_ring_sends_what_the_law_says() -> None:
    for n in range(2, 9):
        for elements in LENGTHS:
            c = cost_model.chunk_sizes(elements, n)
            expected = [2 * elements - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)]
            assert cost_model.bytes_sent("ring", n, 8 * elements, 8) == tuple(
                8 * e for e in expected
            )
    assert cost_model.bytes_sent("ring", 4, 4 * 10) == (
        60,
        64,
        60,
        56,
    )  # chunks 3 3 2 2, worked by hand
    assert cost_model.bytes_sent("ring", 4, 4000) == (int(cost_model.lower_bound(4, 4000)),) * 4


@pytest.mark.parametrize("n", range(2, 17))
def test_totals_of_the_table(n: int) -> None:
    L = 4 * 840 * n
    assert sum(cost_model.bytes_sent("tree", n, L)) == 2 * (n - 1) * L
    assert cost_model.steps("tree", n) == 2 * ceil(log2(n))
    assert sum(cost_model.bytes_sent("naive", n, L)) == 2 * (n - 1) * L
    assert sum(cost_model.bytes_sent("ring", n, L)) == 2 * (n - 1) * L
    if n & (n - 1) == 0:
        assert cost_model.bytes_sent("butterfly", n, L) == (L * int(log2(n)),) * n
        assert cost_model.bytes_sent("rabenseifner", n, L) == (2 * (n - 1) * L // n,) * n
        assert cost_model.steps("butterfly", n) * 2 == cost_model.steps("rabenseifner", n)
    else:  # one fold before, one unfold after
        m = 1 << (n.bit_length() - 1)
        for algorithm in ("butterfly", "rabenseifner"):
            assert cost_model.steps(algorithm, n) == cost_model.steps(algorithm, m) + 2
            inner = sum(cost_model.bytes_sent(algorithm, m, L))
            assert sum(cost_model.bytes_sent(algorithm, n, L)) == inner + 2 * (n - m) * L


@given(st.sampled_from(EVERY), st.integers(2, 17), st.integers(1, 5000))
def test_no_algorithm_beats_the_lower_bound(algorithm: str, n: int, elements: int) -> None:
    sent = cost_model.bytes_sent(algorithm, n, elements, itemsize=1)
    assert len(sent) == n == len(cost_model.messages_sent(algorithm, n))
    assert max(sent) >= cost_model.lower_bound(n, elements) - 1e-6
    assert sum(sent) >= 2 * (n - 1) * elements


@pytest.mark.parametrize(
    ("n", "against_ring", "against_rabenseifner"), [(4, 8.0, 4.0), (8, 8.8, 2.4), (16, 12.2, 1.88)]
)
def test_where_the_butterfly_wins(n: int, against_ring: float, against_rabenseifner: float) -> None:
    ring = cost_model.crossover("ring", "butterfly", n, ALPHA_BETA)
    rabenseifner = cost_model.crossover("butterfly", "rabenseifner", n, ALPHA_BETA)
    assert (round(ring, 1), round(rabenseifner, 2)) == (against_ring, against_rabenseifner)
    below, above = 0.9 * ring, 1.1 * ring

    def gain(L: float) -> float:
        predict = cost_model.predict
        return predict("ring", n, L, ALPHA_BETA) - predict("butterfly", n, L, ALPHA_BETA)

    assert gain(below) > 0 > gain(above)
    assert gain(ring) == pytest.approx(0, abs=1e-9)


def test_no_crossover_is_infinity() -> None:
    assert (
        cost_model.crossover("ring", "naive", 4, ALPHA_BETA) == inf
    )  # as many messages, fewer bytes
    assert cost_model.crossover("naive", "naive", 4, ALPHA_BETA) == inf


def test_hierarchies_move_as_many_bytes_and_fewer_between_hosts() -> None:
    elements = 8 * 1024
    for levels, between in (([4, 2], 0.25), ([2, 4], 0.75)):
        inside, outside = cost_model.level_elements(levels, elements)
        assert set(outside) == {between * elements}
        assert cost_model.bytes_sent(hierarchical(levels), 8, 4 * elements) == (7 * elements,) * 8
        assert [a + b for a, b in zip(inside, outside, strict=True)] == [7 * elements // 4] * 8
    assert cost_model.steps(hierarchical([4, 2]), 8) == 8
    assert cost_model.steps(hierarchical([2, 2, 2]), 8) == 6
    assert cost_model.steps(hierarchical([8]), 8) == cost_model.steps("ring", 8)


@given(st.sampled_from([[2, 3], [3, 2], [2, 2, 2], [4, 1, 2], [5]]), st.integers(1, 3000))
def test_hierarchies_send_the_ring_s_total_at_every_length(levels: list[int], L: int) -> None:
    n = int(np.prod(levels))
    assert sum(cost_model.bytes_sent(hierarchical(levels), n, L, 1)) == 2 * (n - 1) * L
    if len(levels) == 1:
        assert cost_model.bytes_sent(hierarchical(levels), n, L, 1) == cost_model.bytes_sent(
            "ring", n, L, 1
        )


def test_seconds_are_those_of_the_table() -> None:
    n, L = 6, 1_000_000
    a, b, g = COST.alpha_s, COST.beta_s_per_byte, COST.gamma_s_per_byte
    expected = {
        "naive": 2 * (n - 1) * (a + L * b) + (n - 1) * L * g,
        "one_shot": (n - 1) * (a + L * b + L * g),
        "tree": 2 * 3 * (a + L * b) + 3 * L * g,
        "ring": 2 * (n - 1) * a + 2 * (n - 1) / n * L * b + (n - 1) / n * L * g,
    }
    for algorithm, seconds in expected.items():
        assert cost_model.predict(algorithm, n, L, COST) == pytest.approx(seconds)
    lg = 3
    assert cost_model.predict("butterfly", 8, L, COST) == pytest.approx(lg * (a + L * b + L * g))
    rabenseifner = 2 * lg * a + 2 * 7 / 8 * L * b + 7 / 8 * L * g
    assert cost_model.predict("rabenseifner", 8, L, COST) == pytest.approx(rabenseifner)


def test_seconds_of_the_other_operations_are_the_literature_s() -> None:
    n, L = 8, 1_000_000
    a, b, g = COST.alpha_s, COST.beta_s_per_byte, COST.gamma_s_per_byte
    part = (n - 1) / n * L
    expected = {
        "broadcast/tree": 3 * (a + L * b),
        "broadcast/flat": 7 * (a + L * b),
        "reduce/tree": 3 * (a + L * b + L * g),
        "reduce/flat": 7 * (a + L * b + L * g),
        "gather/tree": 3 * a + part * b,
        "gather/flat": 7 * a + part * b,
        "scatter/tree": 3 * a + part * b,
        "scatter/flat": 7 * a + part * b,
        "all_gather/ring": 7 * a + part * b,
        "all_gather/recursive_doubling": 3 * a + part * b,
        "all_gather/one_shot": 7 * a + part * b,
        "reduce_scatter/ring": 7 * a + part * b + part * g,
        "all_to_all/pairwise": 7 * a + part * b,
        "barrier/dissemination": 3 * a,
    }
    assert {f"{o}/{name}" for o, name in KNOWN if o != "all_reduce"} == set(expected)
    for name, seconds in expected.items():
        operation, algorithm = name.split("/")
        says = cost_model.predict(algorithm, n, L, COST, operation=operation)
        assert says == pytest.approx(seconds), name
    assert cost_model.predict("dissemination", 5, 0, COST, operation="barrier") == pytest.approx(
        3 * a
    )


def test_what_is_sent_is_told_by_rank_whatever_the_root() -> None:
    """Ranks 0 to 3 with root 1: places 0 1 2 3 are ranks 1 2 3 0."""
    of = {"operation": "broadcast", "root": 1}
    assert cost_model.messages_sent("flat", 4, **of) == (0, 3, 0, 0)
    assert cost_model.messages_sent("tree", 4, **of) == (0, 2, 0, 1)  # 1→3, then 1→2 and 3→0
    assert cost_model.bytes_sent("tree", 4, 400, **of) == (0, 800, 0, 400)
    up = {"operation": "gather", "root": 1}
    assert cost_model.bytes_sent("tree", 4, 400, **up) == (100, 0, 100, 200)  # 2→1 0→3, then 3→1
    assert cost_model.bytes_sent("flat", 4, 400, **up) == (100, 0, 100, 100)


def test_identities_of_bytes_and_steps() -> None:
    """All-reduce = reduce + broadcast = reduce-scatter + all-gather, in messages and in bytes."""
    for n in range(2, 9):
        for nbytes in (4, 4 * n, 4 * 1023):
            halves = [
                cost_model.bytes_sent("tree", n, nbytes, operation=operation)
                for operation in ("reduce", "broadcast")
            ]
            assert cost_model.bytes_sent("tree", n, nbytes) == tuple(
                map(sum, zip(*halves, strict=True))
            )
        ring = [
            cost_model.bytes_sent("ring", n, 4 * n, operation=operation)
            for operation in ("reduce_scatter", "all_gather")
        ]
        assert cost_model.bytes_sent("ring", n, 4 * n) == tuple(map(sum, zip(*ring, strict=True)))
        both = cost_model.steps("ring", n, operation="reduce_scatter")
        assert cost_model.steps("ring", n) == both + cost_model.steps(
            "ring", n, operation="all_gather"
        )


def test_errors_name_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"no algorithm 'rign'.*ring, naive, one_shot"):
        cost_model.steps("rign", 4)
    with pytest.raises(ValueError, match="10 bytes are not a whole number of elements of 4 bytes"):
        cost_model.bytes_sent("ring", 4, 10)
    with pytest.raises(ValueError, match=r"no algorithm 'ring' of broadcast; it knows tree, flat$"):
        cost_model.steps("ring", 4, operation="broadcast")
    with pytest.raises(
        ValueError,
        match=r"no operation 'gatehr' \(did you mean 'gather'.*it knows all_reduce, broadcast",
    ):
        cost_model.steps("flat", 4, operation="gatehr")
    pair = Algorithm(
        "pair", lambda n: 1, lambda n: [1], lambda n, e: [e], lambda n, L: Terms(1, L, 0)
    )
    with pytest.raises(ValueError, match="pair has no schedule to plan; there is one of ring"):
        cost_model.plan(pair, 4, 400, COST)
    with pytest.raises(ValueError, match=r"levels \[4, 2\] make 8 ranks, not 6"):
        cost_model.steps(hierarchical([4, 2]), 6)


# -- planned events --


@pytest.mark.full
@pytest.mark.parametrize(("operation", "algorithm"), first(8, KNOWN))
def test_planned_events_obey_every_law_of_the_table(operation: str, algorithm: str) -> None:
    for n in (1, 2, 5, 8):
        whole = operation not in ("all_reduce", "broadcast", "reduce")
        for elements in (0, n, 240 * n) if whole else (0, 1, 1023):
            root = (elements + 1) % n
            events = cost_model.plan(
                algorithm,
                n,
                4 * elements,
                COST,
                operation=operation,
                root=root,
                start_ns=10**12,
                op=7,
            )
            assert events.schema == SCHEMA
            assert check_events(events) == []
            assert sum(events.null_count().row(0)) == 0
            assert events["start_ns"].min() == 10**12 and set(events["op"]) == {7}
            sends = events.filter(pl.col("kind") == "send")
            sent = tuple(sends.filter(pl.col("rank") == r)["nbytes"].sum() for r in range(n))
            assert sent == cost_model.bytes_sent(
                algorithm,
                n,
                4 * elements,
                operation=operation,
                root=root if operation in WITH_ROOT else 0,
            )


@pytest.mark.parametrize(("operation", "algorithm"), KNOWN)
def test_a_plan_lasts_as_long_as_predicted(operation: str, algorithm: str) -> None:
    for n in (2, 3, 6, 7, 16):
        nbytes = 4 * 5040 * 100
        planned = cost_model.plan(algorithm, n, nbytes, COST, operation=operation)
        outer = planned.filter(pl.col("kind") == "collective")
        assert outer.height == n
        lasts = (outer["end_ns"] - outer["start_ns"]).max() / 1e9
        says = cost_model.predict(algorithm, n, nbytes, COST, operation=operation)
        assert lasts == pytest.approx(says, rel=1e-4)


@pytest.mark.parametrize("levels", [[2, 3], [3, 2], [2, 2, 2], [4, 1, 2], [5]])
def test_a_hierarchy_of_any_levels_is_planned(levels: list[int]) -> None:
    n, chosen = int(np.prod(levels)), hierarchical(levels)
    events = cost_model.plan(chosen, n, 4 * 1001, COST)
    sends = events.filter(pl.col("kind") == "send")
    sent = tuple(sends.filter(pl.col("rank") == r)["nbytes"].sum() for r in range(n))
    assert sent == cost_model.bytes_sent(chosen, n, 4 * 1001)
    assert laws.complete_sums(events) == laws.matched_messages(events) == []


# -- fitting --


def measured(
    cost: Cost, algorithms: tuple[str, ...], noise: float = 0.0, ranks: tuple[int, ...] = (2, 4, 8)
) -> list[Measurement]:
    chance = np.random.default_rng(0)
    return [
        Measurement(
            a, n, L, cost_model.predict(a, n, L, cost) * (1 + noise * chance.uniform(-1, 1))
        )
        for a in algorithms
        for n in ranks
        for L in (4096, 65_536, 1 << 20, 1 << 24)
    ]


@given(st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-8), st.floats(1e-11, 1e-8))
def test_a_fit_finds_the_model_that_made_the_points(a: float, b: float, g: float) -> None:
    result = cost_model.fit(measured(Cost(a, b, g), ("ring", "one_shot")))
    assert result.cost.alpha_s == pytest.approx(a, rel=1e-4)
    assert result.cost.beta_s_per_byte == pytest.approx(b, rel=1e-4)
    assert result.cost.gamma_s_per_byte == pytest.approx(g, rel=1e-4)
    assert result.relative_error < 1e-6 and len(result.points) == 24


def test_what_the_ring_alone_cannot_tell_goes_to_beta() -> None:
    result = cost_model.fit(measured(COST, ("ring",)))
    assert result.cost.gamma_s_per_byte == 0
    both = COST.beta_s_per_byte + COST.gamma_s_per_byte / 2
    assert result.cost.beta_s_per_byte == pytest.approx(both, rel=1e-6)
    known = cost_model.fit(measured(COST, ("ring",)), gamma_s_per_byte=COST.gamma_s_per_byte)
    assert known.cost.beta_s_per_byte == pytest.approx(COST.beta_s_per_byte, rel=1e-6)
    assert known.cost.gamma_s_per_byte == COST.gamma_s_per_byte


def test_a_fit_says_how_well_it_fits_and_is_never_negative() -> None:
    rough = cost_model.fit(measured(COST, ("ring", "one_shot"), noise=0.2))
    assert 0.01 < rough.relative_error < 0.2
    falling = [Measurement("ring", 4, L, 1e-3 / (1 + L)) for L in (4, 400, 40_000)]
    cost = cost_model.fit(falling).cost
    assert min(cost.alpha_s, cost.beta_s_per_byte, cost.gamma_s_per_byte) >= 0


def test_a_fit_refuses_points_that_measure_nothing() -> None:
    with pytest.raises(ValueError, match="got none"):
        cost_model.fit([])
    with pytest.raises(ValueError, match=r"Measurement\(algorithm='ring', n=1"):
        cost_model.fit([Measurement("ring", 1, 400, 1e-3)])


def test_one_more_algorithm_is_one_entry() -> None:
    gossip = Algorithm(
        "pair",
        steps=lambda n: 1,
        sends=lambda n: [1] * n,
        sent=lambda n, e: [e] * n,
        terms=lambda n, L: Terms(1, L, L),
    )
    assert cost_model.steps(gossip, 4) == 1
    assert cost_model.bytes_sent(gossip, 2, 400) == (400, 400)
    assert cost_model.predict(gossip, 2, 100, ALPHA_BETA) == 101
