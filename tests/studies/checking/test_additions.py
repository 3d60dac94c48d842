"""What a user's own algorithm adds in torch is in the rows; where they would lie, they say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
import torch

import workbench as wb
from tests.studies.checking import algorithms
from workbench.laws import check_events, complete_sums
from workbench.messaging.chunk_index import part_of, whole_of


def recorded(function: Callable[..., Any]) -> pl.DataFrame:
    return wb.check("all_reduce", function, ranks=4, sizes=(1000,), dtypes="int64").run.events


def test_plain_additions_are_rows_and_the_laws_hold_of_them() -> None:
    rows = recorded(algorithms.ring)
    assert rows.filter(pl.col("kind") == "reduce").height == 4 * 3
    assert set(rows.filter(pl.col("kind") == "collective")["phase"]) == {""}
    assert complete_sums(rows) == []


def test_the_rows_of_a_wrong_one_say_what_is_wrong() -> None:
    violations = complete_sums(recorded(algorithms.doubles))
    assert violations and {one.chunk for one in violations} == {2}
    assert "holds rank 0's 2 times" in violations[0].words


@pytest.mark.parametrize("function", [algorithms.all_peers])
def test_where_the_rows_would_not_tell_what_is_so_they_claim_nothing(function: Any) -> None:
    rows = recorded(function)
    assert set(rows.filter(pl.col("kind") == "collective")["phase"]) == {"untold"}
    assert complete_sums(rows) == []


def test_a_run_that_trains_with_it_keeps_all_laws() -> None:
    run = wb.run(
        wb.Experiment(
            strategy="data_parallel",
            task="lenet_digits",
            ranks=3,
            iterations=3,
            batch_size=48,
            all_reduce=algorithms.ring,
        )
    )
    assert run.wait(60).ok
    sums = run.events.filter(pl.col("algorithm") == "ring", pl.col("kind") == "reduce")
    assert sums.height > 0
    assert check_events(run.events) == []


def test_parts_are_known_of_views_and_of_views_of_copies() -> None:
    base = torch.zeros(40)
    x = base[10:33]  # 23 elements inside of a larger tensor
    whole = whole_of(x)
    assert [part_of(part, whole, 4) for part in x.tensor_split(4)] == [0, 1, 2, 3]
    assert [part_of(part, whole, 4) for part in x.clone().tensor_split(4)] == [0, 1, 2, 3]
    assert part_of(x, whole, 4) == part_of(torch.zeros(23), whole, 4) == 0
    assert part_of(torch.zeros(6), whole, 4) == part_of(x[1:7], whole, 4) == -1
    assert part_of(base[:6], whole, 4) == part_of(x.numpy(), whole, 4) == -1
