"""Which algorithm moves data: chosen by name, refused by name, or not for so many ranks."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.processes import values
from workbench.collectives import algorithms


def _chosen(rank: int, n: int) -> None:
    x = torch.full((10,), float(rank))
    dist.broadcast(x, 1)
    assert (x == 1).all()
    dist.all_reduce(x)
    dist.all_gather_into_tensor(torch.empty(10 * n), x)


def test_an_algorithm_is_chosen_by_name(tmp_path: Path) -> None:
    names = {"broadcast": algorithms("broadcast")[0], "all_gather": "ring", "all_reduce": "naive"}
    choices = ", ".join(f"{operation} = {name}" for operation, name in names.items())
    env = {"WORKBENCH_TRACE": str(tmp_path), "WORKBENCH_ALGORITHMS": choices}
    values(_chosen, 2, env=env)
    rows = wb.load(tmp_path).events.filter(pl.col("kind").cast(pl.String) == "collective")
    pairs = rows.select(pl.col("collective", "algorithm").cast(pl.String)).unique().rows()
    assert dict(pairs) == names


def _named(rank: int, n: int) -> str:
    from workbench.common.errors import SpecError
    from workbench.process_group.session import session

    try:
        session()
    except SpecError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("WORKBENCH_ALGORITHMS", "broadcast=rings", ["'rings'", "broadcast", "flat", "auto"]),
        ("WORKBENCH_ALGORITHMS", "brodcast=flat", ["'brodcast'", "broadcast", "all_gather=ring"]),
        ("WORKBENCH_ALGORITHMS", "broadcast", ["broadcast", "''", "flat"]),
        ("WORKBENCH_ALL_REDUCE", "rings", ["'rings'", "ring", "auto"]),
    ],
)
def test_a_name_that_does_not_exist_is_told_before_anything_starts(
    variable: str, value: str, words: list[str]
) -> None:
    (message,) = values(_named, 1, env={variable: value}, backend="")
    assert variable in message and all(word in message for word in words), message


def _takes_pairs(rank: int, n: int) -> list[str]:
    import workbench.collectives.broadcast_flat as flat

    flat.takes = lambda p: "" if p % 2 == 0 else "an even number of ranks"  # type: ignore
    messages = []
    for group in (None, dist.new_group([0, 1])):
        x = torch.full((4,), float(rank))
        try:
            dist.broadcast(x, 0, group=group)
        except RuntimeError as error:
            messages.append(str(error))
    return [*messages, "right" if rank > 1 or not x.any() else "wrong"]


def test_an_algorithm_that_does_not_take_so_many_ranks_says_so() -> None:
    for messages in values(_takes_pairs, 3, env={"WORKBENCH_ALGORITHMS": "broadcast=flat"}):
        assert messages == [
            "broadcast: flat does not run on 3 ranks: it takes an even number of ranks",
            "right",
        ]
