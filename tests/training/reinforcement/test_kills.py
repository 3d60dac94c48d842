"""A rank of any role is killed at any moment: the run goes on without it, or names it."""

from __future__ import annotations

import pytest

from tests.training.reinforcement.kills import CASES, strike


@pytest.mark.full
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", CASES)
def test_a_rank_of_any_role_is_killed_at_any_moment(name: str, number: int) -> None:
    assert strike(name, number) in ("went on", "was over", "was named")
