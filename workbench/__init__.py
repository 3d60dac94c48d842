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
    PeerLost,
    RankError,
    RunTimeout,
    SpecError,
    WorkbenchError,
)
from workbench.launchers.local import shutdown
from workbench.result import Result
from workbench.run import Run, run
from workbench.spec import Experiment, Freeze, Jitter, Kill, Link, Network, Slow

if TYPE_CHECKING:
    from workbench.comparison import Comparison, compare
    from workbench.laboratory import lab
    from workbench.store import load

__version__ = "0.1.0"
__all__ = [
    "CollectiveError", "Comparison", "Experiment", "Freeze", "Jitter", "Kill", "Link", "Network",
    "PeerLost", "RankError", "Result", "Run", "RunTimeout", "Slow", "SpecError", "WorkbenchError",
    "compare", "lab", "load", "run", "shutdown",
]  # fmt: skip

# Imported when first asked for: polars, which ranks can do without, and widgets.
_LATER = {"Comparison": "comparison", "compare": "comparison", "lab": "laboratory", "load": "store"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(
            f"module 'workbench' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    found = globals()[name] = getattr(importlib.import_module(f"workbench.{_LATER[name]}"), name)
    return found


register_backend()
