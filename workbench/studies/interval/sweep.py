"""The runs of a study of the checkpoint interval, and their measurements."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from workbench.checkpoints.folder import Lock
from workbench.common.errors import CheckpointError, SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.studies.comparison.stages import Staged
from workbench.studies.interval.cases import Case, cases, undisturbed
from workbench.studies.interval.reading import Measured, iteration_seconds, measure
from workbench.studies.interval.table import Costs, best_of, costs_of, table_of
from workbench.studies.interval.words import sentences

ALONE = "without failures"
PLACE = ".interval-study"  # a folder of its own in that of the experiment's checkpoints


class Sweep(Staged):
    """Runs with several checkpoint intervals, under the same failures, and what they showed."""

    PREPARING = "measuring an iteration"

    def __init__(
        self,
        exp: Experiment,
        mtbf: float,
        every: Sequence[int],
        seeds: Sequence[int],
        folder: Path | None,
    ) -> None:
        """Begin. ``mtbf`` in seconds. Raises SpecError where another study writes there."""
        assert exp.checkpoint is not None
        super().__init__(folder)
        self.experiment, self.mtbf, self.every, self.seeds = exp, mtbf, (*every,), (*seeds,)
        self.iteration: float | None = None  # seconds, once it is measured
        self._place = Path(exp.checkpoint.folder).absolute() / PLACE
        self._cases: dict[str, Case] = {}
        self._known: dict[str, Measured | None] = {}
        try:
            self._lock_of_folder = Lock(self._place)
        except CheckpointError as error:
            raise SpecError.at("checkpoint.folder", str(error), exp.checkpoint.folder) from None
        for left in self._place.glob("interval-*"):  # of a study that was killed
            shutil.rmtree(left, ignore_errors=True)
        self._start("workbench interval")

    # ---- running

    def _stages(self) -> None:
        try:
            self._compare({ALONE: undisturbed(self.experiment, self.every, self._place)})
            if self._stopping or self.comparison is None:
                return
            self.iteration = self._measured_iteration()
            arguments = (self.every, self.seeds, self._place, self.iteration, self.mtbf)
            self._cases = {one.name: one for one in cases(self.experiment, *arguments)}
            self._compare({name: one.experiment for name, one in self._cases.items()})
        finally:
            shutil.rmtree(self._place, ignore_errors=True)
            self._lock_of_folder.close()

    def _measured_iteration(self) -> float:
        assert self.comparison is not None
        [trial] = self.comparison.trials
        run = trial.run if trial.state == "finished" else None
        seconds = None if run is None else iteration_seconds(run.store.scan())
        if seconds is None:
            raise WorkbenchError(
                f"the run without failures did not say how long an iteration is: {trial.error}"
            )
        return seconds

    def _look(self) -> None:
        if self.comparison is None:
            return
        for trial in self.comparison.trials:
            case = self._cases.get(trial.name)
            if case is None or trial.name in self._known or trial.state != "finished":
                continue
            run, iterations = trial.run, case.experiment.iterations
            if run is not None:
                times = measure(run.store.scan(), run.store.metadata, case.every, iterations)
                self._known[trial.name] = times

    # ---- what was found

    @property
    def _runs(self) -> list[Measured]:
        self._look()
        return [one for one in [*self._known.values()] if one is not None]

    @property
    def table(self) -> pl.DataFrame:
        """A row for each interval that was measured: see table.SCHEMA."""
        runs = self._runs
        return table_of(runs, costs_of(runs, self.iteration, self.mtbf))

    @property
    def costs(self) -> Costs | None:
        """Iteration, checkpoint, restart and mtbf in seconds, and Young's and Daly's intervals in
        iterations; None until a run is over.
        """
        return costs_of(self._runs, self.iteration, self.mtbf)

    @property
    def best(self) -> int | None:
        """The interval whose useful iterations took least, in iterations; None: none is known."""
        return best_of(self.table)

    @property
    def words(self) -> list[str]:
        """The findings in sentences."""
        return sentences(self.table, self.costs)

    def __repr__(self) -> str:
        return f"Intervals(every {', '.join(map(str, self.every))}: {self.state})"

    def __str__(self) -> str:
        return "\n".join(self.words) or repr(self)
