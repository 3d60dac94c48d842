"""The workbench: distributed training made visible.

Real ranks train a real model; every chunk that moves between them is recorded where it moves and drawn
while it moves. ``wb.run(wb.Experiment(...))`` starts; README.md shows more. Importing this module also
makes the torch.distributed backend "workbench" known.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench._on_torch import register_backend

if TYPE_CHECKING:
    from workbench.errors import (
        CollectiveError as CollectiveError,
        PeerLost as PeerLost,
        RankError as RankError,
        RunTimeout as RunTimeout,
        SpecError as SpecError,
        WorkbenchError as WorkbenchError,
    )
    from workbench.laws import check as check
    from workbench.launchers.local import shutdown as shutdown
    from workbench.run import Result as Result, Run as Run, run as run
    from workbench.spec import (
        Experiment as Experiment,
        Freeze as Freeze,
        Jitter as Jitter,
        Kill as Kill,
        Link as Link,
        Network as Network,
        Slow as Slow,
    )
    from workbench.store import load as load

__version__ = "0.1.0"

_HOMES = {
    "errors": "CollectiveError PeerLost RankError RunTimeout SpecError WorkbenchError",
    "spec": "Experiment Freeze Jitter Kill Link Network Slow",
    "run": "Result Run run",
    "store": "load",
    "laws": "check",
    "launchers.local": "shutdown",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: ``import workbench`` alone takes milliseconds."""
    if name not in _HOME:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = globals()[name] = getattr(importlib.import_module(f"workbench.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register_backend()
