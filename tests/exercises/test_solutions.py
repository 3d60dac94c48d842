"""The solution of an exercise has the number that the grader takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

import workbench as wb
from tests.exercises.cases import answers
from tests.exercises.chapter_07 import greedy
from workbench.exercises import chapter_13
from workbench.exercises.catalogue import exercises
from workbench.theory import cost_model
from workbench.training.pipelines import theory
from workbench.training.pipelines.schedule import build

ANSWERS = answers()
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SHARE = re.compile(r"(\d+) / (\d+)")
WORDS = "zero one two three four five six seven eight nine ten".split()


def numbers(right: Any) -> list[float]:
    """Return the numbers of a right answer."""
    parts = [*right.values()] if isinstance(right, dict) else right
    parts = parts if isinstance(parts, list | tuple) else [parts]
    return [float(one) for one in parts if isinstance(one, int | float)]


def numbers_in(text: str) -> list[float]:
    plain = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3})", "", text)
    named = [float(at) for at, word in enumerate(WORDS) if re.search(rf"\b{word}\b", plain.lower())]
    shares = [float(over) / float(under) for over, under in SHARE.findall(plain) if float(under)]
    return [*named, *shares, *map(float, NUMBER.findall(plain))]


@pytest.mark.parametrize("name", [name for name in ANSWERS if numbers(ANSWERS[name][0])])
def test_the_solution_has_the_numbers_that_are_right(name: str) -> None:
    solution = exercises()[name].solution
    for right in numbers(ANSWERS[name][0]):
        near = [one for one in numbers_in(solution) if abs(one - right) <= 0.03 * abs(right)]
        assert near, f"{right} is not in: {solution}"


def test_from_ten_ranks_on_the_tree_is_always_faster() -> None:
    def wins(ranks: int) -> bool:
        tree, ring = (
            cost_model.predict(way, ranks, 16 * 1024, chapter_13.COST) for way in ("tree", "ring")
        )
        return tree < ring

    assert [n for n in range(2, 12) if wins(n)] == [7, 8, 10, 11], "nine is the catch"
    assert all(map(wins, range(10, chapter_13.MOST_RANKS + 1)))
    assert wb.grade("13.1", 10).solved and not wb.grade("13.1", 7).solved


def test_the_bubble_of_the_greedy_rule_is_that_of_its_plan() -> None:
    bubble = theory.bubble(build(greedy, ranks=4, microbatches=8))
    assert f"{bubble:.3f}" in exercises()["07.1"].solution


def test_an_exercise_of_another_chapters_cells_names_that_chapter() -> None:
    """Chapters 8, 8b and 8c share their numbers, and each has a first cell."""
    for one in exercises().values():
        if "first cell" in one.task:
            assert re.search(r"first cell of chapter \d", " ".join(one.task.split())), one.name
