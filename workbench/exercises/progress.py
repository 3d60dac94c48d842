"""A reader's progress: which exercises are solved, which guesses were right; exported for a
teacher.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.common.arguments import Place, Text, checked
from workbench.common.output_files import write_text
from workbench.exercises import progress_file
from workbench.exercises.catalogue import exercises
from workbench.exercises.exercise import DIFFICULTIES

COLUMNS = ("exercise", "title", "difficulty", "minutes", "state", "tries", "solved_at")


@dataclass(frozen=True, repr=False)
class Progress:
    """The state of all exercises; it displays itself as a table.

    rows     one dictionary for each exercise: exercise, title, difficulty, minutes, state
             ("solved", "tried" or "open"), tries, solved_at.
    guesses  question -> what was taken, and the answer once it was revealed.
    file     where this is kept.
    """

    rows: tuple[dict[str, Any], ...]
    guesses: dict[str, dict[str, Any]]
    file: Path

    @property
    def solved(self) -> list[str]:
        """The names of the exercises that are solved."""
        return [row["exercise"] for row in self.rows if row["state"] == "solved"]

    @property
    def guessed(self) -> tuple[int, int]:
        """The number of right guesses, and of all guesses whose result is known."""
        guesses = [one for one in self.guesses.values() if {"taken", "answer"} <= one.keys()]
        return sum(one["taken"] == one["answer"] for one in guesses), len(guesses)

    @checked
    def to_csv(self, path: Place, reader: Text = "") -> None:
        """Write a row for each exercise to ``path``; ``reader`` (a name) begins every row.

        Raises WorkbenchError if it cannot be written.
        """
        text = io.StringIO()
        table = csv.DictWriter(text, ("reader", *COLUMNS), lineterminator="\n")
        table.writeheader()
        table.writerows({"reader": reader, **row} for row in self.rows)
        write_text(path, progress_file.WHAT, text.getvalue())

    @checked
    def to_json(self, path: Place, reader: Text = "") -> None:
        """Write exercises and guesses to ``path``; ``reader`` is a name that stands beside them.

        Raises WorkbenchError if it cannot be written.
        """
        right, total = self.guessed
        whole = {
            "reader": reader,
            "exercises": [*self.rows],
            "guesses": {"right": right, "made": total, "each": self.guesses},
        }
        text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
        write_text(path, progress_file.WHAT, text)

    @property
    def _headline(self) -> str:
        right, total = self.guessed
        words = f"{len(self.solved)} of {len(self.rows)} exercises solved"
        return words + (f"; {right} of {total} guesses right" if total else "")

    def __repr__(self) -> str:
        marks = {"solved": "✓", "tried": "…", "open": " "}
        lines = [
            f"  {marks[row['state']]} {row['exercise']}  {row['title']}"
            + (f" ({row['tries']} tries)" if row["tries"] > 1 else "")
            for row in self.rows
        ]
        return "\n".join([self._headline, *lines])

    def _repr_markdown_(self) -> str:
        head = ["| exercise | | difficulty | minutes | state | tries |", "|" + " --- |" * 6]
        rows = [
            f"| {row['exercise']} | {row['title']} | {row['difficulty']} | {row['minutes']} "
            f"| {'✓ ' if row['state'] == 'solved' else ''}{row['state']} | {row['tries']} |"
            for row in self.rows
        ]
        return "\n".join([f"**{self._headline}**", "", *head, *rows])


def progress() -> Progress:
    """Return which exercises are solved, which guesses were right: a table that displays itself.

    Raises WorkbenchError if the file in which that is kept is damaged.
    """
    kept = progress_file.read()
    rows = []
    for name, one in exercises().items():
        own = kept["exercises"].get(name, {})
        state = "solved" if own.get("solved") else "tried" if own.get("tries") else "open"
        facts = (one.title, DIFFICULTIES[one.difficulty], one.minutes, state, own.get("tries", 0))
        rows.append(dict(zip(COLUMNS, (name, *facts, own.get("solved_at", "")), strict=True)))
    return Progress(tuple(rows), kept["guesses"], progress_file.path())
