"""The report of a check: what holds and what does not, the worst first, in words."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.checking.cases import MODES, RENDEZVOUS
from workbench.checking.judge import NOT_RUN, REPLICATED, RIGHT, WRONG, Judged
from workbench.checking.waiting import Deadlock
from workbench.formulas.bounds import fewest_steps
from workbench.units import counted

if TYPE_CHECKING:
    from workbench.store import Loaded

# What is worst is told first.
_FIRST = ("deadlock", "raised", "late", "ended", "outside", "shape", "changed", "unreceived", WRONG)
_COLUMNS = ("ranks", "steps", "sent", "at least")  # facts that are a number for each n
_KINDS = {
    "raised": "raised an error", "late": "not done in time", "ended": "ended a rank's process",
    "outside": "wrote outside of a tensor", "shape": "returned something else",
    "changed": "changed an input",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Report:
    """What came of a check. ``print(report)`` says all of it.

    cases   every case with its verdict; ``refused``: numbers of ranks that the algorithm says it
            cannot take, and why; ``seconds``: how long it took.
    """

    operation: str
    name: str
    cases: tuple[Judged, ...]
    refused: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    _tables: Mapping[int, Any] = field(default_factory=dict)

    # -- what holds --

    @property
    def ok(self) -> bool:
        """Right in every case, nothing left unreceived, no deadlock. Says nothing of bytes, nor of
        the last bits of replicas."""
        return bool(self._ran) and all(case.ok for case in self.cases)

    @property
    def correct(self) -> bool:
        """Did every case that came to its end give the right result, and did one for each n?"""
        ended = [case for case in self._ran if case.how in (RIGHT, "unreceived")]
        counts = {case.case.ranks for case in self.cases}
        return {case.case.ranks for case in ended} == counts and not any(
            case.how not in (RIGHT, "unreceived", "deadlock") for case in self._ran
        )

    @property
    def identical(self) -> bool:
        """Do all ranks end with the same bits, in every case that came to its end?"""
        return bool(self._ended) and all(case.identical for case in self._ended)

    @property
    def within_bound(self) -> bool:
        """Does no rank send more bytes than any algorithm must?"""
        counts = {case.case.ranks for case in self._ended}
        asked = {case.case.ranks for case in self.cases}
        return counts == asked and all(case.within for case in self._ended)

    @property
    def deadlock(self) -> Deadlock | None:
        """The first deadlock: who waits for whom, each rank's line. None if there is none."""
        return next((case.deadlock for case in self.cases if case.deadlock), None)

    @cached_property
    def steps(self) -> dict[int, int]:
        """Ranks -> steps: the longest chain of messages, if each lasted one step, where a rank
        sends one at a time and receives one at a time."""
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
        """The stage of the worst case, or of the largest that is right: displays itself as a run.

        Raises ValueError if nothing was recorded.
        """
        import polars as pl

        from workbench.store import Loaded, Store

        case = self.worst or next(
            (one for one in reversed(self.cases) if one.op >= 0 and one.case.whole), None
        )
        place = next((i for i, one in enumerate(self.cases) if one is case), -1)
        if case is None or place not in self._tables:
            raise ValueError("nothing was recorded")
        rows = self._tables[place].filter(pl.col("op") == case.op)
        title = f"{self.name} with {case.case.words}"
        words = f"{title}: {case.words or 'right'}."
        metadata = {"ok": str(case.ok), "checked": words, "title": title, "scene": "collectives"}
        metadata |= _error(case) | _waiting(case)
        return Loaded(Store.from_frame(rows, metadata))

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """The stage of that case as one file that animates in any browser, offline."""
        self.run.to_html(path)

    @cached_property
    def worst(self) -> Judged | None:
        """The first case of the worst kind; None if all are right."""
        bad = [case for case in self._ran if not case.ok]
        kinds = sorted(bad, key=lambda case: _FIRST.index(case.how))
        if not kinds or kinds[0].how != WRONG:
            return kinds[0] if kinds else None

        def tells(case: Judged) -> tuple[bool, bool, int]:  # whose part is missing, in which chunk
            said = bool(case.wrong and (case.wrong[0].lacks or case.wrong[0].extra))
            return not said, case.case.elements < 2 * case.case.ranks, case.case.ranks

        return min((case for case in kinds if case.how == WRONG), key=tells)

    # -- in words --

    @property
    def headline(self) -> str:
        """The first line: the one thing to know."""
        case = self.worst
        if case is not None:
            mode = f", {MODES[case.case.mode]}" if self._only_rendezvous(case) else ""
            what = "wrong" if case.how == WRONG else ""
            what = "DEADLOCK" if case.how == "deadlock" else what
            with_ = f"with {case.case.words}{mode}"
            return f"{self.name}: {f'{what} ' if what else ''}{with_}: {case.words}"
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
        """Every property with what is to be said of it."""
        return [
            ("cases", self._asked()),
            ("results", self._results()),
            *([("replicas", self._replicas())] if self.operation in REPLICATED else []),
            ("messages", self._messages()),
            ("deadlock", self._deadlocks()),
            *self._costs(),
            *[(counted(n, "rank"), f"not asked: {words}") for n, words in self.refused.items()],
        ]

    def _asked(self) -> str:
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
        found = [case for case in self._ran if case.deadlock]
        if not found:
            return f"none, also {MODES[RENDEZVOUS]}" if self._ended else "none"
        counts = ", ".join(str(n) for n in dict.fromkeys(case.case.ranks for case in found))
        only = f", only {MODES[RENDEZVOUS]}" if self._only_rendezvous(found[0]) else ""
        seconds = max(case.deadlock.seconds for case in found if case.deadlock)
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
                ("sent", "  ".join(f"{self.sent[n]:>5.2f}" for n in counts)
                 + "  × the tensor, by the busiest rank"),
                ("  at least", "  ".join(f"{self.bound[n]:>5.2f}" for n in counts)),
            ]  # fmt: skip
        return rows

    # -- for notebooks --

    def _repr_html_(self) -> str:
        from workbench.checking.picture import picture
        from workbench.views.embedded import image

        drawn = picture(self)
        shown = image(drawn, self.headline) if drawn else ""
        stands = "".join(
            f"<li>{html.escape(one.words)} at <code>{html.escape(one.place.words)}</code></li>"
            for one in (self.deadlock.stands if self.deadlock else ())
        )  # in words too: those in an image can be neither searched nor copied
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
    def _ran(self) -> list[Judged]:
        return [case for case in self.cases if case.how != NOT_RUN]

    @cached_property
    def _ended(self) -> list[Judged]:
        return [case for case in self._ran if case.how in (RIGHT, WRONG, "unreceived")]

    @cached_property
    def _largest(self) -> dict[int, Judged]:
        """For each number of ranks the largest case."""
        found: dict[int, Judged] = {}
        for case in self._ended:
            before = found.get(case.case.ranks)
            if before is None or case.case.whole >= before.case.whole:
                found[case.case.ranks] = case
        return found

    def _only_rendezvous(self, case: Judged) -> bool:
        n = case.case.ranks
        return case.case.mode == RENDEZVOUS and not any(
            one.how == case.how and one.case.ranks == n and one.case.mode != RENDEZVOUS
            for one in self._ran
        )


def _share(case: Judged, nbytes: float) -> float:
    whole = case.case.whole * int(case.case.dtype.lstrip("floatin")) // 8
    return nbytes / whole if whole else 0.0


def _waiting(case: Judged) -> dict[str, str]:
    """Who waits for whom in a deadlock, for its stage: it may be that nothing has ever left."""
    if case.deadlock is None:
        return {}
    told = [
        {"rank": one.rank, "peer": one.peer, "words": f"{one.words} at {one.place.words}"}
        for one in case.deadlock.stands
        if one.peer >= 0
    ]
    return {"waiting": json.dumps(told), "ranks": str(case.case.ranks)}


def _error(case: Judged) -> dict[str, str]:
    """What the stage says of a case that is not right."""
    what = "Deadlock: " if case.how == "deadlock" else ""
    return {} if case.ok else {"error": f"{what}{case.words}"}


def _indent(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
