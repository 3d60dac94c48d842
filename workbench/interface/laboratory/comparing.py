"""The laboratory's comparisons: a question is chosen, its experiments run one after another."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial

import ipywidgets as w

from workbench.presets.catalogue import Compared, comparisons
from workbench.runs.history import Past
from workbench.studies.comparison.comparison import Comparison
from workbench.studies.comparison.deciding import deciding_charts
from workbench.studies.comparison.trials import Trial, trials_of
from workbench.views.pages.live_charts import Deciding, no_charts

Begin = Callable[[Compared, Trial], Past | None]


class Questions(w.VBox):
    """The comparisons to choose from; ``start`` is called with the one that is chosen."""

    def __init__(self, start: Callable[[Compared], None]) -> None:
        self.known = comparisons()
        self.choice = w.Dropdown(options=[*self.known], description="Or compare")
        self.button = w.Button(
            description="Run all", icon="play", tooltip="Run these one after another"
        )
        self._words = w.HTML()
        row = w.HBox([self.choice, self.button])
        row.add_class("wb-row")
        super().__init__([row, self._words])
        self.button.add_class("wb-lab-compare")
        self.choice.observe(lambda _: self._chosen(), "value")
        self.button.on_click(lambda _: start(self.compared))
        self._chosen()

    @property
    def compared(self) -> Compared:
        """The comparison that is chosen."""
        return self.known[self.choice.value]

    def _chosen(self) -> None:
        self._words.value = f'<p class="wb-quiet">{html.escape(self.compared.words)}</p>'


class Comparing:
    """One comparison that runs. ``begin`` starts each of its runs; ``pasts`` are those so far."""

    def __init__(self, compared: Compared, begin: Begin) -> None:
        self.compared, self._begin = compared, begin
        self._stopped = threading.Event()
        self._comparison = Comparison(trials_of(compared.make()), begin=self._start)

    def _start(self, trial: Trial) -> Past | None:
        return None if self._stopped.is_set() else self._begin(self.compared, trial)

    @property
    def done(self) -> bool:
        """True once all of its runs are over."""
        return self._comparison.done

    @property
    def pasts(self) -> list[Past]:
        return [one.past for one in self._comparison.trials if one.past is not None]

    @property
    def errors(self) -> list[str]:
        """Each run that failed, and why."""
        return [f"{one.name}: {one.error}" for one in self._comparison.trials if one.error]

    @property
    def words(self) -> str:
        """Return which run goes on, of how many, with its iteration; or the verdict."""
        trials = self._comparison.trials
        for number, one in enumerate(trials, 1):
            if one.past is not None and not one.past.over:
                done, goal = one.past.run.iteration + 1, one.experiment.iterations
                return f"Run {number} of {len(trials)}, {one.name}: iteration {done:,} of {goal:,}"
        verdict = self._comparison.verdict(*self.compared.measures) if self.done else ""
        return verdict or f"{self._comparison.words}."

    def deciding(self, pasts: Sequence[Past]) -> Deciding:
        """Return the charts of what decides between these runs, where all of them are of this
        comparison.
        """
        if not {past.id for past in pasts} <= {past.id for past in self.pasts}:
            return no_charts
        return cache(partial(deciding_charts, pasts, self.compared.measures))

    def stop(self) -> None:
        """Stop the run that goes on, after its iteration; start no other."""
        self._stopped.set()
        self._comparison.stop()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of all, at most so long. Returns whether it has come."""
        return self._comparison.ended.wait(seconds)
