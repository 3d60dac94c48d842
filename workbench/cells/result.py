"""The result of a cell, by rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.common.errors import RankError


class CellError(RankError):
    """A cell that failed on a rank. In a notebook it is shown in a line: what was raised has been
    shown already, by rank.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class CellInterrupted(KeyboardInterrupt):
    """The user interrupted a cell; the ranks live."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


@dataclass
class CellResult:
    """``values``: each rank's last expression, as it prints; ``errors``: what each raised (kind,
    words, line, source, text); ``died``: how ranks ended, in words; ``notes``: what was noticed;
    ``printed``: lines in the order in which they came (rank, "out" or "err", line). ``deadlock``:
    ranks that were last seen to wait in a circle, each for the next.
    """

    ranks: tuple[int, ...]
    values: dict[int, str] = field(default_factory=dict)
    errors: dict[int, dict[str, Any]] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    printed: list[tuple[int, str, str]] = field(default_factory=list)
    deadlock: tuple[int, ...] = ()
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether the cell ended on every rank without an error."""
        return not (self.errors or self.died or self.interrupted)

    def output(self, rank: int, stream: str = "out") -> str:
        """Return what a rank printed."""
        return "".join(f"{line}\n" for r, s, line in self.printed if (r, s) == (rank, stream))

    def check(self) -> CellResult:
        """Return this result if all went well.

        Raises CellError, which names the first rank and its line, or CellInterrupted.
        """
        if self.interrupted:
            raise CellInterrupted("the cell was interrupted; the ranks live, with their variables")
        if self.died:
            rank, words = min(self.died.items())
            raise CellError(f"rank {rank} {words}", rank)
        errors = {
            rank: one for rank, one in self.errors.items() if one["kind"] != "KeyboardInterrupt"
        }
        if errors:
            rank, error = min(
                errors.items(), key=lambda item: (item[1]["kind"] == "PeerLost", item[0])
            )
            line = f", line {error['line']}" if error["line"] else ""
            raise CellError(f"{named(errors)} raised; rank {rank}{line}: {error['words']}", rank)
        return self

    def __str__(self) -> str:
        lines = [label_lines([rank], line) for rank, _, line in self.printed]
        lines += [label_lines(ranks, text) for ranks, text in together(self.values)]
        texts = {rank: error["text"] for rank, error in self.errors.items()}
        lines += [label_lines(ranks, text) for ranks, text in together(texts)]
        return "\n".join([*lines, *self.notes])


def together(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Group ranks with the same text, in the order of the first of each."""
    result: dict[str, list[int]] = {}
    for rank in sorted(texts):
        if texts[rank]:
            result.setdefault(texts[rank], []).append(rank)
    return [(ranks, text) for text, ranks in result.items()]


def label(ranks: Iterable[int]) -> str:
    """Return [rank 1], [ranks 0-3], [ranks 0, 2]."""
    ranks = sorted(ranks)
    if len(ranks) == 1:
        return f"[rank {ranks[0]}]"
    whole = ranks == list(range(ranks[0], ranks[-1] + 1))
    apart = ", ".join(map(str, ranks))
    return f"[ranks {ranks[0]}-{ranks[-1]}]" if whole and len(ranks) > 2 else f"[ranks {apart}]"


def named(ranks: Iterable[int]) -> str:
    """Return rank 1, ranks 0-3: as a sentence begins."""
    return label(ranks).strip("[]")


def label_lines(ranks: Iterable[int], text: str) -> str:
    """Return the text with its ranks before each line."""
    mark = label(ranks)
    return "\n".join(f"{mark} {line}" for line in text.splitlines() or [""])
