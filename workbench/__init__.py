"""The workbench: distributed training made visible.

Real ranks train a real model; every chunk that moves between them is recorded where it moves and
drawn while it moves. ``wb.run(wb.Experiment(...))`` starts; README.md shows more. Importing this
module also makes the torch.distributed backend "workbench" known; it imports neither torch nor a
user interface.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from workbench._on_torch import register_backend
from workbench.common.errors import (
    BadMinibatch,
    CheckpointError,
    CollectiveError,
    CorruptReplica,
    DataSourceDown,
    MemoryLimit,
    PadOverrun,
    PeerLost,
    RankError,
    RunTimeout,
    SpecError,
    TooFewRanks,
    WorkbenchError,
)
from workbench.common.live_runs import runs as _runs
from workbench.common.public_names import LATER
from workbench.runs import displays

if TYPE_CHECKING:
    from workbench.auditing.audit import audit
    from workbench.auditing.report import Audit
    from workbench.cells.team import Ranks, ranks
    from workbench.exercises.catalogue import exercise
    from workbench.exercises.grade import grade
    from workbench.exercises.guess import guess
    from workbench.exercises.progress import progress
    from workbench.experiment.checkpoint import Checkpoint
    from workbench.experiment.scenario import Scenario
    from workbench.experiment.spec import (
        Corrupt,
        Cut,
        Experiment,
        FailToStart,
        Freeze,
        Jitter,
        Join,
        Kill,
        Link,
        Network,
        NetworkPartition,
        Pads,
        Preempt,
        Slow,
        SourceDown,
        When,
    )
    from workbench.experiment.traits import Traits
    from workbench.interface.about import about
    from workbench.interface.laboratory import lab
    from workbench.launchers.processes.pool import shutdown
    from workbench.runs.attach import watch
    from workbench.runs.loaded import load
    from workbench.runs.run import Run, run
    from workbench.store.result import Result
    from workbench.studies.checking.check import check
    from workbench.studies.comparison.comparison import Comparison, compare
    from workbench.studies.crossover.ask import why
    from workbench.studies.crossover.calibrate import calibrate
    from workbench.studies.crossover.crossover import crossover
    from workbench.studies.drift.drift import drift
    from workbench.studies.fits import fits
    from workbench.studies.interval.study import interval
    from workbench.studies.partition import Partition, partition
    from workbench.studies.planning import Planned, plan
    from workbench.studies.side_by_side import SideBySide, side_by_side
    from workbench.studies.speed_up.study import Study, speed_up
    from workbench.studies.split import split
    from workbench.training.pipelines.schedule import Schedule
    from workbench.training.pipelines.schedule import build as schedule
    from workbench.views.walks import walk

__version__ = "0.1.0"
__all__ = [
    "Audit",
    "BadMinibatch",
    "Checkpoint",
    "CheckpointError",
    "CollectiveError",
    "Comparison",
    "Corrupt",
    "CorruptReplica",
    "Cut",
    "DataSourceDown",
    "Experiment",
    "FailToStart",
    "Freeze",
    "Jitter",
    "Join",
    "Kill",
    "Link",
    "MemoryLimit",
    "Network",
    "NetworkPartition",
    "PadOverrun",
    "Pads",
    "Partition",
    "PeerLost",
    "Planned",
    "Preempt",
    "RankError",
    "Ranks",
    "Result",
    "Run",
    "RunTimeout",
    "Scenario",
    "Schedule",
    "SideBySide",
    "Slow",
    "SourceDown",
    "SpecError",
    "Study",
    "TooFewRanks",
    "Traits",
    "When",
    "WorkbenchError",
    "about",
    "audit",
    "calibrate",
    "check",
    "compare",
    "crossover",
    "drift",
    "exercise",
    "fits",
    "grade",
    "guess",
    "interval",
    "lab",
    "load",
    "partition",
    "plan",
    "progress",
    "ranks",
    "run",
    "runs",
    "schedule",
    "shutdown",
    "side_by_side",
    "speed_up",
    "split",
    "walk",
    "watch",
    "why",
]

runs = _runs  # the function, and not the package of that name, which was imported first

# Imported when a run is first shown so.
displays.provide(
    widget="workbench.views.jupyter:show",
    charts="workbench.views.pages.live_charts:Charts",
    figure="workbench.views.pages.figures:figure",
    page="workbench.views.replay:to_html",
    panel="workbench.interface.app:stage",
    trials="workbench.studies.rank_trials:trials_of",
    proof="workbench.studies.proof:prove",
)


# Two threads that import the same modules from two ends get halves of them.
_loading = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(
            f"module 'workbench' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    module, attribute = LATER[name]
    with _loading:
        loaded = importlib.import_module(f"workbench.{module}")
    result = globals()[name] = getattr(loaded, attribute)
    return result


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Register the magics of cells/magics.py, for ``%load_ext workbench``."""
    from workbench.cells.magics import load

    load(shell)


register_backend()
