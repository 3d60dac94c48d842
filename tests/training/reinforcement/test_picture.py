"""The small picture of a game that pages get: what it holds, how seldom it is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.reinforcement.played import done, game, metric
from workbench.training.reinforcement.picture import COLUMNS, ROWS, SHADES, rows_of


def shades(numbers: list[float]) -> np.ndarray:
    """Return the pixels of rows, as a page reads them."""
    result = []
    for value in numbers:
        row, left = [], int(value)
        while left >= SHADES:
            row.append(left % SHADES)
            left //= SHADES
        assert left == 1
        result.append(row[::-1])
    return np.array(result)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 4), st.randoms())
def test_the_brightest_pixel_is_in_its_place(
    rows: int, columns: int, channels: int, random: object
) -> None:
    row, column = (random.randrange(most) for most in (rows, columns))  # type: ignore[attr-defined]
    observation = np.zeros((channels, rows, columns) if channels else (rows, columns), np.uint8)
    observation[..., row, column] = 200
    picture = shades(rows_of(observation))
    assert picture.shape[0] <= ROWS and picture.shape[1] <= COLUMNS
    at = row // -(-rows // ROWS), column // -(-columns // COLUMNS)
    assert picture[at] == (SHADES - 1 if picture.size > 1 and rows * columns > 1 else picture[at])
    assert picture.sum() == picture[at]


@pytest.mark.parametrize("shape", [(4,), (), (9, 8, 7), (0, 3)])
def test_what_is_not_a_picture_has_no_rows(shape: tuple[int, ...]) -> None:
    assert rows_of(np.zeros(shape)) == []


def test_an_actor_tells_one_picture_a_second_at_most() -> None:
    run, _ = done(game("ape_x", 3, iterations=30, pad_environment="2 ms"))
    pixels = metric(run.events, "picture").filter(rank=2)
    times = pixels["end_ns"].unique().sort()
    assert len(pixels) == 10 * len(times) and (times.diff().drop_nulls() >= 1_000_000_000).all()
    board = shades(pixels["value"].head(10).to_list())
    assert board.shape == (10, 5) and sorted(set(board.ravel())) == [0, SHADES - 1]
