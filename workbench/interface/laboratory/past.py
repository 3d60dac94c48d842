"""Past runs as widgets: a line each, and those that are ticked side by side."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from typing import Any

import ipywidgets as w

from workbench.runs.history import History, Past, compare, label

COMPARED = 2  # of the newest runs, until the reader ticks others


class PastRuns(w.VBox):
    """``show`` puts a run on the stage; ``take`` fills the form with what it was; ``compare`` is
    told which are ticked.
    """

    def __init__(
        self,
        history: History,
        show: Callable[[Past], None],
        take: Callable[[Past], None],
        compare: Callable[[list[Past]], None],
    ) -> None:
        self._history, self._show, self._take, self._tell = history, show, take, compare
        self._lock = threading.RLock()  # the reader's clicks, and the thread that follows a run
        self._rows: dict[str, tuple[w.HBox, w.Checkbox, w.HTML]] = {}
        self._chosen = False  # the reader has ticked a run
        self._setting = False
        self._list, self._table = w.VBox(), w.HTML()
        self._compared: list[Any] = []
        super().__init__([self._list, self._table])
        self.add_class("wb-past")
        self.refresh()

    @property
    def ticked(self) -> list[Past]:
        """Oldest first."""
        return [p for p in self._history if p.id in self._rows and self._rows[p.id][1].value]

    def tick(self, pasts: list[Past]) -> None:
        """Tick these runs and no others, as the reader would."""
        self.refresh()
        with self._lock:
            self._set({past.id for past in pasts})
            self._chosen = True
            self._show_ticked()

    def _set(self, ids: set[str]) -> None:
        self._setting = True  # it is not the reader who ticks
        try:
            for id, (_, tick, _) in self._rows.items():
                tick.value = id in ids
        finally:
            self._setting = False

    def refresh(self) -> None:
        """Look again at the runs: new ones, and how those that are live stand."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        pasts = [*self._history]
        ids = {past.id for past in pasts}
        for gone in [id for id in self._rows if id not in ids]:
            for widget in self._rows.pop(gone)[0].children:
                widget.close()
        for past in pasts:
            if past.id not in self._rows:
                self._rows[past.id] = self._row(past)
            self._rows[past.id][2].value = _line(past)
            self._rows[past.id][0].children[2].disabled = past.run is None
        rows = [self._rows[past.id][0] for past in reversed(pasts)]
        empty = [w.HTML('<p class="wb-quiet">The runs that you start are listed here.</p>')]
        if not rows or [*self._list.children] != rows:
            self._list.children = rows or empty
        if not self._chosen:
            self._set({past.id for past in [p for p in pasts if p.over][-COMPARED:]})
        self._show_ticked()

    def _row(self, past: Past) -> tuple[w.HBox, w.Checkbox, w.HTML]:
        tick = w.Checkbox(
            indent=False, tooltip="Compare", layout=w.Layout(width="24px", flex="0 0 auto")
        )
        tick.observe(lambda _: self._tick(), "value")
        words = w.HTML(layout=w.Layout(flex="1 1 auto"))
        on_stage = w.Button(description="On the stage", tooltip="Show it above, with its charts")
        settings = w.Button(description="Its settings", tooltip="Fill the form with what it was")
        on_stage.on_click(lambda _: self._show(past))
        settings.on_click(lambda _: self._take(past))
        row = w.HBox([tick, words, on_stage, settings])
        row.add_class("wb-past-row")
        return row, tick, words

    def _tick(self) -> None:
        if self._setting:
            return
        with self._lock:
            self._chosen = True
            self._show_ticked()

    def _show_ticked(self) -> None:
        """Show the table and the charts anew where a run or its end is new."""
        pasts = self.ticked
        shown = [(past.id, past.over) for past in pasts]
        if shown == self._compared:
            return
        self._compared = shown
        self._table.value = _table(pasts) if pasts else ""
        self._tell(pasts)


def _line(past: Past) -> str:
    facts = past.summary()
    parts = [facts["state"], f"{facts['iterations']:,} of {facts['iterations_asked']:,} iterations"]
    if facts["loss"] is not None:
        parts.append(f"loss {facts['loss']:.3f}")
    if facts["accuracy"] is not None:
        parts.append(f"{facts['accuracy']:.1%} right")
    if facts["wall_seconds"]:
        parts.append(f"{facts['wall_seconds']:.1f} s")
    words = " · ".join(parts)
    return f"<b>{html.escape(label(past))}</b> <span>{html.escape(words)}</span>"


def _table(pasts: list[Past]) -> str:
    table = compare(pasts)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.iter_rows()
    )
    return f'<table class="wb-compare"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
