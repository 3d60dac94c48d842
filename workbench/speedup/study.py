"""``wb.speed_up``: how much faster are more ranks, and what keeps them from being faster?

    study = wb.speed_up(exp, ranks=(1, 2, 4), batch_size=(64, 256))
    study.wait()        or: await study
    study.table         a row for each number of ranks of each line, see table.py
    study.figure()      against the ideal, Amdahl's line, and what this machine can do at most

First the machine is measured (ceiling.py), then every case runs, then every case again: what
changes on the machine meanwhile changes for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.comparison import Comparison, compare
from workbench.errors import RunTimeout, SpecError
from workbench.ongoing import Ongoing
from workbench.spec import Experiment
from workbench.speedup.cases import Case, cases
from workbench.speedup.ceiling import ceilings, cores
from workbench.speedup.table import Measured, tabled
from workbench.speedup.words import sentences
from workbench.trials import Trial

if TYPE_CHECKING:
    import plotly.graph_objects as go

LOOK = 0.05  # seconds


class Study(Ongoing):
    """What ``speed_up`` gives: live while it runs. Every property tells of what is done by now."""

    def __init__(
        self, given: Sequence[Case], repeats: int, scaling: str, measure: bool, folder: Path | None
    ) -> None:
        super().__init__()
        self.cases, self.repeats, self.scaling = tuple(given), repeats, scaling
        self.cores = cores()
        self.ceilings: dict[str, dict[int, float]] = {}
        self.comparison: Comparison | None = None  # once the machine is measured
        self.error: Exception | None = None
        self._measure, self._folder = measure, folder
        self._known: dict[int, Measured | None] = {}
        self._lock, self._stopping = threading.Lock(), False
        threading.Thread(target=self._work, name="workbench speed-up", daemon=True).start()

    # ---- running

    def _work(self) -> None:
        try:
            if self._measure:
                self.ceilings = ceilings([case.ranks for case in self.cases])
            with self._lock:
                if not self._stopping:
                    self.comparison = compare(
                        {case.name: case.experiment for case in self.cases},
                        seeds=self.repeats, folder=self._folder,
                    )  # fmt: skip
            if self.comparison is not None:
                while not self.comparison.done:
                    time.sleep(LOOK)
                    self._look()
        except Exception as error:  # whoever waits hears of it
            self.error = error
        self.ended.set()

    def stop(self) -> None:
        """Stop what runs, after the iteration that is under way; start nothing more."""
        with self._lock:
            self._stopping = True
            if self.comparison is not None:
                self.comparison.stop()

    def wait(self, timeout: float | None = None, progress: bool | None = None) -> Study:
        """Block until all is over; gives itself. ``timeout`` in seconds: RunTimeout, and it goes
        on. Ctrl-C stops it. Raises WorkbenchError if nothing came to its end. ``progress``: a bar
        in the terminal (default: if there is one).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting():
            while self.comparison is None and not self.done:
                self._patient(timeout, deadline)
                time.sleep(LOOK)
            if self.comparison is not None:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                self.comparison.wait(left, progress=progress)
            while not self.done:
                self._patient(timeout, deadline)
                time.sleep(LOOK)
        if self.error is not None:
            raise self.error
        return self

    def _patient(self, timeout: float | None, deadline: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise RunTimeout(f"the study is not over after {timeout} s ({self.state}); it goes on")

    # ---- what was found

    @property
    def table(self) -> pl.DataFrame:
        """A row for each number of ranks of each line that was measured: see table.SCHEMA."""
        self._look()
        known = [one for one in self._known.values() if one is not None]
        return tabled(known, self.ceilings, weak=self.scaling == "weak")

    @property
    def words(self) -> list[str]:
        """What it says, in sentences: the machine, then each line."""
        padded = any(case.experiment.pad_compute is not None for case in self.cases)
        return sentences(self.table, self.cores, padded)

    @property
    def state(self) -> str:
        """How it stands, in a line."""
        if self.comparison is None:
            return "over" if self.done else "measuring what this machine can do"
        return self.comparison.words

    def figure(self, theme: str = "light") -> go.Figure:
        """Speed-up, efficiency, exposed communication and cost against the number of ranks.
        ``theme``: light or dark.
        """
        from workbench.views.studied import figure

        return figure(self.table, theme)

    def __repr__(self) -> str:
        return f"Study({', '.join(case.name for case in self.cases)}: {self.state})"

    def __str__(self) -> str:
        return "\n".join(self.words) or repr(self)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.views.studied_display import show

        return show

    # ---- reading runs

    def _look(self) -> None:
        """Measure the runs that are over, each once: later its events may be gone."""
        if self.comparison is None:
            return
        by_name = {case.name: case for case in self.cases}
        for trial in self.comparison.trials:
            if id(trial) not in self._known and trial.state == "finished":
                self._known[id(trial)] = measured(by_name[trial.name], trial)


def measured(case: Case, trial: Trial) -> Measured | None:
    """What a run was; None of one of a single iteration, which only warmed up."""
    exp, told = case.experiment, trial.summary()
    at = trial.losses()["seconds"]
    if len(at) < 2 or at[-1] <= at[0]:
        return None
    return Measured(
        case.series, case.ranks, exp.threads or max(1, cores() // exp.ranks), exp.batch_size,
        seconds=(at[-1] - at[0]) / (len(at) - 1), exposed_ms=told["exposed_ms"],
        exposed_share=told["exposed_share"], core_wait_share=_core_wait(trial, exp.ranks),
    )  # fmt: skip


def _core_wait(trial: Trial, ranks: int) -> float | None:
    """The share of the ranks' time in which their training was ready to run and had no core."""
    run = trial.run
    if run is None:
        return None
    p = pl.col
    told = (
        run.store.scan()
        .filter((p("name").cast(pl.String) == "runqueue") & (p("iteration") > 0))
        .select(waited=p("value").sum(), end=p("end_ns").max(), start=p("end_ns").min())
        .collect()
        .row(0, named=True)
    )
    if not told["waited"] or told["end"] <= told["start"]:
        return 0.0 if told["end"] else None
    return float(min(1.0, told["waited"] / ((told["end"] - told["start"]) * ranks)))


def speed_up(
    experiment: Experiment,
    *,
    ranks: Sequence[int] = (1, 2, 4),
    repeats: int = 3,
    scaling: str = "strong",
    ceiling: bool = True,
    folder: str | Path | None = None,
    **sweep: Any,
) -> Study:
    """Run the experiment with each number of ranks; returns at once, ``wait()`` or ``await`` waits.

    ranks     how many processes; speed-ups are against the fewest. The experiment's own is not used
    repeats   how often each case runs, on seeds from the experiment's own on; medians are told
    scaling   "strong": batch_size is the whole minibatch, whatever the ranks, and pad_compute what
              it takes one of them: p ranks sleep a p-th each; "weak": both are of each rank
    ceiling   whether to measure first what so many processes can do here at most (seconds)
    folder    where runs that are done are kept, and found again
    sweep     further fields of an Experiment, each with the values to take, or name -> value:
              batch_size=(64, 256), bind=(False, True), network={"fast": ..., "slow": ...};
              each combination is a line of its own

    Threads of a rank are cores // ranks unless the experiment says so: with threads=1 each rank has
    one, so that what one rank does is not done by all cores already.
    Raises SpecError for what cannot be, before anything runs.
    """
    given = cases(experiment, ranks, scaling, sweep)
    if not isinstance(repeats, int) or repeats < 1:
        raise SpecError(f"repeats = {repeats!r}: 1 or more")
    if not experiment.record:
        raise SpecError("a study reads what the ranks recorded: leave out record=False")
    place = None if folder is None else Path(folder).expanduser()
    return Study(given, repeats, scaling, ceiling, place)
