"""A mesh's text, its lines, and the refusals of meshes that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from workbench.common.errors import SpecError
from workbench.formulas.grid import Grid, meshes


@pytest.mark.parametrize("grid", [*meshes(4), *meshes(8), *meshes(6)], ids=str)
def test_the_lines_of_an_axis_part_the_ranks(grid: Grid) -> None:
    for name, size in grid.axes:
        lines = grid.lines(name)
        assert sorted(rank for line in lines for rank in line) == [*range(grid.ranks)]
        assert {len(line) for line in lines} == {size}
        for line in lines:
            assert [grid.place(rank, name) for rank in line] == [*range(size)]
            assert all(grid.line(rank, name) == line for rank in line)
            for other in grid.others(name):
                assert len({grid.place(rank, other) for rank in line}) == 1
    assert Grid.read(str(grid), grid.ranks) == grid


def test_the_fastest_axis_has_neighbors() -> None:
    grid = Grid.read("pp 2, dp 2, tp 2", 8)
    assert grid.lines("tp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grid.lines("pp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert grid.lines("pp", "dp") == [[0, 2, 4, 6], [1, 3, 5, 7]]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mesh": "pp 2, dp 2, tp 4"}, "pp 2 x dp 2 x tp 4 = 16 ranks, and there are 4"),
    ({"mesh": "dp 2, dp 2"}, "axis dp is there twice"),
    ({"mesh": "dp 4, tp 1"}, "axis tp needs 2 ranks or more"),
    ({"mesh": "cp 2, dp 2"}, "axis cp is not supported yet: take pp, dp, fsdp, tp"),
    ({"mesh": "rows 4"}, "axes are pp, dp, fsdp, tp, each with its size, not 'rows 4'"),
    ({"mesh": "pp 4"}, "4 stages are kept busy by as many microbatches or more: with 1"),
    ({"mesh": "dp 4", "zero": 2}, "the mesh 'dp 4' has no such axis"),
    ({"mesh": "dp 4", "sequence_parallel": True}, "the mesh 'dp 4' has no such axis"),
    ({"mesh": "dp 4", "stages_per_rank": 2}, "the mesh 'dp 4' has no such axis"),
    (
        {"mesh": "pp 2, fsdp 2", "schedule": "zb_h1", "microbatches": 4},
        "both would gather a layer: take zero = 1",
    ),
    (
        {"mesh": "pp 4", "schedule": "pipedream", "microbatches": 4},
        "has no flush at which lines could add up gradients",
    ),
]


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=lambda one: str(one)[:40])
def test_a_mesh_that_does_not_fit_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError) as refused:
        wb.Experiment(strategy="mesh", ranks=4, options=options)
    assert why in str(refused.value)


def test_a_model_without_a_layer_to_split_is_refused_before_anything_starts() -> None:
    small = {"layers": 1, "width": 3, "heads": 1, "context": 8}
    with pytest.raises(SpecError, match="finds no layer of the model that can be split"):
        wb.run(
            wb.Experiment(
                strategy="mesh",
                ranks=5,
                task="char_transformer",
                task_options=small,
                options={"mesh": "tp 5"},
            )
        )
