"""A run's charts, live, below the stage: tabs, and the chart that was chosen."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import panel as pn
import plotly.graph_objects as go

from workbench.app.page import Ground, Site, TabsPart
from workbench.views.cells import asked
from workbench.views.charts import CHARTS, HEIGHT, draw
from workbench.views.curves import Curves, record_ns

_lines: weakref.WeakKeyDictionary[Any, Lines] = weakref.WeakKeyDictionary()
_lines_lock = threading.Lock()


class Lines:
    """The curves of one run, kept once for all pages that show it."""

    def __init__(self, run: Any) -> None:
        run_of = weakref.ref(run)  # not the run itself, which is the key that these are kept by
        self._lock, self._store = threading.Lock(), run.store
        self._curves = Curves(run.store, lambda: record_ns(run_of()))
        self._figures: dict[tuple[str, str], tuple[int, go.Figure]] = {}

    @property
    def offered(self) -> tuple[str, ...]:
        """The charts that have something to say of the run, as far as is known."""
        return self._curves.offered

    def figure(self, name: str, theme: str) -> tuple[int, go.Figure]:
        """(rows that it was drawn from, figure): the same one until there are more."""
        with self._lock:
            self._curves.update()
            at = (self._curves.rows, self._curves.over)
            if (had := self._figures.get((name, theme))) is None or had[0] != hash(at):
                columns, store = self._curves.select(name), self._store
                made = draw(name, columns, theme, store.dropped, asked(store))
                had = self._figures[name, theme] = hash(at), made
            return had


def lines(run: Any) -> Lines:
    with _lines_lock:
        if run not in _lines:
            _lines[run] = Lines(run)
        return _lines[run]


class Charts:
    """The tabs and the chart of one page."""

    def __init__(self, site: Site, run: Any, ground: Ground) -> None:
        self.site, self.lines, self.ground = site, lines(run), ground
        self.name, self._drawn = "loss", 0
        self.tabs = TabsPart(self.heard)
        self.tabs.tell(tabs=self._tabs(), chosen=self.name, label="Charts of this run")
        self.pane = pn.pane.Plotly(
            None, sizing_mode="stretch_width", height=HEIGHT,
            config={"displayModeBar": False, "responsive": True},
        )  # fmt: skip
        self._busy = threading.Lock()
        ground.param.watch(lambda _: self.refresh(), "dark")
        self.tabs.follow(self.refresh, at_once=run.done)

    def _tabs(self) -> list[dict[str, str]]:
        offered = self.lines.offered
        return [{"name": n, "label": chart.title} for n, chart in CHARTS.items() if n in offered]

    def heard(self, message: Mapping[str, Any]) -> None:
        name = message.get("name")
        if message.get("type") == "choose" and isinstance(name, str) and name in CHARTS:
            self.name = name
            self.tabs.tell(chosen=self.name)
            self.refresh()

    def refresh(self) -> None:
        """Draw anew if there is something new; in another thread, one at a time."""
        self.site.work(self._refresh)

    def _refresh(self) -> None:
        if not self._busy.acquire(blocking=False):
            return
        try:
            drawn, figure = self.lines.figure(self.name, self.ground.theme)
            if (key := hash((drawn, self.name, self.ground.theme))) != self._drawn:
                self._drawn, self.pane.object = key, figure
            if (tabs := self._tabs()) != self.tabs.told["tabs"]:
                self.tabs.tell(tabs=tabs)
        finally:
            self._busy.release()
