"""Past runs of one owner (a kernel, a browser session), and how they compare.

A ``History`` keeps the newest runs: what each was, how it ended, its loss curve and its measures.
Of the events it keeps as many rows as fit, the oldest go first; then ``Past.run`` is None.
Nothing here is on disk, and nothing is shared.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.source import Source
from workbench.spec import Experiment
from workbench.units import print_size
from workbench.views.curves import Curves, select

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from workbench.store import Store

KEEP_RUNS = 20
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
        """Columns iteration, seconds, loss. Of a live run, as of now: reads all its events."""
        self.summary()
        if self._losses is not None:
            return self._losses
        return select(self.run.store, "loss")

    def summary(self) -> dict[str, Any]:
        """What the run was and did, by name; None where it is not known (yet).

        state, error, strategy, algorithm, ranks, iterations (done), iterations_asked, loss; and
        once it is over: accuracy, wall_seconds, iterations_per_s, samples_per_s, bytes_sent
        (payload, by the busiest rank), step_ms, exposed_ms and exposed_share (of a step, mean over
        ranks, first iteration left out).
        """
        with self._lock:
            if not self._summary:
                if not self.over:
                    return _so_far(self.run)
                curves = Curves(self.run.store)
                curves.update()
                self._losses = curves.select("loss")
                self._summary = _whole(self.run, curves)
            return dict(self._summary)

    def let_go(self) -> None:
        """Drop the events of a run that is over; its figures stay."""
        self.summary()
        self.run = None

    def __repr__(self) -> str:
        return f"<run {self.number}: {self.title}>"


def describe(exp: Experiment) -> str:
    """A run's name where it was given none: "data_parallel, ring, 4 ranks"."""
    parts = [_name(exp.strategy), _algorithm(exp), f"{exp.ranks} rank{'s' * (exp.ranks > 1)}"]
    return ", ".join(part for part in parts if part)


def _name(code: str | Source) -> str:
    return code.name if isinstance(code, Source) else code.rpartition(":")[2]


def _algorithm(exp: Experiment) -> str:
    if exp.ranks == 1:
        return ""
    return _name(exp.all_reduce) if exp.backend == "workbench" else exp.backend


def _asked(exp: Experiment) -> dict[str, Any]:
    return {
        "strategy": _name(exp.strategy), "algorithm": _algorithm(exp), "ranks": exp.ranks,
        "iterations_asked": exp.iterations,
    }  # fmt: skip


def _so_far(run: Any) -> dict[str, Any]:
    """Of a live run: what it takes no reading of events to say."""
    loss = run.loss
    state, loss = ("running", loss) if math.isfinite(loss) else ("starting", None)
    told = {"state": state, "iterations": run.iteration, "loss": loss}
    return dict.fromkeys(["error", *_MEASURES]) | _asked(run.experiment) | told


def _whole(run: Any, curves: Curves) -> dict[str, Any]:
    result, losses, speed = run.result, curves.select("loss"), curves.select("throughput")
    steps = curves.select("communication")
    done = len(result.losses) or losses.height
    seconds = result.wall_seconds if result.wall_seconds > 0 else _last(speed, "seconds")
    settled = steps.tail(-1) if steps.height > 1 else steps
    step, exposed = (float(settled[part].to_numpy().sum()) for part in ("step_ms", "exposed_ms"))
    samples = (speed["samples_per_s"] * speed["took_s"]).sum()
    end = (
        "failed" if not result.ok else "stopped" if done < run.experiment.iterations else "finished"
    )
    return _asked(run.experiment) | {
        "state": end,
        "error": str(result.error) if result.error is not None else None,
        "iterations": done,
        "loss": result.losses[-1] if result.losses else _last(losses, "loss"),
        "accuracy": result.metrics.get("accuracy"),
        "wall_seconds": seconds,
        "iterations_per_s": done / seconds if seconds and done else None,
        "samples_per_s": samples / seconds if seconds and samples else None,
        "bytes_sent": max(result.bytes_sent.values(), default=None) or _bytes_sent(run.store),
        "step_ms": step / settled.height if settled.height else None,
        "exposed_ms": exposed / settled.height if settled.height else None,
        "exposed_share": exposed / step if step else None,
    }


def _bytes_sent(store: Store) -> int | None:
    """Payload bytes of the busiest rank, from the rows: a rank that was killed reports nothing."""
    p = pl.col
    sends = store.scan().filter(p("kind") == "send", p("group") != "metrics")
    sent = sends.group_by("rank").agg(p("nbytes").sum()).collect()["nbytes"].to_list()
    return max(sent, default=None)


def _last(table: pl.DataFrame, column: str) -> Any:
    return table[column][-1] if table.height else None


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
        """Let go of events, oldest first, until no more than ``keep_rows`` are kept."""
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

    def find(self, id: str) -> Past | None:
        """The run with this id, if it is still kept."""
        return next((past for past in self if past.id == id), None)

    def __iter__(self) -> Iterator[Past]:
        with self._lock:
            return iter([*self._pasts])

    def __len__(self) -> int:
        return len(self._pasts)

    def __repr__(self) -> str:
        return f"<History of {len(self)} run{'s' * (len(self) != 1)}>"


# ---- comparison


def _size(nbytes: int) -> str:
    """Four digits are enough to compare."""
    return print_size(int(float(f"{nbytes:.4g}")))


# What a row says: a name with its unit, and how the value is written.
_MEASURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "state": ("state", str),
    "strategy": ("strategy", str),
    "algorithm": ("all-reduce", str),
    "ranks": ("ranks", str),
    "iterations": ("iterations done", "{:,}".format),
    "loss": ("last loss", "{:.4f}".format),
    "accuracy": ("accuracy", "{:.1%}".format),
    "wall_seconds": ("time, s", "{:.2f}".format),
    "iterations_per_s": ("iterations a second", "{:.1f}".format),
    "samples_per_s": ("samples a second", "{:,.0f}".format),
    "step_ms": ("one step, ms", "{:.2f}".format),
    "exposed_ms": ("of it exposed communication, ms", "{:.2f}".format),
    "exposed_share": ("exposed share of a step", "{:.0%}".format),
    "bytes_sent": ("sent by the busiest rank", _size),
}


def label(past: Past) -> str:
    """A run's name in a comparison, unique among an owner's: "3 · A slow link"."""
    return f"{past.number} · {past.title}"


def compare(pasts: Sequence[Past]) -> pl.DataFrame:
    """A row a measure, a column a run, all as texts; "–" where nothing is known."""
    columns: dict[str, list[str]] = {"": [name for name, _ in _MEASURES.values()]}
    for past in pasts:
        told = past.summary()
        columns[label(past)] = [
            "–" if told[key] in (None, "") else write(told[key])
            for key, (_, write) in _MEASURES.items()
        ]
    return pl.DataFrame(columns)


def comparison_figure(pasts: Sequence[Past], theme: str = "light") -> go.Figure:
    """Losses against iterations and against seconds, a colour and a dash for each run."""
    from workbench.views.charts import comparison

    return comparison({label(past): past.losses() for past in pasts}, theme)
