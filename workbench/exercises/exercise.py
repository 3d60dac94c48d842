"""An exercise: task, hint and solution, what it takes as an answer, and its judge."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.exercises.answers import Kind
from workbench.exercises.verdict import Finding

Judge = Callable[[Any], Sequence[Finding]]
DIFFICULTIES = {1: "easy", 2: "medium", 3: "hard"}


@dataclass(frozen=True, repr=False, kw_only=True)
class Exercise:
    """An exercise of a chapter; it displays itself, with hint and solution folded.

    name        chapter and number: "01.2".
    title       a few words.
    difficulty  1 (easy), 2 or 3 (hard).
    minutes     how long it takes a reader of the chapter.
    takes       the kind of answer.
    judge       takes the answer, returns findings; it may run ranks.
    task        what to do, in Markdown.
    hint        the first step, in Markdown.
    solution    the answer and its reason, in Markdown.
    """

    name: str
    title: str
    difficulty: int
    minutes: int
    takes: Kind
    judge: Judge = field(compare=False)
    task: str
    hint: str
    solution: str

    @property
    def chapter(self) -> str:
        """The number of the chapter, as its file has it: "01"."""
        return self.name.partition(".")[0]

    @property
    def call(self) -> str:
        """The line that grades it."""
        return f'wb.grade("{self.name}", {self.takes.example})'

    @property
    def _facts(self) -> str:
        return f"{DIFFICULTIES[self.difficulty]}, about {self.minutes} minutes"

    def __repr__(self) -> str:
        name = f'wb.exercise("{self.name}")'
        lines = [f"Exercise {self.name} · {self.title} ({self._facts})", "", dedented(self.task)]
        lines += ["", f"Answer: {self.call}", f"  which takes {self.takes.words}"]
        return "\n".join([*lines, f"Folded: print({name}.hint), print({name}.solution)"])

    def _repr_markdown_(self) -> str:
        parts = [
            f"**Exercise {self.name} · {self.title}** · {self._facts}",
            dedented(self.task),
            f"Answer with `{self.call}`, which takes {self.takes.words}.",
            folded("Hint", self.hint),
            folded("Solution", self.solution),
        ]
        return "\n\n".join(parts)


def dedented(text: str) -> str:
    """Return Markdown from a docstring-like literal, a paragraph to a line."""
    blocks = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
    return "\n\n".join(one if _keeps_lines(one) else " ".join(one.split()) for one in blocks)


def folded(summary: str, text: str) -> str:
    """Return Markdown that opens with a click, wherever HTML's ``details`` is known."""
    return f"<details><summary>{summary}</summary>\n\n{dedented(text)}\n\n</details>"


def _keeps_lines(block: str) -> bool:
    return block.startswith(("```", "* ", "- ", "1. ", "| "))
