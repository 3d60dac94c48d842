"""The report of a check: what holds and what fails, the worst first, as text."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Place, checked
from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.formulas.bounds import fewest_steps
from workbench.studies.checking.cases import MODES, RENDEZVOUS
from workbench.studies.checking.judge import NOT_RUN, REPLICATED, RIGHT, WRONG, Verdict
from workbench.studies.checking.waiting import Deadlock

if TYPE_CHECKING:
    from workbench.runs.loaded import Loaded

# From the worst fault to the least.
_FIRST = ("deadlock", "raised", "late", "ended", "outside", "shape", "changed", "unreceived", WRONG)
_COLUMNS = ("ranks", "steps", "sent", "at least")  # facts with one number for each n
_KINDS = {
    "raised": "raised an error",
    "late": "not done in time",
    "ended": "ended a rank's process",
    "outside": "wrote outside of a tensor",
    "shape": "returned something else",
    "changed": "changed an input",
}


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a check. ``print(report)`` shows all of it.

    cases    every case with its verdict.
    refused  numbers of ranks that the algorithm refuses, with its reason.
    seconds  how long the check took.
    """

    operation: str
    name: str
    cases: tuple[Verdict, ...]
    refused: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    _tables: Mapping[int, Any] = field(default_factory=dict)

    # -- what holds --

    @property
    def ok(self) -> bool:
        """Whether every case is right, with no message left unreceived and no deadlock.

        It does not judge the bytes sent, nor the last bits of replicas.
        """
        return bool(self._ran) and all(case.ok for case in self.cases)

    @property
    def correct(self) -> bool:
        """Whether every case that ended is right, and each number of ranks has such a case."""
        complete = [case for case in self._ran if case.how in (RIGHT, "unreceived")]
        counts = {case.case.ranks for case in self.cases}
        return {case.case.ranks for case in complete} == counts and not any(
            case.how not in (RIGHT, "unreceived", "deadlock") for case in self._ran
        )

    @property
    def identical(self) -> bool:
        """Whether all ranks end with the same bits, in every case that ended."""
        return bool(self._ended) and all(case.identical for case in self._ended)

    @property
    def within_bound(self) -> bool:
        """Whether no rank sends more bytes than every algorithm must."""
        finished = {case.case.ranks for case in self._ended}
        counts = {case.case.ranks for case in self.cases}
        return finished == counts and all(case.within for case in self._ended)

    @property
    def deadlock(self) -> Deadlock | None:
        """The first deadlock, with each rank's peer and line; None if there is none."""
        return next((case.deadlock for case in self.cases if case.deadlock), None)

    @cached_property
    def steps(self) -> dict[int, int]:
        """Ranks -> steps: the longest chain of messages, if each message lasts one step.

        A rank sends one message at a time, and receives one at a time.
        """
        return {n: case.steps for n, case in self._largest.items()}

    @cached_property
    def sent(self) -> dict[int, float]:
        """Ranks -> what the busiest rank sends, in sizes of the whole tensor."""
        return {n: _share(case, max(case.sent, default=0)) for n, case in self._largest.items()}

    @cached_property
    def bound(self) -> dict[int, float]:
        """Ranks -> the least that the busiest rank of any algorithm sends, in the same unit."""
        return {n: _share(case, case.bound) for n, case in self._largest.items()}

    @property
    def run(self) -> Loaded:
        """The recording of the worst case, or of the largest right one; it displays itself as a
        run.

        Raises WorkbenchError if nothing was recorded.
        """
        import polars as pl

        from workbench.runs.loaded import Loaded
        from workbench.store.event_store import Store

        case = self.worst or next(
            (verdict for verdict in reversed(self.cases) if verdict.op >= 0 and verdict.case.whole),
            None,
        )
        place = next((i for i, verdict in enumerate(self.cases) if verdict is case), -1)
        if case is None or place not in self._tables:
            raise WorkbenchError("nothing was recorded: no case began that moves anything")
        rows = self._tables[place].filter(pl.col("op") == case.op)
        title = f"{self.name} with {case.case.words}"
        words = f"{title}: {case.words or 'right'}."
        metadata = {"ok": str(case.ok), "checked": words, "title": title, "scene": "collectives"}
        metadata |= _error(case) | _waiting(case)
        return Loaded(Store.from_frame(rows, metadata))

    @checked
    def to_html(self, path: Place) -> None:
        """Write that recording as one HTML file that plays in any browser, offline."""
        self.run.to_html(path)

    @cached_property
    def worst(self) -> Verdict | None:
        """The first case with the worst fault; None if all are right."""
        bad = [case for case in self._ran if not case.ok]
        kinds = sorted(bad, key=lambda case: _FIRST.index(case.how))
        if not kinds or kinds[0].how != WRONG:
            return kinds[0] if kinds else None

        def vagueness(case: Verdict) -> tuple[bool, bool, int]:  # does it name ranks and chunks?
            specific = bool(case.wrong and (case.wrong[0].lacks or case.wrong[0].extra))
            return not specific, case.case.elements < 2 * case.case.ranks, case.case.ranks

        return min((case for case in kinds if case.how == WRONG), key=vagueness)

    @cached_property
    def smallest(self) -> Verdict | None:
        """The case with the fewest ranks and elements of those with the same fault as the worst."""
        worst = self.worst
        if worst is None or worst.how != WRONG:
            return worst
        candidates = [case for case in self._ran if case.how == WRONG]
        return min(
            candidates, key=lambda case: (case.case.ranks, case.case.elements, case is not worst)
        )

    # -- as text --

    @property
    def headline(self) -> str:
        """The first line: the most important result."""
        case, worst = self.smallest, self.worst
        if case is not None and worst is not None:
            what = "wrong" if case.how == WRONG else ""
            what = "DEADLOCK" if case.how == "deadlock" else what
            more = "" if case.words == worst.words else f"; {self._with(worst)}"
            return f"{self.name}: {f'{what} ' if what else ''}{self._with(case)}{more}"
        if not self._ran:
            return f"{self.name}: nothing was run: {'; '.join(self.refused.values())}"
        differing = "" if self.identical else ", but replicas differ in their last bits"
        if self.within_bound:
            within = "" if self.operation == "barrier" else " and within the bound"
            return f"{self.name}: correct{within}{differing}"
        most = max(self._ended, key=lambda one: (not one.within, one.times, one.case.whole))
        return (
            f"{self.name}: correct, but not within the bound{differing and ', and'}"
            f"{differing.removeprefix(', but')}: with {counted(most.case.ranks, 'rank')} the "
            f"busiest sends {most.times:.1f} times the least possible"
        )

    def _with(self, case: Verdict) -> str:
        mode = f", {MODES[case.case.mode]}" if self._only_rendezvous(case) else ""
        return f"with {case.case.words}{mode}: {case.words}"

    def __str__(self) -> str:
        lines = [self.headline]
        if self.deadlock:
            lines += [f"  {one.words} at {one.place.words}" for one in self.deadlock.stands]
        lines += [f"  {name:<14}{words}" for name, words in self.facts()]
        if printed := next((case.output for case in self._ran if case.output), ""):
            lines += ["  printed, in the first case that did:", *_indent(printed)]
        return "\n".join(lines)

    __repr__ = __str__

    def facts(self) -> list[tuple[str, str]]:
        """Return every property with its result, as text."""
        return [
            ("cases", self._scope()),
            ("results", self._results()),
            *([("replicas", self._replicas())] if self.operation in REPLICATED else []),
            ("messages", self._messages()),
            ("deadlock", self._deadlocks()),
            *self._costs(),
            *[(counted(n, "rank"), f"not run: {words}") for n, words in self.refused.items()],
        ]

    def _scope(self) -> str:
        counts = ", ".join(str(n) for n in dict.fromkeys(one.case.ranks for one in self.cases))
        left = sum(case.how == NOT_RUN for case in self.cases)
        skipped = f"; {left} not run after one that broke off" if left else ""
        sizes = sorted({one.case.elements for one in self._ran}) or [0]
        dtypes = ", ".join(dict.fromkeys(one.case.dtype for one in self._ran))
        least = f"{sizes[0]:,} to " if sizes[0] < sizes[-1] else ""
        span = f" · {least}{counted(sizes[-1], 'element')} · {dtypes}" if sizes[-1] else ""
        ranks = "1 rank" if counts == "1" else f"{counts} ranks"
        return f"{len(self._ran)} on {ranks}{span} · {self.seconds:.1f} s{skipped}"

    def _results(self) -> str:
        bad = [
            case for case in self._ran if not case.ok and case.how not in ("deadlock", "unreceived")
        ]
        if not bad:
            worst = max((case.error for case in self._ran), default=0.0)
            rounding = "; rounding within its bound" if worst else ""
            ended = sum(case.how in (RIGHT, "unreceived") for case in self._ran)
            return f"right in all {ended} that came to an end{rounding}" if ended else "none"
        kinds = ", ".join(
            f"{sum(case.how == kind for case in bad)} {_KINDS.get(kind, kind)}"
            for kind in _FIRST
            if any(case.how == kind for case in bad)
        )
        of = ", ".join(str(n) for n in dict.fromkeys(case.case.ranks for case in bad))
        return f"{kinds}, of {len(self._ran)} (with {of} ranks)"

    def _replicas(self) -> str:
        differing = next((case for case in self._ran if not case.identical), None)
        if not self._ended:
            return "not compared: no case came to its end"
        if differing is None:
            return "bit-identical on all ranks"
        return f"differ, first with {differing.case.words}"

    def _messages(self) -> str:
        left = next((case for case in self._ran if case.how == "unreceived"), None)
        if left is None and not self._ended:
            return "not known: no case came to its end"
        return left.words if left else "all received"

    def _deadlocks(self) -> str:
        deadlocks = [case for case in self._ran if case.deadlock]
        if not deadlocks:
            return f"none, also {MODES[RENDEZVOUS]}" if self._ended else "none"
        counts = ", ".join(str(n) for n in dict.fromkeys(case.case.ranks for case in deadlocks))
        only = f", only {MODES[RENDEZVOUS]}" if self._only_rendezvous(deadlocks[0]) else ""
        seconds = max(case.deadlock.seconds for case in deadlocks if case.deadlock)
        return f"with {counts} ranks{only}; found within {seconds:.1f} s"

    def _costs(self) -> list[tuple[str, str]]:
        if not self._largest:
            return []
        counts = [*self._largest]
        head = "  ".join(f"{n:>5}" for n in counts)
        rows = [
            ("ranks", head),
            ("steps", "  ".join(f"{self.steps[n]:>5}" for n in counts)),
            ("  at least", "  ".join(f"{fewest_steps(n) if n > 1 else 0:>5}" for n in counts)),
        ]
        if self.operation != "barrier":
            rows += [
                (
                    "sent",
                    "  ".join(f"{self.sent[n]:>5.2f}" for n in counts)
                    + "  × the tensor, by the busiest rank",
                ),
                ("  at least", "  ".join(f"{self.bound[n]:>5.2f}" for n in counts)),
            ]
        return rows

    # -- for notebooks --

    def _repr_html_(self) -> str:
        from workbench.front_end.html_picture import image
        from workbench.studies.checking.picture import picture

        drawn = picture(self.worst) if self.worst else ""
        shown = image(drawn, self.headline) if drawn else ""
        stands = "".join(
            f"<li>{html.escape(one.words)} at <code>{html.escape(one.place.words)}</code></li>"
            for one in (self.deadlock.stands if self.deadlock else ())
        )  # as text too: text in an image can be neither searched nor copied
        waits = f"<ul>{stands}</ul>" if stands else ""
        rows = "".join(
            f'<tr><th style="text-align:left;font-weight:600;padding-right:1em">'
            f'{html.escape(name)}</th><td style="text-align:left;white-space:pre-wrap'
            f'{";font-family:monospace" if name.strip() in _COLUMNS else ""}">'
            f"{html.escape(words)}</td></tr>"
            for name, words in self.facts()
        )
        printed = next((case.output for case in self._ran if case.output), "")
        output = f"<pre>{html.escape(printed)}</pre>" if printed else ""
        mark = "✓" if self.ok else "✗"
        return (
            f"<div><p><b>{mark} {html.escape(self.headline)}</b></p>{shown}{waits}"
            f"<table>{rows}</table>{output}</div>"
        )

    # -- which cases count --

    @cached_property
    def _ran(self) -> list[Verdict]:
        return [case for case in self.cases if case.how != NOT_RUN]

    @cached_property
    def _ended(self) -> list[Verdict]:
        return [case for case in self._ran if case.how in (RIGHT, WRONG, "unreceived")]

    @cached_property
    def _largest(self) -> dict[int, Verdict]:
        """For each number of ranks the largest case that ended."""
        largest: dict[int, Verdict] = {}
        for case in self._ended:
            before = largest.get(case.case.ranks)
            if before is None or case.case.whole >= before.case.whole:
                largest[case.case.ranks] = case
        return largest

    def _only_rendezvous(self, case: Verdict) -> bool:
        n = case.case.ranks
        return case.case.mode == RENDEZVOUS and not any(
            other.how == case.how and other.case.ranks == n and other.case.mode != RENDEZVOUS
            for other in self._ran
        )


def _share(case: Verdict, nbytes: float) -> float:
    whole = case.case.whole * int(case.case.dtype.lstrip("floatin")) // 8
    return nbytes / whole if whole else 0.0


def _waiting(case: Verdict) -> dict[str, str]:
    """Return a deadlock's waits as metadata for its view, which may have no message to draw."""
    if case.deadlock is None:
        return {}
    waits = [
        {"rank": stand.rank, "peer": stand.peer, "words": f"{stand.words} at {stand.place.words}"}
        for stand in case.deadlock.stands
        if stand.peer >= 0
    ]
    return {"waiting": json.dumps(waits), "ranks": str(case.case.ranks)}


def _error(case: Verdict) -> dict[str, str]:
    """Return the fault of a case as metadata for its view."""
    prefix = "Deadlock: " if case.how == "deadlock" else ""
    return {} if case.ok else {"error": f"{prefix}{case.words}"}


def _indent(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
