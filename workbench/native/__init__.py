"""The compiled mover: C that moves messages, writes records and reads them, where it was compiled.

``compiled()`` returns the extension, or None: then Python does the same work, and ``reason()`` says
why. ``WORKBENCH_MOVER`` chooses. Sources: ``*.c`` and ``*.h`` here; ``make mover`` builds them
(build.py).
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


class Extension(NamedTuple):
    """The extension, or the reason why Python does its work."""

    module: ModuleType | None
    reason: str = ""


def compiled() -> ModuleType | None:
    """Return the compiled mover, or None where Python does its work.

    Raises WorkbenchError if ``WORKBENCH_MOVER=c`` asks for it and it is not there.
    """
    mover = _chosen(environment.text("WORKBENCH_MOVER"))
    return mover.module


def reason() -> str:
    """Return why there is no compiled mover here; "" where there is one."""
    return _chosen(environment.text("WORKBENCH_MOVER")).reason


def name() -> str:
    """Return which mover runs: "C" or "Python"."""
    return "Python" if compiled() is None else "C"


@functools.cache
def _chosen(name: str) -> Extension:
    """Return what ``WORKBENCH_MOVER`` asks for; left out: the compiled one where there is one."""
    if name not in ("", "python", "c"):
        raise SpecError(
            f"WORKBENCH_MOVER={name!r}: it takes c or python "
            f"({environment.VARIABLES['WORKBENCH_MOVER'].meaning})"
        )
    if name == "python":
        return Extension(None, "WORKBENCH_MOVER=python asks for it")
    mover = extension()
    if mover.module is None and name == "c":
        raise WorkbenchError(f"WORKBENCH_MOVER=c asks for the compiled mover: {mover.reason}")
    return mover


@functools.cache
def extension() -> Extension:
    """Return the extension whatever moves messages: other things need it on some machines
    (shared_memory/ordering.py).
    """
    return load(Path(__file__).parent)


def load(folder: Path) -> Extension:
    """Import the extension and compare it with its sources in ``folder``."""
    if "t" in sys.abiflags:
        return Extension(None, "a free-threaded Python has no stable ABI, for which it is compiled")
    if not (folder / BINARY).exists():
        return Extension(None, f"it was not compiled when the workbench was installed; {REBUILD}")
    from workbench.native.build import digest

    loader = ExtensionFileLoader("workbench.native._mover", str(folder / BINARY))
    try:
        module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
        loader.exec_module(module)
    except ImportError as error:
        return Extension(None, f"it cannot be loaded ({error}); {REBUILD}")
    if digest(folder) != module.SOURCES:
        return Extension(None, f"it is older than its sources; {REBUILD}")
    return Extension(module)
