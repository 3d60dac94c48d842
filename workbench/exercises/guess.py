"""A guess before a result: taken with a click, compared when the result is there, counted.

    ranks = wb.guess("Which ranks wait?", ["rank 1 alone", "all of them"])
    ranks                                          # in a notebook: a button for each option
    ranks.reveal("all of them", "A ring has no way round its slowest link.")

Nothing waits for a guess: where none was made, the result is folded, and opens with a click.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

from workbench.common.arguments import Check, Text, Unfit, checked, each
from workbench.common.errors import SpecError, short
from workbench.exercises import progress_file
from workbench.exercises.exercise import folded
from workbench.exercises.progress import progress


def _option(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Unfit("a text")
    return value


Options = Annotated[
    Sequence[str], each(Check(_option), "at least two texts, such as ['rank 1', 'all']", least=2)
]


class Guess:
    """A question with options, one of which a reader takes before the result is shown."""

    def __init__(self, question: str, options: Sequence[str]) -> None:
        self.question, self.options = question, tuple(options)

    @property
    def taken(self) -> str | None:
        """The option that was taken, now or when the question was first asked; else None."""
        kept = progress_file.read()["guesses"].get(self.question, {})
        return kept.get("taken") if kept.get("taken") in self.options else None

    @checked
    def take(self, option: Text) -> Guess:
        """Take ``option``, one of the texts. The first guess counts, and only before the result
        was revealed. Raises SpecError if it is not one of them.
        """
        chosen = self._known("Guess.take", "option", option)

        def edit(kept: dict[str, Any]) -> None:
            own = kept["guesses"].setdefault(self.question, {"options": [*self.options]})
            if own.get("taken") not in self.options and "answer" not in own:
                own["taken"] = chosen

        progress_file.change(edit)
        return self

    @checked
    def reveal(self, answer: Text, why: Text = "") -> Revealed:
        """Return the result beside the guess: ``answer`` is one of the options, ``why`` its
        reason. Raises SpecError if it is not one of them.
        """
        right = self._known("Guess.reveal", "answer", answer)
        choice = self.taken
        if choice is not None:

            def edit(kept: dict[str, Any]) -> None:
                kept["guesses"][self.question]["answer"] = right

            progress_file.change(edit)
        return Revealed(self.question, right, why, choice, progress().guessed)

    def _known(self, call: str, name: str, value: str) -> str:
        if value not in self.options:
            raise SpecError(
                f"{call}: {name} = {short(value)}: must be one of "
                + ", ".join(map(repr, self.options))
            )
        return value

    def __repr__(self) -> str:
        lines = [f"Guess: {self.question}", *(f"  - {one}" for one in self.options)]
        own = f"Your guess: {self.taken}" if self.taken else "Guess with .take(option)"
        return "\n".join([*lines, own])

    def _repr_markdown_(self) -> str:
        lines = [f"**Guess: {self.question}**", "", *(f"- {one}" for one in self.options)]
        return "\n".join(lines + ["", f"Your guess: *{self.taken}*"] * bool(self.taken))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return text and Markdown, and buttons where notebooks have widgets."""
        data: dict[str, Any] = {"text/plain": repr(self), "text/markdown": self._repr_markdown_()}
        try:
            return data | _buttons(self)
        except ImportError:  # no ipywidgets here: take() does as well
            return data


@dataclass(frozen=True, repr=False)
class Revealed:
    """A result beside the guess; it displays itself.

    question  what was asked.
    answer    the option that is right.
    why       its reason.
    taken     the reader's guess; None if there was none.
    score     how many guesses were right so far, of how many.
    """

    question: str
    answer: str
    why: str
    taken: str | None
    score: tuple[int, int]

    @property
    def right(self) -> bool:
        """Whether the guess was right."""
        return self.taken == self.answer

    @property
    def _words(self) -> str:
        return f"{self.answer}. {self.why}".strip()

    @property
    def _judged(self) -> str:
        state = "right" if self.right else f"you guessed {self.taken!r}"
        return f"{state}; {self.score[0]} of {self.score[1]} guesses right so far"

    def __repr__(self) -> str:
        mark = "" if self.taken is None else f"{'✓' if self.right else '✗'} {self._judged}\n"
        return f"{self.question}\n{mark}{self._words}"

    def _repr_markdown_(self) -> str:
        if self.taken is None:
            return f"{self.question}\n\n" + folded("Show the result", self._words)
        mark = f"**{'✓' if self.right else '✗'} {self._judged}**"
        return f"{self.question}\n\n{mark}\n\n{self._words}"


@checked
def guess(question: Text, options: Options) -> Guess:
    """Ask for a guess before a result: ``question`` with ``options``, at least two.

    In a notebook it displays buttons. ``guess.reveal(answer, why)`` shows the result beside the
    guess later; the score is kept with the progress. Nothing waits for the reader.

    Raises SpecError if options are equal.

    >>> wb.guess("Which ranks wait?", ["rank 1", "all of them"])
    """
    if len({*options}) < len(options):
        raise SpecError(f"wb.guess: options = {short(options)}: must be different from each other")
    return Guess(question, options)


def _buttons(quiz: Guess) -> dict[str, Any]:
    """Return the widget's part of a MIME bundle: a button for each option, of which one counts.

    Raises ImportError where there are no widgets.
    """
    import ipywidgets as w

    words = w.HTML(f"<b>Guess: {escape(quiz.question)}</b>")
    buttons = [w.Button(description=one, layout=w.Layout(width="auto")) for one in quiz.options]
    note = w.HTML()

    def show() -> None:
        note.value = f"Your guess: <i>{escape(quiz.taken)}</i>" if quiz.taken else ""
        for button in buttons:
            button.disabled = quiz.taken not in (None, button.description)  # its own stays legible
            button.button_style = "info" if button.description == quiz.taken else ""

    def clicked(button: Any) -> None:
        quiz.take(button.description)
        show()

    for button in buttons:
        button.on_click(clicked)
    show()
    box = w.VBox([words, w.HBox(buttons, layout=w.Layout(flex_flow="row wrap")), note])
    bundle = box._repr_mimebundle_()
    return {kind: one for kind, one in bundle.items() if "widget" in kind}
