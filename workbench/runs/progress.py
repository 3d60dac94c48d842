"""A progress bar in a terminal: of a run, with its loss; of a comparison, with how it stands; of a
check, which has a line in a notebook too.
"""

from __future__ import annotations

import contextvars
import itertools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from workbench.common import threads
from workbench.common.units import counted
from workbench.runs.background_task import run_over
from workbench.runs.conducting import STOPPED

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.store.event_store import Store
    from workbench.store.result import Result

AFTER, EVERY = 0.5, 0.2  # seconds: until a notebook's line is there, and between two states of it


class OneRun(Protocol):
    """The progress bar of one run, and its Ctrl-C."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def iteration(self) -> int: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def done(self) -> bool: ...
    @property
    def result(self) -> Result: ...
    @property
    def store(self) -> Store: ...
    def stop(self) -> None: ...
    def wait(
        self, timeout: float | None = None, check: bool = True, progress: bool | None = None
    ) -> Any: ...


class Comparison(Protocol):
    """The progress bar of several runs: ``trials`` of a study, and its state in ``words``."""

    @property
    def trials(self) -> Sequence[Trial]: ...
    @property
    def words(self) -> str: ...


class Trial(Protocol):
    """One run of several."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def done(self) -> bool: ...
    def summary(self) -> Mapping[str, Any]: ...


class Runs(Protocol):
    """Runs of a report on rounding: those of ``plan``, of which ``over`` have ended."""

    @property
    def plan(self) -> Sized: ...
    @property
    def over(self) -> int: ...
    @property
    def words(self) -> str: ...


def show_progress(run: OneRun, timeout: float | None = None) -> bool:
    """Show progress until the run is over; return False after ``timeout`` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task(
            counted(run.experiment.ranks, "rank"),
            total=None if run.experiment.stop_after else run.experiment.iterations,
            loss="",
        )
        try:
            while not run.done:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                loss = run.loss
                bar.update(
                    task,
                    completed=run.iteration + 1,
                    loss="starting" if loss is None else f"loss {loss:.4f}",
                )
                time.sleep(0.1)
        except KeyboardInterrupt:
            run.stop()
            run_over(run, 10)  # where it takes longer, the interrupt is still what is raised
            raise
        if run.result.ok:
            losses = run.result.losses
            bar.update(task, completed=len(losses), loss=f"loss {losses[-1]:.4f}" if losses else "")
    return True


@contextmanager
def show_comparison(
    comparison: Comparison, show: bool | None = None
) -> Iterator[Callable[[], None]]:
    """Yield a function that brings the bar up to date; it counts iterations of all runs. ``show``:
    whether there is a bar (default: in a terminal).
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda: None
        return
    goals = [trial.experiment.iterations for trial in comparison.trials]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=sum(goals))

        def look() -> None:
            done = 0
            for trial, all_of_it in zip(comparison.trials, goals, strict=True):
                done += all_of_it if trial.done else int(trial.summary()["iterations"] or 0)
            bar.update(task, completed=done, description=comparison.words)

        yield look


@contextmanager
def show_drift(runs: Runs, show: bool | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function that brings the bar of a report on rounding up to date; it counts runs."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=len(runs.plan))
        yield lambda: bar.update(task, completed=runs.over, description=runs.words)


Step = Callable[[str], None]  # takes what comes next, in words


@contextmanager
def show_cases(words: str, total: int, show: bool | None = None) -> Iterator[Step]:
    """Yield a function to call before each of ``total`` cases. The bar is in a terminal; in a
    notebook it is a line in the cell's output, removed at the end. ``show``: whether there is one
    (default: in a terminal or a kernel).
    """
    kernel = _in_kernel()
    if not (kernel or sys.stderr.isatty() if show is None else show):
        yield lambda case: None
        return
    if kernel:
        line = _Line(words, total)
        try:
            yield line.step
        finally:
            line.end()
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), transient=True) as bar:
        task, done = bar.add_task(words, total=total), itertools.count()
        yield lambda case: bar.update(task, description=f"{words}: {case}", completed=next(done))


class _Line:
    """One output of a notebook's cell that is written again and again; none of a short check."""

    def __init__(self, words: str, total: int) -> None:
        self._words, self._total, self._done, self._case = words, total, -1, ""
        self._id, self._text = f"workbench-{uuid.uuid4()}", ""
        self._over = threading.Event()
        # Of this cell, in whichever thread; one of its own, for a case may last.
        run = contextvars.copy_context().run
        self._thread = threads.start(
            partial(run, self._follow), "workbench line", stop=self._over.set
        )

    def step(self, case: str) -> None:
        self._case, self._done = case, self._done + 1

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        began, pause = time.monotonic(), AFTER
        while not self._over.wait(pause):
            full, pause = round(20 * max(self._done, 0) / max(self._total, 1)), EVERY
            self._tell(
                f"{self._words} {'█' * full}{'░' * (20 - full)} {max(self._done, 0)} of "
                f"{self._total} cases, {time.monotonic() - began:.0f} s; now {self._case}"
            )
        if self._text:
            self._tell("")

    def _tell(self, text: str) -> None:
        from IPython.display import display

        if text != self._text:
            bundle = {"text/plain": text}
            display(  # type: ignore[no-untyped-call]
                bundle, raw=True, display_id=self._id, update=bool(self._text)
            )
            self._text = text


def _in_kernel() -> bool:
    """Return whether this is a notebook's kernel; IPython is only asked if it has been imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def in_words(result: Result, dropped: int) -> str:
    """Return one line on a run that went well."""
    moved = sum(result.bytes_sent.values())
    speed = len(result.losses) / result.wall_seconds if result.wall_seconds else 0.0
    digits = 0 if speed >= 10 else 1 if speed >= 1 else 2
    loss = f"loss {result.losses[0]:.4f} → {result.losses[-1]:.4f}, " if result.losses else ""
    return (
        f"{counted(len(result.losses), 'iteration')} in {result.wall_seconds:.2f} s "
        f"({speed:.{digits}f} per second), {loss}{moved / 1e6:,.1f} MB sent by "
        f"{counted(len(result.bytes_sent), 'rank')}, {counted(dropped, 'record')} dropped"
    )


def done_in_words(run: OneRun) -> str:
    """Return one line on a run that is over: whether it came to its end, with its loss."""
    losses, goal = run.result.losses, run.experiment.iterations
    planned = len(losses) == goal or STOPPED in run.store.metadata
    last = f", loss {losses[-1]:.3f}" if losses else ""
    return (
        f"{'Done' if planned else f'Stopped, {goal:,} were asked for'}: "
        f"{counted(len(losses), 'iteration')} in {run.result.wall_seconds:.1f} s{last}."
    )
