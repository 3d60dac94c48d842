"""What the start page takes from a browser: names and numbers, never code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench import form
from workbench.app.limits import Limits, Refused
from workbench.app.start import plain


def values(**changes: Any) -> dict[str, Any]:
    return form.values(wb.Experiment()) | changes


def test_what_the_form_shows_comes_back_as_the_same_experiment() -> None:
    for preset in form.presets().values():
        assert form.experiment(plain(form.values(preset.experiment))) == preset.experiment


@pytest.mark.parametrize("field", ["strategy", "task", "all_reduce", "options", "task_options"])
def test_a_path_to_code_is_refused_and_not_even_looked_for(field: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Secret: ...\n")
    path = f"{tmp_path}/mine.py:Nobody"
    text = f"consistency: {path}" if "options" in field else path
    with pytest.raises(Refused, match="data, never code") as error:
        plain(values(**{field: text}))
    assert "Secret" not in str(error.value), "what stands in a file of this machine is its own"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "nonsense"}, "strategy: it is one of"),
        ({"strategy": "pipeline", "options.schedule": "0F0 0B0"}, "options.schedule: it is one of"),
        ({"task": {"name": "T", "code": "class T: ..."}}, "texts and numbers"),
        ({"options": {"a": 1}}, "texts and numbers"),
        ({"faults": "kill rank 0\n" * 1000}, "too long"),
    ],
)
def test_what_no_form_holds_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        plain(values(**changes))


@pytest.mark.parametrize("told", [None, [], "ranks", 3])
def test_what_is_no_form_is_refused(told: object) -> None:
    with pytest.raises(Refused, match="not a form's values"):
        plain(told)


def test_a_link_carries_no_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Task: ...\n")
    with pytest.raises(wb.SpecError, match="carries none"):
        form.to_link(wb.Experiment(task=f"{tmp_path}/mine.py:Task"))


def test_limits_are_said_in_words() -> None:
    assert Limits().words == (
        "Here a run has up to 16 ranks, 4 GB and 30 minutes; 4 runs at a time."
    )
    assert Limits(ranks=1, runs=1, minutes=1, memory=10**9).words == (
        "Here a run has up to 1 rank, 1 GB and 1 minute; 1 run at a time."
    )
