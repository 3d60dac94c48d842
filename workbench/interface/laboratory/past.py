"""Past runs as widgets: a line each, and those that are ticked side by side."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as w

from workbench.analysis.against_reference import Cell, is_same
from workbench.analysis.comparison import line_key
from workbench.interface.laboratory.way_in import close_whole
from workbench.runs.history import (
    History,
    Past,
    beside_reference,
    comparison_note,
    label,
    of_one_task,
)
from workbench.studies.comparison.display import fold

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
        self._pinned: set[str] = set()  # a comparison's runs: ticked until the reader ticks
        self._known_ids: set[str] = set()  # the runs listed when those were ticked
        self._setting = False
        self._list, self._table = w.VBox(), w.HTML()
        self._none = w.HTML('<p class="wb-quiet">The runs that you start are listed here.</p>')
        self._reference = w.Dropdown(description="Compare with", options=[("", "")])
        self._reference.observe(lambda _: self._show_ticked(again=True), "value")
        self._compared: list[Any] = []
        super().__init__([self._list, self._reference, self._table])
        self.add_class("wb-past")
        self.refresh()

    @property
    def ticked(self) -> list[Past]:
        """Oldest first."""
        return [p for p in self._history if p.id in self._rows and self._rows[p.id][1].value]

    def tick(self, pasts: list[Past]) -> None:
        """Tick these runs and no others. A run that is over later is ticked besides them, unless
        the reader has ticked by then.
        """
        self.refresh()
        with self._lock:
            self._pinned = {past.id for past in pasts}
            self._known_ids = {past.id for past in self._history}
            self._chosen = False
            self._set(self._pinned)
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
        gone = [self._rows.pop(id)[0] for id in [*self._rows] if id not in ids]
        for past in pasts:
            if past.id not in self._rows:
                self._rows[past.id] = self._row(past)
            self._rows[past.id][2].value = _line(past)
            on_stage, _, _, delete = self._rows[past.id][0].children[2:]
            on_stage.disabled, delete.disabled = past.run is None, not past.over
        rows = [self._rows[past.id][0] for past in reversed(pasts)] or [self._none]
        if [*self._list.children] != rows:
            self._list.children = rows
        for row in gone:
            close_whole(row)
        if not self._chosen:
            over = [past.id for past in pasts if past.over]
            later = {id for id in over if id not in self._known_ids}
            self._set(self._pinned | later if self._pinned & ids else self._newest(pasts))
        self._show_ticked()

    def _newest(self, pasts: list[Past]) -> set[str]:
        """Return which runs are ticked until the reader ticks: the newest, of one task."""
        return {past.id for past in of_one_task([past for past in pasts if past.over][-COMPARED:])}

    def _row(self, past: Past) -> tuple[w.HBox, w.Checkbox, w.HTML]:
        tick = w.Checkbox(
            indent=False, tooltip="Compare", layout=w.Layout(width="24px", flex="0 0 auto")
        )
        tick.observe(lambda _: self._tick(), "value")
        words = w.HTML(layout=w.Layout(flex="1 1 auto"))
        on_stage = w.Button(description="Show above", tooltip="Show the run above, with its charts")
        settings = w.Button(description="Its settings", tooltip="Fill the form with what it was")
        rename = w.Button(description="Rename", tooltip="Give it a name of your own")
        delete = w.Button(description="Delete", tooltip="Take it out of this list, for good")
        on_stage.on_click(lambda _: self._show(past))
        settings.on_click(lambda _: self._take(past))
        rename.on_click(lambda _: self._rename(past))
        delete.on_click(lambda _: self._delete(past))
        row = w.HBox([tick, words, on_stage, settings, rename, delete])
        row.add_class("wb-past-row")
        return row, tick, words

    def _rename(self, past: Past) -> None:
        """Put a field in the place of a run's line until a name is entered, or given up."""
        row, tick, words = self._rows[past.id]
        rest = [*row.children[2:]]
        name = w.Text(value=past.title, continuous_update=False, layout=w.Layout(flex="1 1 auto"))
        keep = w.Button(description="Keep", tooltip="Take the new name")
        cancel = w.Button(description="Cancel", tooltip="Leave the name as it was")

        def end(_: Any, keep: bool = True) -> None:
            if keep and name.value != past.title:
                past.rename(name.value)
            with self._lock:
                row.children = [tick, words, *rest]
                self._refresh()
                self._show_ticked(again=True)

        name.observe(end, "value")
        keep.on_click(end)
        cancel.on_click(lambda _: end(_, keep=False))
        row.children = [tick, name, keep, cancel]

    def _delete(self, past: Past) -> None:
        with self._lock:
            self._history.remove(past.id)
            self._pinned.discard(past.id)
            self._refresh()

    def _tick(self) -> None:
        if self._setting:
            return
        with self._lock:
            self._chosen = True
            self._show_ticked()

    def _show_ticked(self, again: bool = False) -> None:
        """Show the table and the charts where a run or its end is new, or ``again``."""
        if self._setting:
            return
        pasts = self.ticked
        shown = [(past.id, past.over) for past in pasts]
        if shown == self._compared and not again:
            return
        self._compared = shown
        self._offer(pasts)
        self._table.value = _table(pasts, self._reference.value) if pasts else ""
        self._tell(pasts)

    def _offer(self, pasts: list[Past]) -> None:
        """Offer the ticked runs as the reference of the others."""
        options = [(label(past), past.id) for past in pasts] or [("", "")]
        before = self._reference.value
        self._setting = True
        try:
            if [*self._reference.options] != options:
                self._reference.options = options
                ids = [id for _, id in options]
                self._reference.value = before if before in ids else ids[0]
        finally:
            self._setting = False
        self._reference.layout.display = "" if len(pasts) > 1 else "none"


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


def _table(pasts: list[Past], reference: str) -> str:
    """Return the table of these runs: keys to their lines, values, differences, the best."""
    names = [label(past) for past in pasts]
    light, dark = line_key(names, "light"), line_key(names, "dark")
    keys = [_key(light[name], dark[name][0]) if len(names) > 1 else "" for name in names]
    head = "".join(
        f"<th>{key}{html.escape(name)}</th>" for key, name in zip(keys, names, strict=True)
    )
    rows = beside_reference(pasts, reference)
    differ = [row for row in rows if not is_same(row[1])]
    note = comparison_note(pasts)
    return (
        _rows(head, differ)
        + f'<p class="wb-quiet">{note}</p>' * bool(note)
        + fold(_rows(head, rows), len(rows), len(differ))
    )


def _rows(head: str, rows: Sequence[tuple[str, Sequence[Cell]]]) -> str:
    body = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(map(_cell, cells))}</tr>" for name, cells in rows
    )
    return (
        f'<table class="wb-compare"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _key(look: tuple[str, str], dark: str) -> str:
    """Return how a run's line looks in the charts, on both grounds."""
    return (
        f'<svg class="wb-line-key" style="--on-light:{look[0]};--on-dark:{dark}" width="26" '
        f'height="10" aria-hidden="true"><line x1="1" y1="5" x2="25" y2="5" stroke-width="2.5" '
        f'stroke-dasharray="{look[1]}"/></svg>'
    )


def _cell(cell: Cell) -> str:
    change = f"<small>{html.escape(cell.change)}</small>" if cell.change else ""
    best = ' class="best"' if cell.best else ""
    return f"<td{best}>{html.escape(cell.text)}{' ★' * cell.best}{change}</td>"
