"""``wb.interval``: how often to write a checkpoint, where ranks fail every so often?

    study = wb.interval(exp, mtbf="2 s", every=(1, 2, 5, 10, 20, 40), seeds=3)
    study.wait()        or: await study
    study.table         a row for each interval, see table.py
    study.best          the one whose useful iterations took least; study.costs.young: Young's
    study.figure()      measured against the first-order model, and where the time goes

First a short run without failures measures an iteration; then ranks are killed at iterations drawn
from each seed, the same for every interval, and each run goes on from its last checkpoint.

To see the optimum in a few seconds, make an iteration long against the noise of the machine and a
checkpoint dear: pad_compute="20 ms", Checkpoint(background=False), and an mtbf of some hundred
iterations. With background=True training waits for the copy only, and Young's interval is short.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Counts, Place, Seeds, Theme, TimeLimit, checked
from workbench.common.errors import SpecError
from workbench.common.units import duration_ns
from workbench.experiment.spec import Experiment
from workbench.studies.interval.cases import check
from workbench.studies.interval.sweep import Sweep

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Intervals(Sweep):
    """The study of ``interval``: live while it runs; shows itself in a notebook."""

    @checked
    def figure(self, theme: Theme = "light") -> go.Figure:
        """Return time per useful iteration, and where it goes, against the interval.

        ``theme``: light or dark.
        """
        from workbench.studies.interval.charts import figure

        return figure(self.table, self.costs, theme)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.studies.interval.display import show

        return show


@checked
def interval(
    experiment: Experiment,
    *,
    mtbf: TimeLimit,
    every: Counts = (1, 2, 5, 10, 20, 40),
    seeds: Seeds = 2,
    folder: Place | None = None,
) -> Intervals:
    """Sweep the checkpoint interval under random failures; returns at once, ``wait()`` or ``await``
    waits.

    experiment  with checkpoint=wb.Checkpoint(folder, keep, background); the study writes into
                folders of its own in there, and removes them. Its recovery is "restart"
    mtbf        mean time between failures, such as "2 s", of training that counts
    every       iterations between two checkpoints, each of which is run
    seeds       how many (from the experiment's own on) or which: of training and of failures
    folder      where runs that are done are kept, and found again

    Raises SpecError for what cannot be, before anything runs.

    >>> plan = wb.Checkpoint(folder="runs/interval")
    >>> exp = wb.Experiment(checkpoint=plan, recovery="restart")
    >>> print(wb.interval(exp, mtbf="2 s").wait())
    """
    check(experiment, every)
    first_seed = experiment.seed
    each = [*range(first_seed, first_seed + seeds)] if isinstance(seeds, int) else [*seeds]
    if len({*each}) < len(each):
        raise SpecError(f"seeds = {seeds!r}: numbers that all differ")
    place = None if folder is None else Path(folder).expanduser()
    return Intervals(experiment, duration_ns(mtbf) * 1e-9, every, each, place)
