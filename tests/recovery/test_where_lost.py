"""A recovery says in which iteration its rank was lost, however far the others are, or go back."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first

AT = 4  # iterations count from 0 here, and from 1 in words


@pytest.mark.parametrize(
    ("strategy", "options", "goes_on"),
    first(1, [("local_sgd", {"every": 3}, 3), ("data_parallel", {}, AT), ("gossip", {}, AT)]),
)
def test_it_is_the_iteration_of_the_lost_rank(
    strategy: str, options: dict[str, Any], goes_on: int
) -> None:
    kill = wb.Kill(rank=2, at_iteration=AT)
    exp = lenet(ranks=4, iterations=AT + 3, strategy=strategy, options=options, faults=[kill])
    run = wb.run(exp.replace(recovery="shrink"))
    run.wait(90)
    (one,) = run.recovery()
    assert one.failed_in == AT and one.iteration >= goes_on
    if strategy != "gossip":  # where no two ranks need be in the same iteration
        assert one.iteration == goes_on
