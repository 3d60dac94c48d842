"""A circle of ranks that wait for one another, against its definition."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from workbench.common.wait_cycles import circle


def test_a_circle_is_found_wherever_one_enters_it() -> None:
    around = {0: 1, 1: 2, 2: 0}
    assert circle(around) == (0, 1, 2)
    assert circle({0: 2, 2: 3, 3: 2}) == (2, 3)
    assert circle({0: 1, 1: 2}) == () == circle({1: -1})


@given(st.dictionaries(st.integers(0, 5), st.integers(-1, 5)))
def test_it_is_the_first_of_all_sequences_that_close(awaited: dict[int, int]) -> None:
    closed = [
        path
        for length in range(1, len(awaited) + 1)
        for path in permutations(awaited, length)
        if path[0] == min(path)
        and all(awaited[a] == b for a, b in zip(path, (*path[1:], path[0]), strict=True))
    ]
    assert circle(awaited) == min(closed, default=())
