"""The comparisons that the server holds: each takes the place of one run, and is found by its id.

    start -> HostedComparison(id) -> its runs, one after another -> all over, kept with its runs

A comparison ends where a run would: with its last page, after ``Limits.grace`` seconds. What page
shows any of its runs counts for all of them.
"""

from __future__ import annotations

import secrets
import threading
import time

from workbench.common import threads
from workbench.interface.app.runs import Runs
from workbench.presets.catalogue import Compared
from workbench.runs.history import Past
from workbench.studies.comparison.comparison import Comparison
from workbench.studies.comparison.trials import Trial, trials_of

TICK = 0.25  # seconds between two looks for a page


class HostedComparison:
    """A comparison of a preset, its runs, and why it ended early (``words``)."""

    def __init__(self, runs: Runs, compared: Compared, owner: str) -> None:
        experiments = compared.make()
        for exp in experiments.values():
            runs.limits.check(exp)
        self.id = secrets.token_urlsafe(16)
        self.compared, self.owner, self.words = compared, owner, ""
        self._runs, self._stopped = runs, threading.Event()
        self.place = runs.reserve(owner)
        self.trials = trials_of(experiments)
        try:
            self._comparison = Comparison(self.trials, begin=self._begin)
            threads.start(self._free, "workbench compare place", stop=self.stop)
        except RuntimeError:  # no thread is to be had
            runs.give_back(self.place)
            raise

    @property
    def done(self) -> bool:
        """True once all of its runs are over."""
        return self._comparison.done

    @property
    def state(self) -> str:
        """The number of its runs that are over, in a line."""
        return self._comparison.words

    @property
    def verdict(self) -> str:
        """Return which of its runs comes first, once all are over; "" before."""
        return self._comparison.verdict(*self.compared.measures) if self.done else ""

    @property
    def pasts(self) -> list[Past]:
        return [one.past for one in self.trials if one.past is not None]

    def stop(self) -> None:
        """Stop the run that goes on, after its iteration; start no other."""
        self._stopped.set()
        self._comparison.stop()

    def _begin(self, trial: Trial) -> Past | None:
        """Start a run, unless it was stopped, or no visitor has looked since the last one."""
        if not (trial is self.trials[0] or self._is_shown()):
            return None
        hosted = self._runs.start(trial.experiment, self.owner, trial.name, self.place)
        hosted.run.store.metadata |= self.compared.facts()
        return hosted.past

    def _is_shown(self) -> bool:
        """Wait for a page, as long as a run would go on without one; return whether there is."""
        limits = self._runs.limits
        deadline = time.monotonic() + limits.grace
        while not self.place.shown and not self._stopped.is_set():
            if time.monotonic() > deadline:
                self.words = limits.left_alone()
                return False
            self._stopped.wait(TICK)
        return not self._stopped.is_set()

    def _free(self) -> None:
        while not self._comparison.ended.wait(TICK):
            pass
        self._runs.give_back(self.place)


class Comparisons:
    """All comparisons whose runs are kept. Any thread may call it."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._lock = runs, threading.Lock()
        self._known: dict[str, HostedComparison] = {}

    def start(self, compared: Compared, owner: str) -> HostedComparison:
        """Start one for this owner. Raises Refused before any of its runs has begun."""
        hosted = HostedComparison(self._runs, compared, owner)
        with self._lock:
            self._known[hosted.id] = hosted
        return hosted

    def find(self, id: str) -> HostedComparison | None:
        """Return the comparison with this id, for everyone with its address."""
        return next((one for one in self._kept() if one.id == id), None)

    def of(self, owner: str) -> list[HostedComparison]:
        """Return those of this owner, the newest first."""
        return [one for one in reversed(self._kept()) if one.owner == owner]

    def _kept(self) -> list[HostedComparison]:
        """Forget those whose runs are forgotten; return the others, oldest first."""
        with self._lock:
            for one in [*self._known.values()]:
                if one.done and not any(self._runs.find(past.id) for past in one.pasts):
                    del self._known[one.id]
            return [*self._known.values()]
