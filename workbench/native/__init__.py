"""The compiled mover: C that moves messages and reads records, if a compiler was there.

``compiled()`` returns the extension, or None: then Python does the same work, slower, and
``reason()`` says why. Sources: ``*.c`` and ``*.h`` here; ``make mover`` builds them (build.py).
"""

from __future__ import annotations

import functools
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from workbench.common import environment
from workbench.common.errors import SpecError, WorkbenchError

BINARY = "_mover.abi3.so"
REBUILD = "`make mover` builds it (elsewhere: pip install the workbench again)"


class Found(NamedTuple):
    """The extension, or the reason why Python does its work."""

    module: ModuleType | None
    reason: str = ""


def compiled() -> ModuleType | None:
    """Return the compiled mover, or None where Python does its work.

    Raises WorkbenchError if ``WORKBENCH_MOVER=c`` asks for it and it is not there.
    """
    found = _chosen(environment.text("WORKBENCH_MOVER"))
    return found.module


def reason() -> str:
    """Return why there is no compiled mover here; "" where there is one."""
    return _chosen(environment.text("WORKBENCH_MOVER")).reason


@functools.cache
def _chosen(wanted: str) -> Found:
    """Return what ``WORKBENCH_MOVER`` asks for: python, c, or ("") whatever is there."""
    if wanted not in ("", "python", "c"):
        raise SpecError(
            f"WORKBENCH_MOVER={wanted!r}: it takes c or python "
            f"({environment.VARIABLES['WORKBENCH_MOVER'].meaning})"
        )
    if wanted == "python":
        return Found(None, "WORKBENCH_MOVER=python asks for it")
    found = load(Path(__file__).parent)
    if wanted == "c" and found.module is None:
        raise WorkbenchError(f"WORKBENCH_MOVER=c asks for the compiled mover: {found.reason}")
    return found


def load(folder: Path) -> Found:
    """Import the extension and compare it with its sources in ``folder``."""
    if "t" in sys.abiflags:
        return Found(None, "a free-threaded Python has no stable ABI, for which it is compiled")
    if not (folder / BINARY).exists():
        return Found(None, f"it was not compiled when the workbench was installed; {REBUILD}")
    from workbench.native.build import digest

    loader = ExtensionFileLoader("workbench.native._mover", str(folder / BINARY))
    try:
        module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
        loader.exec_module(module)
    except ImportError as error:
        return Found(None, f"it cannot be loaded ({error}); {REBUILD}")
    if digest(folder) != module.SOURCES:
        return Found(None, f"it is older than its sources; {REBUILD}")
    return Found(module)
