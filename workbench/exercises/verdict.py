"""The verdict on an answer: findings, each with what was expected, what was received, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Finding:
    """One thing that a judge looked at.

    what      a noun: "bytes that a rank sends".
    ok        whether it is as it must be.
    expected  what the record, or a bound, says, in words.
    received  what the answer is, or did.
    why       the reason in a sentence or two; it is shown either way.
    """

    what: str
    ok: bool
    expected: str
    received: str
    why: str = ""


def equal(what: str, expected: object, received: object, why: str = "") -> Finding:
    """Return the finding on a value that must be exact."""
    return Finding(what, expected == received, shown(expected), shown(received), why)


def near(what: str, expected: float, received: float, within: float, why: str = "") -> Finding:
    """Return the finding on a number that must be right to a share, such as ``within=0.1``."""
    ok = abs(received - expected) <= within * abs(expected)
    return Finding(what, ok, f"{shown(expected)} ± {within:.0%}", shown(received), why)


def timed(
    what: str, formula: float, measured: float, received: float, within: float, why: str = ""
) -> Finding:
    """Return the finding on what takes time: the formula judges, because a busy machine takes
    longer, and what this machine measured stands beside it.
    """
    ok = abs(received - formula) <= within * abs(formula)
    words = f"{shown(formula)} ± {within:.0%} (measured just now: {shown(round(measured, 3))})"
    return Finding(what, ok, words, shown(received), why)


def at_most(what: str, limit: float, received: float, why: str = "") -> Finding:
    """Return the finding on a number that must not exceed a limit."""
    return Finding(what, received <= limit, f"at most {shown(limit)}", shown(received), why)


def at_least(what: str, limit: float, received: float, why: str = "") -> Finding:
    """Return the finding on a number that must reach a limit."""
    return Finding(what, received >= limit, f"at least {shown(limit)}", shown(received), why)


def shown(value: object) -> str:
    """Return a value as a reader wants it: 351,754 or 0.219."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) or value == int(value) else f"{value:,.6g}"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The verdict on an answer; it displays itself in a notebook and as text.

    name      the exercise, such as "01.2".
    title     its title.
    findings  what was looked at, in order; there are none while there is no answer.
    seconds   how long it took to judge.
    task      the exercise as it is displayed, where there is no answer yet.
    """

    name: str
    title: str
    findings: Sequence[Finding]
    seconds: float = 0.0
    task: object = None

    @property
    def solved(self) -> bool:
        """Whether there is an answer, and everything about it is as it must be."""
        return bool(self.findings) and all(one.ok for one in self.findings)

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        if not self.findings:
            return f"{self.name} {self.title}: no answer yet"
        state = "solved" if self.solved else "not yet"
        return f"{self.name} {self.title}: {state} (judged in {self.seconds:.1f} s)"

    def __bool__(self) -> bool:
        return self.solved

    def __repr__(self) -> str:
        if not self.findings:
            return f"{self.task}" if self.task else self.headline
        lines = [self.headline]
        for one in self.findings:
            lines.append(f"  {_mark(one.ok)} {one.what}")
            lines.append(f"      expected {one.expected}; received {one.received}")
            lines += [f"      {one.why}"] if one.why else []
        return "\n".join(lines)

    def _repr_markdown_(self) -> str:
        if not self.findings and self.task is not None:
            return str(self.task._repr_markdown_())  # type: ignore[attr-defined]
        rows = [
            f"| {_mark(one.ok)} {_cell(one.what)} | {_cell(one.expected)} "
            f"| {_cell(one.received)} | {_cell(one.why)} |"
            for one in self.findings
        ]
        head = ["| | expected | received | why |", "| --- | --- | --- | --- |"]
        title = f"**{_mark(self.solved)} {_cell(self.headline)}**"
        return "\n".join([title, "", *head, *rows])


def _mark(ok: bool) -> str:
    return "✓" if ok else "✗"


def _cell(text: str) -> str:
    """Return text that stays text in a cell of a Markdown table."""
    plain = escape(text, quote=False).replace("|", "\\|").replace("`", "'")
    return plain.replace("\n", "<br>").replace("*", "\\*").replace("_", "\\_")
