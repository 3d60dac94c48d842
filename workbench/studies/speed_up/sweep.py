"""The runs of a study, over several numbers of ranks, and their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from workbench.studies.comparison.stages import Staged
from workbench.studies.comparison.trials import Trial
from workbench.studies.speed_up.cases import Case
from workbench.studies.speed_up.ceiling import ceilings, cores
from workbench.studies.speed_up.table import Measured, table_of
from workbench.studies.speed_up.words import sentences


class Sweep(Staged):
    """Experiments that run over several numbers of ranks, and what was measured by now."""

    PREPARING = "measuring what this machine can do"

    def __init__(
        self, cases: Sequence[Case], repeats: int, scaling: str, measure: bool, folder: Path | None
    ) -> None:
        super().__init__(folder)
        self.cases, self.repeats, self.scaling = tuple(cases), repeats, scaling
        self.cores = cores()
        self.ceilings: dict[str, dict[int, float]] = {}  # once the machine is measured
        self._measure = measure
        self._known: dict[int, Measured | None] = {}
        self._start("workbench speed-up")

    def _stages(self) -> None:
        if self._measure:
            self.ceilings = ceilings([case.ranks for case in self.cases])
        self._compare({case.name: case.experiment for case in self.cases}, self.repeats)

    # ---- what was found

    @property
    def table(self) -> pl.DataFrame:
        """A row for each number of ranks of each line that was measured: see table.SCHEMA."""
        self._look()
        known = [one for one in self._known.values() if one is not None]
        return table_of(known, self.ceilings, weak=self.scaling == "weak")

    @property
    def words(self) -> list[str]:
        """The findings in sentences: the machine, then each series."""
        padded = any(case.experiment.pad_compute is not None for case in self.cases)
        return sentences(self.table, self.cores, padded)

    def __repr__(self) -> str:
        return f"Study({', '.join(case.name for case in self.cases)}: {self.state})"

    def __str__(self) -> str:
        return "\n".join(self.words) or repr(self)

    # ---- reading runs

    def _look(self) -> None:
        if self.comparison is None:
            return
        by_name = {case.name: case for case in self.cases}
        for trial in self.comparison.trials:
            if id(trial) not in self._known and trial.state == "finished":
                self._known[id(trial)] = measured(by_name[trial.name], trial)


def measured(case: Case, trial: Trial) -> Measured | None:
    """Return the measurement of a run; None for a single iteration, which is a warm-up."""
    exp, facts = case.experiment, trial.summary()
    at = trial.losses()["seconds"]
    if len(at) < 2 or at[-1] <= at[0]:
        return None
    return Measured(
        case.series,
        case.ranks,
        exp.threads or max(1, cores() // exp.ranks),
        exp.batch_size,
        seconds=(at[-1] - at[0]) / (len(at) - 1),
        exposed_ms=facts["exposed_ms"],
        exposed_share=facts["exposed_share"],
        wait_share=facts["wait_share"],
        core_wait_share=_core_wait(trial, exp.ranks),
    )


def _core_wait(trial: Trial, ranks: int) -> float | None:
    """Return the share of the ranks' time in which training was ready to run but had no core."""
    run = trial.run
    if run is None:
        return None
    p = pl.col
    table = (
        run.store.scan()
        .filter((p("name").cast(pl.String) == "runqueue") & (p("iteration") > 0))
        .select(waited=p("value").sum(), end=p("end_ns").max(), start=p("end_ns").min())
        .collect()
        .row(0, named=True)
    )
    if not table["waited"] or table["end"] <= table["start"]:
        return 0.0 if table["end"] else None
    return float(min(1.0, table["waited"] / ((table["end"] - table["start"]) * ranks)))
