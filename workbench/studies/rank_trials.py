"""Other ranks, another algorithm, other microbatches, another link: the experiment of a picture
once more, before and after side by side.

    + on the picture -> the same experiment with 5 ranks runs -> 4 ranks | 5 ranks | side by side
    a link is dragged, and *Run again with this link* -> the same, before and after named by it

A host of a picture (notebook, laboratory, web app) starts the run and turns its picture to what is
to be shown; this decides what that is, and says it to the page (``facts``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Protocol

import polars as pl

from workbench.analysis.curves import select
from workbench.common import threads
from workbench.common.errors import SpecError, WorkbenchError, short
from workbench.common.units import print_duration
from workbench.experiment.spec import Experiment
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.store.link_faults import CUT, LINK
from workbench.studies.changed_experiment import (
    can_change_links,
    knobs,
    names_of,
    offer,
    with_knob,
    with_link,
)
from workbench.studies.side_by_side import SideBySide, pair_of
from workbench.views.pages.facts import in_a_line

MOST_POINTS = 400  # of a curve that a page is sent
ENDS_IN = 60.0  # seconds in which a run that was stopped ends
BOTH = "both"
SAME = "the first run", "the same again"  # names of two runs of one experiment


class Host(Protocol):
    """The host of a picture: it starts runs, and turns the picture to them."""

    def begin(self, exp: Experiment, name: str) -> Any:
        """Start a run and return it. ``name``: what is said of it beside the one before. Raises
        what ``wb.run`` raises.
        """

    def turn(self, run: Any, trials: RankTrials) -> None:
        """Show this run, or this comparison, in the picture."""

    def refresh_facts(self) -> None:
        """Send the facts again."""


class RankTrials:
    """The runs of one picture, oldest first: each differs from the one before in one knob alone, or
    in one link.
    """

    def __init__(self, host: Host, *runs: Any) -> None:
        self._host, self._runs = host, [*runs]
        self._at: int | str = len(self._runs) - 1  # whose run is shown; BOTH
        self._lock = threading.Lock()
        self._starting = ""  # the name of a run that is about to start
        self._words, self._refused = "", False
        self._offered: tuple[Experiment, dict[str, Any]] | None = None  # of what, and what
        self._named: tuple[Any, tuple[str, str]] | None = None  # the newer run, both names

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
            "names": [*self._names_now()] if len(pair) > 1 else [],
            "at": shown,
            "starting": self._starting,
            "words": self._words,
            "refused": self._refused,
            **offers,
        }

    @property
    def ghost(self) -> dict[str, Any] | None:
        """The losses of the run before the newest, which a page draws behind the newest one's."""
        if self.single or self._at != len(self._runs) - 1:
            return None
        losses = select(self._runs[-2].store, "loss").group_by("iteration").agg(pl.mean("loss"))
        thin = losses.sort("iteration").gather_every(1 + losses.height // MOST_POINTS)
        return {"name": self._names_now()[0], "losses": thin.select("iteration", "loss").rows()}

    @property
    def single(self) -> bool:
        """Whether there is one run, and none to compare it with."""
        return len(self._runs) < 2

    def _names_now(self) -> tuple[str, str]:
        before, after = self._runs[-2:]
        if self._named is None or self._named[0] is not after:
            self._named = after, _names(before, after)
        return self._named[1]

    def _offer(self, exp: Experiment) -> dict[str, Any]:
        if self._offered is None or self._offered[0] is not exp:
            ways = {"more": offer(exp, 1), "fewer": offer(exp, -1)}
            self._offered = exp, {**ways, "links": can_change_links(exp), "knobs": knobs(exp)}
        return self._offered[1]

    # ---- what the page asks for

    def obey(self, verb: str, args: Mapping[str, Any]) -> str:
        """Do what the page asks for; return the answer. Raises WorkbenchError in words."""
        newest = self._runs[-1].experiment
        if verb == "run_with":
            return self.run_again(with_knob(newest, **args) if args else newest)
        if verb == "run_with_link":
            return self.run_again(with_link(newest, **args))
        if verb == "show_trial":
            return self.show(args.get("which"))
        return self.undo()

    def run_again(self, exp: Experiment) -> str:
        """Run this, which differs from the newest one in one thing at most; that one ends first."""
        with self._lock:
            if self._starting:
                raise WorkbenchError(f"A run with {self._starting} is about to start.")
            before = self._runs[-1]
            names = SAME if exp == before.experiment else names_of(before.experiment, exp)
            if names is None:
                raise SpecError("One thing can be changed at a time.")
            self._starting, self._words, self._refused = names[1], "", False
        threads.start(partial(self._start, before, exp, names[1]), "workbench trial")
        the = "The" if before.done else "This run ends after its iteration, then the"
        return f"{the} one with {names[1]} starts …"

    def _start(self, before: Any, exp: Experiment, name: str) -> None:
        try:
            if not before.done:
                before.stop()
                before.wait(ENDS_IN, check=False, progress=False)
            after = self._host.begin(exp, name)
        except Exception as error:  # in its own words: the page that asked is told
            with self._lock:
                self._starting, self._refused = "", True
                self._words = in_a_line(str(error))
            self._host.refresh_facts()
            return
        with self._lock:
            self._runs.append(after)
            self._at, self._starting = len(self._runs) - 1, ""
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
            shown = _pair(*pair)
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


def compared(before: Any, after: Any) -> str:
    """Return a sentence: how long an iteration lasts before and after, at the median."""
    times = [_iteration_ns(as_it_was(run)) or _iteration_ns(run) for run in (before, after)]
    if None in times:
        return ""
    one, other = (print_duration(_rounded(ns)) for ns in times if ns is not None)
    names = _names(before, after)
    return f"An iteration takes {one} with {names[0]}, {other} with {names[1]}."


def _iteration_ns(run: Any) -> float | None:
    """Return the median time from one iteration to the next; None with fewer than three."""
    seconds = select(run.store, "loss")["seconds"].drop_nulls().sort()
    steps = seconds.diff().drop_nulls().to_list()
    return median(steps) * 1e9 if len(steps) > 1 else None


def _pair(before: Any, after: Any) -> SideBySide:
    """Return the largest calls of both on one axis, before any link was changed by hand; where
    there are none, those of the whole runs. Raises SpecError where there are none either.
    """
    names = _names(before, after)
    try:
        return pair_of(as_it_was(before), as_it_was(after), names, largest=True)
    except SpecError:
        return pair_of(before, after, names, largest=True)


def as_it_was(run: Any) -> Any:
    """Return a run as it was until a link was changed by hand: it is what its experiment says."""
    events, p = run.events, pl.col
    changes = events.filter(
        (p("kind") == "fault") & (p("lane") == "driver") & p("name").is_in([LINK, CUT])
    )
    if changes.is_empty():
        return run
    kept = events.filter(p("end_ns") < changes["start_ns"].min())
    return Loaded(Store.from_frame(kept, dict(run.store.metadata)))


def _names(before: Any, after: Any) -> tuple[str, str]:
    return names_of(before.experiment, after.experiment) or SAME


def _rounded(ns: float) -> int:
    return int(float(f"{ns:.3g}"))


def trials_of(host: Host, runs: Sequence[Any]) -> RankTrials | None:
    """Return the trials of a picture of these runs; None where they cannot be run once more."""
    if not all(isinstance(getattr(run, "experiment", None), Experiment) for run in runs):
        return None
    return RankTrials(host, *runs)
