"""Past runs of one owner (a kernel, a browser session), and how they compare.

A ``History`` keeps the newest runs: what each was, how it ended, its loss curve and its measures.
Of the events it keeps as many rows as fit, the oldest go first; then ``Past.run`` is None.
Nothing here is on disk, and nothing is shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from workbench.analysis import against_reference, measures
from workbench.analysis.curves import Curves, select
from workbench.analysis.measures import beside, describe
from workbench.experiment.spec import Experiment

__all__ = ["History", "Past", "beside_reference", "compare", "describe", "label", "loss_curves"]

KEEP_RUNS = 20
LONGEST_NAME = 80  # characters
KEEP_ROWS = 3_000_000  # events of all runs together, about 140 bytes each


class Past:
    """One run, live or over. ``number`` counts the owner's runs from 1; ``when`` is time.time()."""

    def __init__(self, run: Any, number: int, title: str = "", id: str = "") -> None:
        self.run: Any = run  # None once its events were let go
        self.number, self.id = number, id or str(number)
        self.experiment: Experiment = run.experiment
        self.title = title or describe(self.experiment)
        self.when = time.time()
        self._lock = threading.Lock()
        self._summary: dict[str, Any] = {}  # of the whole run, once it is over
        self._losses: pl.DataFrame | None = None

    @property
    def over(self) -> bool:
        return self.run is None or bool(self.run.done)

    @property
    def state(self) -> str:
        """starting, running, finished, stopped (by the user, before the end) or failed."""
        return str(self.summary()["state"])

    def losses(self) -> pl.DataFrame:
        """Return columns iteration, updates, seconds, loss; and nbytes once the run is over. Of a
        live run it reads all events so far.
        """
        self.summary()
        if self._losses is not None:
            return self._losses
        return select(self.run.store, "updates")

    def summary(self) -> dict[str, Any]:
        """Return what the run was and did, by the names of measures.MEASURES; None where a value is
        unknown (yet).
        """
        with self._lock:
            if not self._summary:
                if not self.over:
                    return measures.so_far(self.run)
                curves = Curves(self.run.store)
                curves.update()
                self._losses = measures.progress(self.run.store, curves)
                self._summary = measures.of(self.run, curves)
            return dict(self._summary)

    def rename(self, title: str) -> None:
        """Give the run a name of the reader's; without one it gets that of its experiment."""
        self.title = " ".join(title.split())[:LONGEST_NAME] or describe(self.experiment)

    def let_go(self) -> None:
        """Drop the events of a run that is over; its figures stay."""
        self.summary()
        self.run = None

    def __repr__(self) -> str:
        return f"<run {self.number}: {self.title}>"


class History:
    """The newest runs of one owner, oldest first. May be used from any thread."""

    def __init__(self, keep: int = KEEP_RUNS, keep_rows: int = KEEP_ROWS) -> None:
        self._keep, self._keep_rows = keep, keep_rows
        self._lock = threading.Lock()
        self._pasts: list[Past] = []
        self._count = 0

    def add(self, run: Any, title: str = "", id: str = "") -> Past:
        """Keep ``run`` (a wb.Run, just started). The oldest that are over make room."""
        with self._lock:
            self._count += 1
            past = Past(run, self._count, title, id)
            self._pasts.append(past)
            spare = [one for one in self._pasts if one.over]
            while len(self._pasts) > self._keep and spare:
                self._pasts.remove(spare.pop(0))
        self.make_room()
        return past

    def make_room(self) -> None:
        """Drop events, oldest first, until no more than ``keep_rows`` are kept."""
        with self._lock:
            pasts = [*self._pasts]
        holders = [(past, len(run.store)) for past in pasts if (run := past.run) is not None]
        rows = sum(size for _, size in holders)
        for past, size in holders[:-1]:  # never those of the newest
            if rows <= self._keep_rows:
                break
            if past.over:
                rows -= size
                past.let_go()

    def remove(self, id: str) -> bool:
        """Forget a run that is over; return whether there was one."""
        with self._lock:
            match = next((one for one in self._pasts if one.id == id and one.over), None)
            if match is not None:
                self._pasts.remove(match)
            return match is not None

    def find(self, id: str) -> Past | None:
        """Return the run with this id, if it is still kept."""
        return next((past for past in self if past.id == id), None)

    def __iter__(self) -> Iterator[Past]:
        with self._lock:
            return iter([*self._pasts])

    def __len__(self) -> int:
        return len(self._pasts)

    def __repr__(self) -> str:
        return f"<History of {len(self)} run{'s' * (len(self) != 1)}>"


# ---- comparison


def label(past: Past) -> str:
    """Return a run's name in a comparison, unique for its owner: "3 · A slow link"."""
    return f"{past.number} · {past.title}"


def compare(pasts: Sequence[Past]) -> pl.DataFrame:
    """Return a row per measure that is known of any run and a column per run, all as texts; "–"
    where a value is unknown.
    """
    return beside({label(past): [past.summary()] for past in pasts})


def beside_reference(
    pasts: Sequence[Past], reference: str = ""
) -> list[tuple[str, list[against_reference.Cell]]]:
    """Return for each known measure its name and a cell for each run: its value, how it differs
    from that of the ``reference`` (a run's id; by default the first), and whether it is the best.
    """
    at = reference_place(pasts, reference)
    return against_reference.rows([past.summary() for past in pasts], at, is_one_task(pasts))


def is_one_task(pasts: Sequence[Past]) -> bool:
    """Return whether all of these runs train the same model on the same data."""
    return len(of_one_task(pasts)) == len(pasts)


def of_one_task(pasts: Sequence[Past]) -> list[Past]:
    """Return those of these runs that train the same task as the last of them."""
    tasks = [(past.experiment.task, past.experiment.task_options) for past in pasts]
    return [past for past, task in zip(pasts, tasks, strict=True) if task == tasks[-1]]


def comparison_note(pasts: Sequence[Past]) -> str:
    """Return a line below a table of runs; "" for one run."""
    if len(pasts) < 2:
        return ""
    if is_one_task(pasts):
        return "★ the best of the finished runs; beside a value, how it differs from the reference."
    return (
        "These runs train different tasks: their losses, accuracies and samples do not compare, "
        "and none of them is the best."
    )


def reference_place(pasts: Sequence[Past], reference: str) -> int:
    """Return the place of the run with this id among ``pasts``; 0, the first, where it is none."""
    ids = [past.id for past in pasts]
    return ids.index(reference) if reference in ids else 0


def loss_curves(pasts: Sequence[Past]) -> dict[str, pl.DataFrame]:
    """Return the loss curve of each run, by its label: what a figure of several runs compares."""
    return {label(past): past.losses() for past in pasts}
