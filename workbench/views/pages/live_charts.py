"""Charts that follow a run: one FigureWidget of Plotly's, brought up to date about twice per
second.

One thread a ``Charts`` reads, makes the widget (which takes one second at first) and draws; it ends
with the run, or when the charts are closed. ``figure`` in charts.py gives plain figures; only here
are they a widget.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import anywidget
import ipywidgets
import plotly.graph_objects as go
import polars as pl
import traitlets

from workbench.analysis.chart_cells import Cell, iterations_of
from workbench.analysis.comparison import compared
from workbench.analysis.curves import Curves, record_ns
from workbench.common import threads
from workbench.front_end.assets import asset, joined
from workbench.store.event_store import Store
from workbench.views.pages.figures import CHARTS, cell, grid, known, scales
from workbench.views.pages.widget import Source, hear_at_once, source

EVERY_SECONDS = 0.5
_CONFIG = {"displayModeBar": False}
SHARE = 0.02  # of one core, at most, for reading and drawing; but at least once in
SELDOM_SECONDS = 3.0
Deciding = Callable[[str], Sequence[Cell]]  # of a theme


def no_charts(theme: str) -> Sequence[Cell]:
    """Return no charts: of these runs no measure is known to decide."""
    return ()


class Ground(anywidget.AnyWidget):
    """Reports the page around it: whether it is dark, its color, how wide. Shows nothing."""

    _esm = asset("widgets/ground.js")
    dark = traitlets.Bool(None, allow_none=True).tag(sync=True)  # None: not known yet
    colour = traitlets.Unicode().tag(sync=True)  # "rgb(17, 17, 17)"; "": not known, or see-through
    width = traitlets.Int(0).tag(sync=True)  # CSS pixels that the charts have; 0: not known yet


@cache
def _plotly_module() -> str:
    """Return Plotly's own module for its widget: five megabytes, sent with each widget."""
    return str(go.FigureWidget._esm)


class Figure(go.FigureWidget):
    """A FigureWidget that tells every page how it is now: from the first message on, and one that
    comes later, after a reload say. Plotly's own tells how it was before it had anything, and a
    page that takes two seconds for its module misses all that comes afterwards.
    """

    _esm = joined("widgets/chart.js")
    source = traitlets.Instance(Source).tag(sync=True, **ipywidgets.widget_serialization)
    _own = traitlets.Unicode().tag(sync=True)  # the name of its model

    def __init__(self, *args: Any, **more: Any) -> None:
        self._is_ready = False
        super().__init__(*args, **more)
        self._config = dict(_CONFIG)
        self._is_ready, self._model_id = True, self._own
        self.on_msg(self._hear)
        self.open()

    @traitlets.default("source")
    def _source(self) -> Source:
        return source(_plotly_module())

    @traitlets.default("_own")
    def _name(self) -> str:
        return uuid.uuid4().hex

    def open(self) -> None:
        """Announce the figure to pages once it is complete."""
        if self._is_ready:
            super().open()

    def _hear(self, _: object, content: Any, __: object) -> None:
        """Take the number of the last edit that a page has heard; send everything where it has
        missed one.
        """
        if not isinstance(content, dict) or content.get("type") != "edits":
            return
        lost = (content.get("layout"), content.get("trace")) != (
            self._last_layout_edit_id,
            self._last_trace_edit_id,
        )
        if lost:
            self.send_state()
        self.send({"type": "edits", "lost": lost})

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if getattr(self, "_layout_obj", None) is not None:  # else it is being made
            now = {"_widget_layout": self._layout_obj._props, "_widget_data": self._data}
            for name in now.keys() & state.keys():
                state[name] = self.trait_metadata(name, "to_json")(now[name], self)
        return state


