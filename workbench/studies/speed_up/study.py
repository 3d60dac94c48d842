"""``wb.speed_up``: how much faster are more ranks, and what keeps them from being faster?

    study = wb.speed_up(exp, ranks=(1, 2, 4), batch_size=(64, 256))
    study.wait()        or: await study
    study.table         a row for each number of ranks of each line, see store/table.py
    study.figure()      against the ideal, Amdahl's line, and what this machine can do at most

First the machine is measured (ceiling.py), then every case runs, then every case again: what
changes on the machine meanwhile changes for all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Place, RealRanks, Repeats, Text, Theme, checked
from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.studies.speed_up.cases import cases
from workbench.studies.speed_up.sweep import Sweep

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Study(Sweep):
    """The study of ``speed_up``: live while it runs; shows itself in a notebook."""

    @checked
    def figure(self, theme: Theme = "light") -> go.Figure:
        """Return speed-up, efficiency, exposed communication and cost against the number of ranks.

        ``theme``: light or dark.
        """
        from workbench.studies.speed_up.charts import figure

        return figure(self.table, theme)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.studies.speed_up.display import show

        return show


@checked
def speed_up(
    experiment: Experiment,
    *,
    ranks: RealRanks = (1, 2, 4),
    repeats: Repeats = 3,
    scaling: Text = "strong",
    ceiling: bool = True,
    folder: Place | None = None,
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

    >>> exp = wb.Experiment(strategy="ddp", iterations=20)
    >>> print(wb.speed_up(exp, ranks=(1, 2), batch_size=(64, 256)).wait())
    """
    study_cases = cases(experiment, ranks, scaling, sweep)
    if not experiment.record:
        raise SpecError("a study reads what the ranks recorded: leave out record=False")
    place = None if folder is None else Path(folder).expanduser()
    return Study(study_cases, repeats, scaling, ceiling, place)
