"""Every grader takes a right answer, and refuses two wrong ones with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.exercises.cases import answers
from workbench.exercises.catalogue import exercises

ANSWERS = answers()
QUICK = ("01.1",)  # the others: make test-all


@pytest.fixture(autouse=True)
def own_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_PROGRESS", str(tmp_path / "exercises.json"))


def test_every_exercise_has_answers_here() -> None:
    assert sorted(ANSWERS) == sorted(exercises())
    assert all(len(one) >= 3 for one in ANSWERS.values())


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.full) for one in ANSWERS]
)
def test_the_right_answer_is_taken_and_wrong_ones_are_not(name: str) -> None:
    right, *wrong = ANSWERS[name]
    verdict = wb.grade(name, right)
    assert verdict.solved, verdict
    for answer in wrong:
        verdict = wb.grade(name, answer)
        assert not verdict.solved, f"{answer}: {verdict}"
        bad = [one for one in verdict.findings if not one.ok]
        assert all(one.expected and one.received for one in bad)
    assert wb.progress().solved == [name], "what was solved once stays solved"


def wrongly(answer: Any) -> str:
    with pytest.raises(wb.SpecError) as error:
        wb.grade("01.1", answer)
    return str(error.value)


def test_another_kind_of_answer_is_refused_before_anything_runs() -> None:
    for answer in (None, "many", 3, {"bytes": 1}, (1, 2, 3), (True, "x"), {"bytes": 1, "hops": []}):
        assert "wb.grade: answer = " in wrongly(answer) and "keys bytes, hops" in wrongly(answer)
    assert wb.progress().rows[0]["tries"] == 0
