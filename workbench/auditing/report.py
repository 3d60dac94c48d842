"""The result of an audit: a verdict, findings, the weights of losses, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["RIGHT", "WRONG", "QUESTION", "ABSTAINS"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something wrong with an update, or a question about it.

    ``parameter`` is its name; "" where all are concerned. ``ranks`` are those that use the wrong
    update, and ``group`` the ranks over which it should have been reduced, or over which a factor
    is a size; () where that is not known. ``factor`` is the factor by which it is wrong, 1 where
    none is known. ``line`` is the line of the script that the finding points to, "" for none.
    ``sentence`` says all of it. ``asks`` is True for a question.
    """

    parameter: str
    ranks: tuple[int, ...]
    group: tuple[int, ...]
    factor: float
    line: str
    sentence: str
    asks: bool = False


@dataclass(frozen=True, kw_only=True)
class Weight:
    """The weight of each loss in what one rank uses of one parameter.

    ``parameter`` is its name, ``copies`` the ranks that hold the same numbers, ``rank`` the one
    meant. ``weights`` has a number per loss, as ``Audit.losses`` names them; None: it cannot be
    measured. ``straight`` says for each whether what is used is a multiple of the derivative.
    """

    parameter: str
    copies: tuple[int, ...]
    rank: int
    weights: tuple[float | None, ...]
    straight: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of ``wb.audit``; ``print`` says it in words.

    ``verdict`` is "RIGHT": what is used is the derivative of one weighted sum of the losses;
    "WRONG", with what and where in ``findings``; "QUESTION": it cannot know what is meant; or
    "ABSTAINS": it could not measure, and says why in ``sentence``. ``weights`` has a row per
    parameter and rank, for the losses that ``losses`` names. ``notes`` say what else was noticed.
    ``seconds`` is how long it took, ``runs`` how many updates it ran.
    """

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...] = ()
    weights: tuple[Weight, ...] = ()
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    runs: int = 0

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.verdict}: {self.sentence}",
                *_listed([one.sentence for one in self.findings if not one.asks], "- "),
                *_listed([one.sentence for one in self.findings if one.asks], "? "),
                *_listed(self.notes, "note: "),
                *_table(self),
                f"{self.runs} runs of one update, {self.seconds:.1f} s",
            ]
        )

    def _repr_markdown_(self) -> str:
        return f"```text\n{self}\n```"


def _listed(lines: Sequence[str], mark: str) -> list[str]:
    return [f"  {mark}{one}" for one in dict.fromkeys(lines)]


def _table(audit: Audit) -> list[str]:
    """Return the weights as lines of text."""
    if not audit.weights:
        return []
    names = ["parameter", "rank", *(f"loss of {one}" for one in audit.losses)]
    rows = [[row.parameter, str(row.rank), *_cells(row)] for row in audit.weights]
    widths = [max(len(row[at]) for row in [names, *rows]) for at in range(len(names))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [names, *rows]
    ]


def _cells(row: Weight) -> list[str]:
    pairs = zip(row.weights, row.straight, strict=True)
    return [
        "-" if one is None else f"{one:.4g}{'' if straight else '?'}" for one, straight in pairs
    ]


@dataclass
class Words:
    """The judge's words so far."""

    findings: list[Finding] = field(default_factory=list)
    questions: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    abstains: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ask(self, sentence: str, parameter: str = "", ranks: Sequence[int] = ()) -> None:
        """Ask whether something is meant."""
        self.questions.append(_finding(sentence, parameter, ranks, asks=True))

    def blame(
        self,
        sentence: str,
        parameter: str = "",
        ranks: Sequence[int] = (),
        group: Sequence[int] = (),
        factor: float = 1.0,
        line: str = "",
    ) -> None:
        """Say that something is wrong."""
        self.findings.append(_finding(sentence, parameter, ranks, group, factor, line))


def _finding(
    sentence: str,
    parameter: str,
    ranks: Sequence[int],
    group: Sequence[int] = (),
    factor: float = 1.0,
    line: str = "",
    asks: bool = False,
) -> Finding:
    return Finding(
        parameter=parameter,
        ranks=tuple(sorted({*ranks})),
        group=tuple(group),
        factor=factor,
        line=line,
        sentence=sentence,
        asks=asks,
    )
