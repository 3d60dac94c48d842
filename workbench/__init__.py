"""The workbench: distributed training made visible.

Real ranks train a real model; every chunk that moves between them is recorded where it moves and
drawn while it moves. ``wb.run(wb.Experiment(...))`` starts; README.md shows more. Importing this
module also makes the torch.distributed backend "workbench" known; it imports neither torch nor a
user interface.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench._on_torch import register_backend
from workbench.errors import (
    CollectiveError,
    MemoryLimit,
    PadOverrun,
    PeerLost,
    RankError,
    RunTimeout,
    SpecError,
    WorkbenchError,
)
from workbench.launchers.local import shutdown
from workbench.result import Result
from workbench.run import Run, run
from workbench.spec import Experiment, Freeze, Jitter, Kill, Link, Network, Pads, Slow

if TYPE_CHECKING:
    from workbench.cells.team import Ranks, ranks
    from workbench.checking.check import check
    from workbench.choosing.ask import why
    from workbench.choosing.calibrate import calibrate
    from workbench.choosing.crossing import crossover
    from workbench.comparison import Comparison, compare
    from workbench.laboratory import lab
    from workbench.pairing import SideBySide, side_by_side
    from workbench.partitions.partition import Partition, partition
    from workbench.pipelines.schedule import Schedule
    from workbench.pipelines.schedule import build as schedule
    from workbench.planning import Planned, plan
    from workbench.rounding.bench import drift
    from workbench.speedup.study import Study, speed_up
    from workbench.splitting.split import split
    from workbench.store import load

__version__ = "0.1.0"
__all__ = [
    "CollectiveError", "Comparison", "Experiment", "Freeze", "Jitter", "Kill", "Link",
    "MemoryLimit", "Network", "PadOverrun", "Pads", "Partition", "PeerLost", "Planned",
    "RankError", "Ranks", "Result", "Run", "RunTimeout", "Schedule", "SideBySide", "Slow",
    "SpecError", "Study", "WorkbenchError", "calibrate", "check", "compare", "crossover",
    "drift", "lab", "load", "partition", "plan", "ranks", "run", "schedule", "shutdown",
    "side_by_side", "speed_up", "split", "why",
]  # fmt: skip

# Imported when first asked for: polars, which ranks can do without, and widgets.
_LATER = {
    "Comparison": ("comparison", "Comparison"),
    "Schedule": ("pipelines.schedule", "Schedule"),
    "calibrate": ("choosing.calibrate", "calibrate"),
    "check": ("checking.check", "check"),
    "compare": ("comparison", "compare"),
    "crossover": ("choosing.crossing", "crossover"),
    "drift": ("rounding.bench", "drift"),
    "Partition": ("partitions.partition", "Partition"),
    "Ranks": ("cells.team", "Ranks"),
    "lab": ("laboratory", "lab"),
    "load": ("store", "load"),
    "partition": ("partitions.partition", "partition"),
    "Planned": ("planning", "Planned"),
    "plan": ("planning", "plan"),
    "ranks": ("cells.team", "ranks"),
    "Study": ("speedup.study", "Study"),
    "schedule": ("pipelines.schedule", "build"),
    "SideBySide": ("pairing", "SideBySide"),
    "side_by_side": ("pairing", "side_by_side"),
    "speed_up": ("speedup.study", "speed_up"),
    "split": ("splitting.split", "split"),
    "why": ("choosing.ask", "why"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(
            f"module 'workbench' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    module, attribute = _LATER[name]
    found = globals()[name] = getattr(importlib.import_module(f"workbench.{module}"), attribute)
    return found


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext workbench``: the magics of magics.py."""
    from workbench.magics import load

    load(shell)


register_backend()
