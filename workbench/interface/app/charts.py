"""A run's charts, live, below the stage: tabs, and the chart that was chosen."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from workbench.analysis.chart_cells import iterations_of
from workbench.analysis.curves import Curves, record_ns
from workbench.interface.app.page import ChartPart, Ground, Site, TabsPart
from workbench.interface.app.turns import Redrawing
from workbench.views.pages.figures import CHARTS, draw

FRESH_SECONDS = 0.5  # so old a figure will do for the next page
# The chart on show until the reader chooses one: the loss is drawn on the stage's overview above.
AT_FIRST = ("returns", "bubble", "clocks", "held", "communication", "accuracy")
_lines: weakref.WeakKeyDictionary[Any, Lines] = weakref.WeakKeyDictionary()
_lines_lock = threading.Lock()


@dataclass(frozen=True)
class _Drawn:
    """A figure, from how many rows, and when it was last seen to be up to date."""

    rows: int
    figure: go.Figure
    when: float = 0.0


class Lines:
    """The curves of one run, kept once for all pages that show it."""

    def __init__(self, run: Any) -> None:
        run_of = weakref.ref(run)  # not the run itself, which is the key that these are kept by
        self._lock, self._store = threading.Lock(), run.store
        self._curves = Curves(run.store, lambda: record_ns(run_of()))
        self._figures: dict[tuple[str, str], _Drawn] = {}

    @property
    def offered(self) -> tuple[str, ...]:
        """The charts that have something to say of the run, as far as is known."""
        return self._curves.offered

    def figure(self, name: str, theme: str) -> tuple[int, go.Figure] | None:
        """Return (rows that the figure was drawn from, figure). The figure stays the same until
        there are more rows, and for a moment longer, so that many pages cost one drawing. None:
        another page is drawing it now.
        """
        had = self._figures.get((name, theme))
        if had is not None and time.monotonic() - had.when < FRESH_SECONDS:
            return had.rows, had.figure
        if not self._lock.acquire(blocking=False):
            return (had.rows, had.figure) if had else None
        try:
            self._curves.update()
            rows = hash((self._curves.rows, self._curves.over))
            if had is None or had.rows != rows:
                columns, store = self._curves.select(name), self._store
                result = draw(name, columns, theme, store.dropped, iterations_of(store))
                had = _Drawn(rows, result)
            self._figures[name, theme] = replace(had, when=time.monotonic())
            return had.rows, had.figure
        finally:
            self._lock.release()


def lines(run: Any) -> Lines:
    with _lines_lock:
        if run not in _lines:
            _lines[run] = Lines(run)
        return _lines[run]


class Charts:
    """The tabs and the chart of one page."""

    def __init__(self, site: Site, run: Any, ground: Ground, owner: str) -> None:
        self.lines, self.ground = lines(run), ground
        self._chosen, self._drawn = "", 0
        self.tabs = TabsPart(self.heard)
        self.tabs.tell(tabs=self._tabs(), chosen=self.name, label="Charts of this run")
        self.chart = ChartPart()
        self._redrawing = Redrawing(site.turns, owner, self._refresh)
        ground.param.watch(lambda _: self.refresh(), "dark")
        self.tabs.follow(self.refresh, at_once=run.done)

    @property
    def name(self) -> str:
        """The chart on show: the reader's choice, or the first that tells most of such a run."""
        offered = self.lines.offered
        return self._chosen or next((one for one in AT_FIRST if one in offered), "loss")

    def _tabs(self) -> list[dict[str, str]]:
        offered = self.lines.offered
        return [{"name": n, "label": chart.title} for n, chart in CHARTS.items() if n in offered]

    def heard(self, message: Mapping[str, Any]) -> None:
        name = message.get("name")
        if message.get("type") == "choose" and isinstance(name, str) and name in CHARTS:
            self._chosen = name
            self.tabs.tell(chosen=name)
            self.refresh()

    def refresh(self) -> None:
        """Draw again if there is something new, in another thread."""
        self._redrawing.ask()

    def _refresh(self) -> None:
        if not self.ground.known:
            return  # it is drawn once the page has said whether it is dark
        name = self.name
        if (result := self.lines.figure(name, self.ground.theme)) is None:
            return
        drawn, figure = result
        if (key := hash((drawn, name, self.ground.theme))) != self._drawn:
            self._drawn = key
            self.chart.draw(figure)
        shown = {"tabs": self._tabs(), "chosen": name}
        if any(self.tabs.state[key] != value for key, value in shown.items()):
            self.tabs.tell(**shown)
