"""One rank more, one less: the experiment of a picture once more, before and after side by side.

    + on the picture -> the same experiment with 5 ranks runs -> 4 ranks | 5 ranks | side by side

A host of a picture (notebook, laboratory, web app) starts the run and turns its picture to what is
to be shown; this decides what that is, and says it to the page (``facts``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Protocol

from workbench.analysis.curves import select
from workbench.common import threads
from workbench.common.errors import SpecError, WorkbenchError, short
from workbench.common.units import counted, print_duration
from workbench.experiment.spec import Experiment
from workbench.studies.side_by_side import pair_of
from workbench.views.pages.facts import in_a_line

MOST_RANKS = 64
MOST_TRIES = 8  # numbers of ranks that are tried after one that cannot be
ENDS_IN = 60.0  # seconds in which a run that was stopped ends
BOTH = "both"


class Host(Protocol):
    """The host of a picture: it starts runs, and turns the picture to them."""

    def begin(self, exp: Experiment) -> Any:
        """Start a run and return it. Raises what ``wb.run`` raises."""

    def turn(self, run: Any, trials: RankTrials) -> None:
        """Show this run, or this comparison, in the picture."""

    def refresh_facts(self) -> None:
        """Send the facts again."""


class RankTrials:
    """The runs of one picture, oldest first, which differ in their number of ranks alone."""

    def __init__(self, host: Host, *runs: Any) -> None:
        self._host, self._runs = host, [*runs]
        self._at: int | str = len(self._runs) - 1  # whose run is shown; BOTH
        self._lock = threading.Lock()
        self._starting = 0  # the number of ranks of a run that is about to start
        self._words, self._refused = "", False
        self._offers: dict[int, dict[str, Any]] = {}  # by the number of ranks

    def follow(self) -> None:
        """Show both runs, where there are two, as soon as the newer one is over."""
        if not self.single:
            self._runs[-1].at_end(partial(self._ended, self._runs[-1]))

    # ---- what the page shows

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that the page needs: names of both runs, the one shown, and what can be run."""
        pair = self._runs[-2:]
        shown = self._at if self._at == BOTH else len(pair) - len(self._runs) + int(self._at)
        offers = self._offer(pair[-1].experiment) if self._at != BOTH else {}
        return {
            "names": [_name(run.experiment) for run in pair] if len(pair) > 1 else [],
            "at": shown,
            "starting": self._starting,
            "words": self._words,
            "refused": self._refused,
            **offers,
        }

    @property
    def single(self) -> bool:
        """Whether there is one run, and none to compare it with."""
        return len(self._runs) < 2

    def _offer(self, exp: Experiment) -> dict[str, Any]:
        if exp.ranks not in self._offers:
            self._offers[exp.ranks] = {"more": offer(exp, 1), "fewer": offer(exp, -1)}
        return self._offers[exp.ranks]

    # ---- what the page asks for

    def obey(self, verb: str, args: Mapping[str, Any]) -> str:
        """Do what the page asks for; return the answer. Raises WorkbenchError in words."""
        if verb == "run_with_ranks":
            return self.run_with(args.get("ranks"))
        if verb == "show_trial":
            return self.show(args.get("which"))
        return self.undo()

    def run_with(self, ranks: Any) -> str:
        """Run the newest experiment with so many ranks; a run that goes on ends first."""
        if not isinstance(ranks, int) or isinstance(ranks, bool):
            raise SpecError(f"The number of ranks is a whole number, not {short(ranks)}.")
        with self._lock:
            if self._starting:
                raise WorkbenchError(f"A run with {self._starting} ranks is about to start.")
            before = self._runs[-1]
            exp = before.experiment.replace(ranks=ranks)
            self._starting, self._words, self._refused = ranks, "", False
        threads.start(partial(self._start, before, exp), "workbench trial")
        ends = "" if before.done else "This run ends after its iteration, then "
        return f"{ends}{_name(exp)} start …"

    def _start(self, before: Any, exp: Experiment) -> None:
        try:
            if not before.done:
                before.stop()
                before.wait(ENDS_IN, check=False, progress=False)
            after = self._host.begin(exp)
        except Exception as error:  # in its own words: the page that asked is told
            with self._lock:
                self._starting, self._refused = 0, True
                self._words = in_a_line(str(error))
            self._host.refresh_facts()
            return
        with self._lock:
            self._runs.append(after)
            self._at, self._starting = len(self._runs) - 1, 0
        self._host.turn(after, self)
        self.follow()

    def _ended(self, run: Any) -> None:
        """Show both, once the newer one is over and the reader still looks at it."""
        if run is not self._runs[-1] or len(self._runs) < 2:
            return
        self._words = compared(*self._runs[-2:])
        if self._at == len(self._runs) - 1:
            try:
                self.show(BOTH)
            except WorkbenchError:  # it has no collectives to put beside each other
                self._host.refresh_facts()

    def show(self, which: Any) -> str:
        """Show the run before (0), the run after (1), or both."""
        if which not in (0, 1, BOTH) or len(self._runs) < 2:
            raise SpecError(f"There is nothing to show as {short(which)}.")
        pair = self._runs[-2:]
        if which == BOTH:
            before, after = (_name(run.experiment) for run in pair)
            shown = pair_of(pair[0], pair[1], (before, after), largest=True)
            self._at = BOTH
        else:
            shown = pair[which]
            self._at = len(self._runs) - 2 + which
        self._host.turn(shown, self)
        return ""

    def undo(self) -> str:
        """Take the newer run back: the one before is shown."""
        with self._lock:
            if len(self._runs) < 2:
                raise WorkbenchError("There is nothing to take back.")
            gone = self._runs.pop()
            self._at, self._words, self._refused = len(self._runs) - 1, "", False
        if not gone.done:
            gone.stop()
        self._host.turn(self._runs[-1], self)
        return ""


