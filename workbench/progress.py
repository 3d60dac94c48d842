"""A progress bar in a terminal: of a run, with its loss; of a comparison, with how it stands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from workbench.comparison import Comparison
    from workbench.run import Run


def show_progress(run: Run, timeout: float | None = None) -> bool:
    """Follow the run until it is over; False if ``timeout`` seconds were not enough.

    Ctrl-C stops the run.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task(_ranks(run.experiment.ranks), total=run.experiment.iterations, loss="")
        try:
            while not run.done:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                loss = run.loss
                bar.update(
                    task,
                    completed=run.iteration + 1,
                    loss=f"loss {loss:.4f}" if loss == loss else "starting",
                )
                time.sleep(0.1)
        except KeyboardInterrupt:
            run.stop()
            run.wait(10, check=False, progress=False)
            raise
        if run.result.ok:
            losses = run.result.losses
            bar.update(task, completed=len(losses), loss=f"loss {losses[-1]:.4f}" if losses else "")
    return True


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


@contextmanager
def show_comparison(
    comparison: Comparison, show: bool | None = None
) -> Iterator[Callable[[], None]]:
    """Gives what brings the bar up to date; it counts iterations of all runs. ``show``: whether
    there is one (default: in a terminal).
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda: None
        return
    asked = [trial.experiment.iterations for trial in comparison.trials]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=sum(asked))

        def look() -> None:
            done = 0
            for trial, all_of_it in zip(comparison.trials, asked, strict=True):
                done += all_of_it if trial.done else int(trial.summary()["iterations"] or 0)
            bar.update(task, completed=done, description=comparison.words)

        yield look
