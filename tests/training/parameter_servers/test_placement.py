"""Every element of the parameters has one server, with the share that was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.training.parameter_servers.placement import BLOCK, held, place, place_living

SHARES = (2 / 3, 1 / 6, 1 / 6)


def owners(elements: int, servers: int, placement: Any) -> list[int]:
    """Of each element its server; every element must have one, and one only."""
    result = [-1] * elements
    for server, ranges in enumerate(place(elements, servers, placement)):
        for one in ranges:
            assert len(one) > 0 and one.step == 1
            for element in one:
                assert result[element] == -1
                result[element] = server
        assert [one.start for one in ranges] == sorted(one.start for one in ranges)
    assert -1 not in result
    return result


@given(st.integers(0, 9_000), st.integers(1, 9), st.sampled_from(["even", "hash"]))
def test_every_element_has_one_server(elements: int, servers: int, placement: str) -> None:
    owners(elements, servers, placement)


@given(
    st.integers(0, 9_000),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).filter(lambda shares: sum(shares) > 0.1),
)
def test_shares_are_had_within_an_element(elements: int, parts: list[float]) -> None:
    shares = [part / sum(parts) for part in parts]
    by_element = owners(elements, len(shares), shares)
    for server, share in enumerate(shares):
        assert abs(by_element.count(server) - share * elements) <= 1.01


@given(st.integers(0, 9_000), st.integers(1, 9))
def test_even_is_even_within_an_element(elements: int, servers: int) -> None:
    sizes = [held(ranges) for ranges in place(elements, servers)]
    assert set(sizes) <= {elements // servers, -(-elements // servers)}


def test_shares_that_sum_to_1_nearly_are_taken() -> None:
    sizes = [held(ranges) for ranges in place(6_000, 3, (0.667, 0.167, 0.166))]
    assert sizes == [4_002, 1_002, 996]
    assert [held(ranges) for ranges in place(6_000, 3, SHARES)] == [4_000, 1_000, 1_000]


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_one_server_more_moves_its_share_to_itself_and_nothing_else(servers: int) -> None:
    elements = 2_000 * BLOCK
    before, after = (
        [server for server, ranges in _blocks(elements, count)] for count in (servers, servers + 1)
    )
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {servers}
    assert len(moved) / 2_000 == pytest.approx(1 / (servers + 1), rel=0.35)


def _blocks(elements: int, servers: int) -> list[tuple[int, int]]:
    """(server, block), by block."""
    placed = place(elements, servers, "hash")
    return sorted(
        (
            (server, start)
            for server, ranges in enumerate(placed)
            for one in ranges
            for start in range(one.start, one.stop, BLOCK)
        ),
        key=lambda pair: pair[1],
    )


def test_the_ring_is_even_enough_and_the_same_in_every_process() -> None:
    sizes = [held(ranges) for ranges in place(2_000 * BLOCK, 4, "hash")]
    assert max(sizes) / min(sizes) < 2
    assert place(3_000, 2, "hash") == place(3_000, 2, "hash")
    first = [server for server, _ in _blocks(12 * BLOCK, 3)]
    expected = [2, 2, 2, 1, 1, 0, 0, 1, 1, 0, 0, 0]
    assert first == expected, "hashes must never change: a saved run's placement is told by them"


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("uneven", "'uneven': must be 'even', 'hash', or"),
        ([0.5, 0.5], "2 shares for 3 servers"),
        ([0.5, 0.5, 0.5], "sum to 1; these sum to 1.5"),
        ([1.5, -0.25, -0.25], "0 or more"),
    ],
)
def test_what_is_not_a_placement_is_refused_in_words(placement: Any, words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        place(100, 3, placement)


@given(
    st.integers(0, 9_000),
    st.integers(1, 7),
    st.sampled_from(["even", "hash", "shares"]),
    st.data(),
)
def test_keys_of_lost_servers_have_one_owner_among_the_living(
    elements: int, servers: int, form: str, data: st.DataObject
) -> None:
    """The living keep what they had, and share out what the others had."""
    placement: Any = form if form != "shares" else [1 / servers] * servers
    living = sorted(data.draw(st.sets(st.integers(0, servers - 1), min_size=1)))
    before = place(elements, servers, placement)
    after = place_living(elements, servers, placement, living)
    keys = [element for ranges in after for one in ranges for element in one]
    assert sorted(keys) == list(range(elements))
    for server, ranges in zip(living, after, strict=True):
        mine = {element for one in ranges for element in one}
        assert mine >= {element for one in before[server] for element in one}
        assert [one.start for one in ranges] == sorted(one.start for one in ranges)
    if len(living) == servers:
        assert after == before
    if form == "even":
        assert max(map(held, after)) - min(map(held, after)) <= servers