class Charts(ipywidgets.VBox):
    """Charts of a run, which grow while it goes on. ``close()`` ends their thread.

    ``names`` are of charts.CHARTS; none means all. Those that have nothing to say of the run are
    left out. ``theme``: light or dark; by itself as the page.
    ``figure`` is the FigureWidget that shows them; ``show`` changes which, ``compare`` adds others.
    """

    # For ``close``, which comes even of charts whose names were refused.
    _stopped, _thread = threading.Event(), threading.Thread()
    _figure: Any = None
    ground: Any = None

    def __init__(self, run: Any = None, *names: str, theme: str | None = None) -> None:
        self._chosen = tuple(known(name) for name in names) or tuple(CHARTS)
        self.ground, self._fixed = Ground(), theme
        self._store = Store()
        self._curves = Curves(self._store)
        self._losses: Mapping[str, pl.DataFrame] = {}
        self._deciding: Deciding = no_charts
        self._drawing = threading.RLock()
        self._shown = False
        self._drawn: list[Any] = []  # the structure, and the scales, of what is there
        self._scales: dict[str, dict[str, Any]] = {}
        super().__init__([self.ground])
        self.add_class("wb-charts")
        self.ground.observe(lambda _: self._fit(), "width")
        self.ground.observe(lambda _: self.refresh(), ["dark", "colour"])
        hear_at_once(self.ground.comm)
        if run is None:
            self._begin(self.refresh)
        else:
            self.watch(run)

    @property
    def theme(self) -> str:
        return self._fixed or ("dark" if self.ground.dark else "light")

    @property
    def _page_color(self) -> str:
        """The color of the page around; "" where a theme was asked for, which might differ."""
        return self.ground.colour if self._fixed is None else ""

    @property
    def figure(self) -> Any:
        """The FigureWidget."""
        with self._drawing:
            if self._figure is None:
                self.refresh()
            return self._figure

    # ---- what is shown

    @property
    def offered(self) -> tuple[str, ...]:
        """The charts that have something to say of the run, as far as is known."""
        return self._curves.offered

    @property
    def names(self) -> tuple[str, ...]:
        """The charts that are shown: of those that were asked for."""
        return tuple(name for name in self._chosen if name in self.offered)

    def show(self, *names: str) -> None:
        """Show these charts, in the order of charts.CHARTS."""
        names = tuple(known(name) for name in names)
        with self._drawing:
            self._chosen = tuple(name for name in CHARTS if name in names)
            self._redraw()

    def compare(self, losses: Mapping[str, pl.DataFrame], deciding: Deciding = no_charts) -> None:
        """Show below the losses of several runs: label -> columns iteration, seconds, loss.

        ``deciding``: returns for a theme the charts of what decides between them, which come first.
        """
        with self._drawing:
            self._losses, self._deciding = dict(losses), deciding
            self._redraw()

    def watch(self, run: Any) -> None:
        """Follow another run; the charts begin afresh."""
        self.leave()
        with self._drawing:
            self._store, self._curves = run.store, Curves(run.store, lambda: record_ns(run))
            self._redraw()
        self._begin(self._follow, run, self._curves)

    def _begin(self, work: Callable[..., None], *about: Any) -> None:
        self._stopped = threading.Event()
        self._thread = threads.start(
            partial(work, *about), "workbench charts", stop=self._stopped.set
        )

    def _follow(self, run: Any, curves: Curves) -> None:
        stopped, due = self._stopped, 0.0
        while not stopped.is_set():
            over = run.done  # before the rows: what is read afterwards is all there is
            if over or time.monotonic() >= due:
                began = time.thread_time()
                with self._drawing:
                    if curves.update() or over or self._figure is None:
                        self.refresh()
                due = time.monotonic() + min((time.thread_time() - began) / SHARE, SELDOM_SECONDS)
            if over or stopped.wait(EVERY_SECONDS):
                break
        curves.rest()

    # ---- drawing

    def refresh(self) -> None:
        """Show what there is now. Only points and words change, unless the cells do."""
        with self._drawing:
            cells = self._cells()
            structure = self._structure(cells)
            if structure == self._drawn:
                self._update(cells)
            else:
                self._drawn = structure
                self._draw(cells)
            self._reveal()

    def _redraw(self) -> None:
        if self._figure is not None:  # else its thread is about to make it
            self.refresh()

    def _cells(self) -> list[Cell]:
        dropped, to_do = self._store.dropped, iterations_of(self._store)
        result = [
            cell(name, self._curves.select(name), self.theme, dropped, to_do) for name in self.names
        ]
        if not self._losses:
            return result
        return [*result, *self._deciding(self.theme), *compared(self._losses, self.theme)]

    def _structure(self, cells: list[Cell]) -> list[Any]:
        """Return everything in a figure but points, words and scales."""
        lines = [(one.chart, one.y, [line.name for line in one.traces]) for one in cells]
        return [self.theme, self._page_color, *lines]

    def _update(self, cells: list[Cell]) -> None:
        lines, before = [trace for one in cells for trace in one.traces], self._scales
        self._scales = scales(cells)
        with self._figure.batch_update():
            for drawn, trace in zip(self._figure.data, lines, strict=True):
                drawn.x, drawn.y = trace.x, trace.y
            for title, one in zip(self._figure.layout.annotations, cells, strict=True):
                title.text = one.title
            for axis, scale in self._scales.items():
                if scale != before[axis]:  # else the reader may have zoomed
                    self._figure.layout[axis].update(scale)

    def _draw(self, cells: list[Cell]) -> None:
        fresh, self._scales = grid(cells, self.theme, self._page_color), scales(cells)
        fresh.layout.width = self.ground.width or None
        if self._figure is None:
            self._figure = Figure(fresh)
            return
        with self._figure.batch_update():
            self._figure.data = []
            self._figure.layout = fresh.layout
        self._figure.add_traces(fresh.data)

    def _reveal(self) -> None:
        """Show the figure once it is drawn on the page's own ground."""
        if not self._shown and (self._fixed or self.ground.dark is not None):
            self._shown = True
            self.children = [self._figure, self.ground]

    def _fit(self) -> None:
        """Fit the charts to the width of the page; hidden ones have no width."""
        with self._drawing:
            if self._figure is not None and self.ground.width:
                self._figure.layout.width = self.ground.width

    # ---- the end

    def leave(self) -> None:
        """End the thread; the pictures stay as they are."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def close(self) -> None:
        self.leave()
        super().close()
        for widget in (self._figure, self.ground):
            if widget is not None:
                widget.close()

    def __repr__(self) -> str:
        return f"Charts({', '.join(self.names)})"
