"""Kills that surely hit: while a group forms, at the end, and during a regroup. And the sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.pairwise import first
from tools.soak.aimed import ITERATIONS, KINDS, Case, Strike, aimed, done, drawn

SERVED = {"strategy": "parameter_server"}
PARTS = {  # each rank has a part of the model
    "strategy": "pipeline",
    "task": "mlp_layers",
    "task_options": {"layers": 4, "width": 16},
    "options": {"microbatches": 2, "split": "layers"},
}


def struck(folder: Path, *strikes: Strike, **fields: Any) -> Case:
    """Return the case of these strikes, done."""
    base = {"ranks": 2, "iterations": ITERATIONS, "batch_size": 16, "threads": 1, "timeout": "60 s"}
    if fields.pop("saves", False):
        fields["checkpoint"] = wb.Checkpoint(
            folder=str(folder / "checkpoints"), every=1, background=False
        )
    exp = wb.Experiment(**{**base, "dtype": "float64", **fields})
    return done(Case(0, "", aimed(exp, strikes, folder), strikes), folder)


@pytest.mark.parametrize(
    ("strikes", "fields"),
    first(
        5,
        [
            # It has told the others where it is: it will not connect, or they cannot.
            ([Strike(0, "published 1")], {"recovery": "shrink"}),
            (
                [Strike(0, "meet 1"), Strike(2, "published *", 1)],
                {"recovery": "shrink", "ranks": 3},
            ),
            # The server has all gradients: a worker that leaves its group has nothing more to do.
            ([Strike(2, "finish", by=0)], {**SERVED, "recovery": "shrink", "ranks": 3}),
            # The last checkpoint is whole, and nothing is trained again.
            ([Strike(1, "finish")], {"recovery": "restart", "saves": True}),
            # The others have finished: they have the same parameters, or go back to a checkpoint.
            ([Strike(0, "report last")], {"recovery": "shrink"}),
            # Others like them.
            ([Strike(1, "published 1")], {"recovery": "replace"}),
            ([Strike(1, "met 1")], {"recovery": "restart", "saves": True}),
            ([Strike(2, "finish", by=0)], {**SERVED, "recovery": "replace", "ranks": 4}),
            ([Strike(1, "report last")], {**PARTS, "recovery": "restart", "saves": True}),
        ],
    ),
    ids=str,
)
def test_a_run_recovers_wherever_a_rank_is_lost(
    tmp_path: Path, strikes: list[Strike], fields: dict[str, Any]
) -> None:
    case = struck(tmp_path, *strikes, **fields)
    assert len([*tmp_path.glob("struck-*")]) == len(strikes), "no rank came to the point"
    assert case.outcome == "recovered", str(case)


def test_a_part_that_is_lost_after_the_others_have_finished_is_named(tmp_path: Path) -> None:
    fields = {**PARTS, "recovery": "replace"}
    case = struck(tmp_path, Strike(1, "report last"), **fields)
    assert case.outcome == "named" and "All other ranks had finished" in case.words, str(case)


def test_a_part_that_is_lost_with_its_copy_is_named(tmp_path: Path) -> None:
    """The rank with the copy ends while the others form the group in which it would give it."""
    strikes = Strike(0, "finish"), Strike(1, "met *", 1)
    parts = {"strategy": "fsdp", "task": PARTS["task"], "task_options": PARTS["task_options"]}
    case = struck(tmp_path, *strikes, ranks=3, recovery="replace", **parts)
    assert len([*tmp_path.glob("struck-*")]) == 2, "no rank came to the point"
    assert case.outcome == "named" and "what ranks [0] trained is lost" in case.words, str(case)


def test_a_case_follows_from_seed_and_number(tmp_path: Path) -> None:
    cases = [drawn(7, number, tmp_path) for number in range(12)]
    assert [*map(str, cases)] == [str(drawn(7, number, tmp_path)) for number in range(12)]
    assert {one.kind for one in cases} <= {*KINDS} and len({one.kind for one in cases}) > 2
    assert all((len(one.strikes) == 2) == (one.kind == "regroup") for one in cases)
