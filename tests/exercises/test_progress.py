"""What is kept of a reader: solved exercises and guesses; in a file, as a table, for a teacher."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import workbench as wb
from workbench.exercises import progress_file
from workbench.exercises.verdict import Finding, Verdict, at_least, at_most, equal, near


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "exercises.json"
    monkeypatch.setenv("WORKBENCH_PROGRESS", str(path))
    return path


def test_an_exercise_displays_itself_with_hint_and_solution_folded() -> None:
    one = wb.exercise("01.1")
    text, markdown = repr(one), one._repr_markdown_()
    for shown in (text, markdown):
        assert "Twice the ranks" in shown and "minutes" in shown and 'wb.grade("01.1"' in shown
    assert "431" not in text, "the solution is spoiled"
    task, *folded = markdown.split("<details><summary>")
    assert "431" not in task and [one.partition("<")[0] for one in folded] == ["Hint", "Solution"]
    with pytest.raises(wb.SpecError, match=r"'01\.9': there is no such exercise.*01\.1"):
        wb.exercise("01.9")


def test_no_answer_shows_the_exercise_and_is_not_counted(file: Path) -> None:
    verdict = wb.grade("01.1", ...)
    assert not verdict and not verdict.solved
    assert repr(verdict) == repr(wb.exercise("01.1"))
    assert verdict._repr_markdown_() == wb.exercise("01.1")._repr_markdown_()
    assert not file.exists()


def test_a_verdict_says_what_was_expected_and_received_and_why() -> None:
    findings = [
        equal("steps", 6, 6),
        near("bytes", 1000, 1200, 0.1, "a chunk is | a *quarter*"),
        at_most("held", 4, 5),
        at_least("share", 0.5, 0.25),
    ]
    verdict = Verdict("01.9", "A title", findings)
    assert [one.ok for one in findings] == [True, False, False, False] and not verdict.solved
    text, markdown = repr(verdict), verdict._repr_markdown_()
    assert "expected 1,000 ± 10%; received 1,200" in text and "at most 4; received 5" in text
    assert r"a chunk is \| a \*quarter\*" in markdown and "✓ steps" in markdown
    assert Verdict("01.9", "A title", findings[:1]).solved


def test_an_error_in_what_the_reader_wrote_is_a_finding() -> None:
    def raises() -> None:
        raise ValueError("no such chunk")

    verdict = wb.grade("01.4", (raises, 1))
    assert not verdict.solved and [one.what for one in verdict.findings] == ["what you wrote runs"]


def test_what_is_solved_is_kept_and_exported(file: Path, tmp_path: Path) -> None:
    for solved in (False, True, False):
        progress_file.keep_answer("01.2", solved)
    progress_file.keep_answer("01.3", False)
    progress = wb.progress()
    assert progress.solved == ["01.2"] and progress.file == file
    states = {row["exercise"]: (row["state"], row["tries"]) for row in progress.rows}
    assert states["01.1"] == ("open", 0) and states["01.2"] == ("solved", 3)
    assert states["01.3"] == ("tried", 1)
    assert "✓ 01.2" in repr(progress) and "| 01.2 |" in progress._repr_markdown_()

    progress.to_csv(tmp_path / "ada.csv", reader="Ada")
    with (tmp_path / "ada.csv").open() as lines:
        rows = [*csv.DictReader(lines)]
    assert len(rows) == len(progress.rows) and {row["reader"] for row in rows} == {"Ada"}
    assert next(row for row in rows if row["exercise"] == "01.2")["state"] == "solved"
    progress.to_json(tmp_path / "ada.json", reader="Ada")
    whole = json.loads((tmp_path / "ada.json").read_text())
    assert whole["reader"] == "Ada" and whole["exercises"] == [*progress.rows]


def test_several_notebooks_share_the_file(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda at: progress_file.keep_answer("01.1", at == 5), range(40))]
    assert progress_file.read()["exercises"]["01.1"]["tries"] == 40


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 7}', '{"format": 1, "guesses": []}'])
def test_a_damaged_file_is_named_and_stays(file: Path, text: str) -> None:
    file.write_text(text)
    for call in (wb.progress, lambda: progress_file.keep_answer("01.1", True)):
        with pytest.raises(wb.WorkbenchError, match=r"exercises\.json.*begin again"):
            call()
    assert file.read_text() == text


def test_the_file_is_in_the_nearest_folder_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_PROGRESS")
    (tmp_path / "runs").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert progress_file.path() == tmp_path / "runs" / "exercises.json"


def test_guesses_count_and_the_first_one_only() -> None:
    guess = wb.guess("Which ranks wait?", ["rank 1 alone", "all of them"])
    assert "rank 1 alone" in repr(guess) and guess.taken is None
    guess.take("rank 1 alone").take("all of them")
    assert wb.guess("Which ranks wait?", ["rank 1 alone", "all of them"]).taken == "rank 1 alone"
    result = guess.reveal("all of them", "No way round.")
    assert (
        not result.right and result.score == (0, 1) and "you guessed 'rank 1 alone'" in repr(result)
    )

    other = wb.guess("How many hops?", ["6", "8"]).take("6").reveal("6")
    assert other.right and other.score == (1, 2)
    assert "1 of 2 guesses right" in repr(wb.progress())


def test_nothing_waits_for_a_guess_and_the_result_is_folded() -> None:
    result = wb.guess("How many?", ["6", "8"]).reveal("6", "Because.")
    assert result.taken is None and result.score == (0, 0)
    assert "<details><summary>Show the result" in result._repr_markdown_()
    late = wb.guess("How many?", ["6", "8"])
    assert late.take("8").taken == "8", "no result was counted before"


def test_what_is_not_an_option_is_refused() -> None:
    question = wb.guess("How many?", ["6", "8"])
    for call in (question.take, question.reveal):
        with pytest.raises(wb.SpecError, match="must be one of '6', '8'"):
            call("7")
    for options in (["6"], ["6", "6"], "68", [6, 8]):
        with pytest.raises(wb.SpecError, match="options = "):
            wb.guess("How many?", options)


def test_a_guess_has_buttons_where_widgets_are() -> None:
    from ipywidgets import Button
    from ipywidgets.widgets.widget import _instances

    question = wb.guess("Where are buttons?", ["here", "there"])
    bundle = question._repr_mimebundle_()
    assert {"text/plain", "text/markdown"} <= {*bundle}
    assert any("widget-view" in kind for kind in bundle)
    buttons = [one for one in _instances.values() if isinstance(one, Button)]
    here = next(one for one in reversed(buttons) if one.description == "here")
    here.click()
    there = next(one for one in reversed(buttons) if one.description == "there")
    assert question.taken == "here" and there.disabled and not here.disabled  # it stays legible


def test_a_finding_is_a_record() -> None:
    assert Finding("a", True, "1", "1") == equal("a", 1, 1)