def offer(exp: Experiment, step: int) -> dict[str, Any]:
    """Return what one rank more (or less) would be: ``ranks``, how many it can be, 0 for none; and
    ``words``: why not the next number.
    """
    words = ""
    for ranks in range(exp.ranks + step, exp.ranks + step * (1 + MOST_TRIES), step):
        if not 1 <= ranks <= MOST_RANKS:
            break
        try:
            exp.replace(ranks=ranks)
        except SpecError as error:
            words = words or f"{_ranks(ranks)} cannot be: {_reason(error)}"
        else:
            return {"ranks": ranks, "words": words}
    bound = f"{MOST_RANKS} ranks at most" if step > 0 else "at least one rank"
    return {"ranks": 0, "words": words or f"A run has {bound}."}


def _reason(error: SpecError) -> str:
    """Return why an experiment cannot be, in one sentence."""
    problem = next(iter(error.problems))
    reason = in_a_line(problem.message).rstrip(".")
    field = problem.path[-1:] if reason.startswith(("must ", "gives ", "is ", "has ")) else ()
    return " ".join(map(str, (*field, f"{reason}.")))


def compared(before: Any, after: Any) -> str:
    """Return a sentence: how long an iteration lasts before and after, at the median."""
    times = [_iteration_ns(run) for run in (before, after)]
    if None in times:
        return ""
    one, other = (print_duration(_rounded(ns)) for ns in times if ns is not None)
    return (
        f"An iteration takes {one} with {_name(before.experiment)}, {other} with "
        f"{_name(after.experiment)}."
    )


def _iteration_ns(run: Any) -> float | None:
    """Return the median time from one iteration to the next; None with fewer than three."""
    seconds = select(run.store, "loss")["seconds"].drop_nulls().sort()
    steps = seconds.diff().drop_nulls().to_list()
    return median(steps) * 1e9 if len(steps) > 1 else None


def _rounded(ns: float) -> int:
    return int(float(f"{ns:.3g}"))


def _ranks(ranks: int) -> str:
    return counted(ranks, "rank")


def _name(exp: Experiment) -> str:
    return _ranks(exp.ranks)


def trials_of(host: Host, runs: Sequence[Any]) -> RankTrials | None:
    """Return the trials of a picture of these runs; None where they cannot be run once more."""
    if not all(isinstance(getattr(run, "experiment", None), Experiment) for run in runs):
        return None
    return RankTrials(host, *runs)
