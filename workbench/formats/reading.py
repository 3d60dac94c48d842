"""Files that others recorded, recognized by how they begin, and read into a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import polars as pl

from workbench.common import extensions
from workbench.common.errors import WorkbenchError
from workbench.formats._recording import File
from workbench.store.event_store import Store
from workbench.store.trace_folder import PRECISION

_NOT_FORMATS = ("reading",)
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_LARGEST_FOLDER = 4096  # files


def formats() -> dict[str, ModuleType]:
    """Return the modules of all formats by name."""
    names = [name for name in extensions.files("formats") if name not in _NOT_FORMATS]
    return {name: extensions.load("formats", name) for name in names}


def recognized(path: Path) -> list[Path]:
    """Return the files at ``path``, a file or a folder, that a format here knows; [] if none.

    Raises WorkbenchError for a pickle: reading one would run code.
    """
    if path.is_dir():
        inside = sorted(one for one in path.iterdir() if one.is_file())[:_LARGEST_FOLDER]
        return [one for one in inside if _format_of(File(one)) is not None]
    return [path] if path.is_file() and _format_of(File(path)) is not None else []


def read(paths: Sequence[Path]) -> Store:
    """Return a store of what these files, all of one format, have recorded.

    Raises WorkbenchError that names the file, and says what was expected.
    """
    files, kinds = [File(path) for path in paths], dict[str, list[File]]()
    for file in files:
        try:
            name = _format_of(file)
        except OSError as error:
            raise file.wrong(f"it cannot be read: {error.strerror}") from None
        if name is None:
            known = ", ".join(str(module.NAME) for module in formats().values())
            raise file.wrong(f"expected one of: {known}. It begins with {file.head[:40]!r}")
        kinds.setdefault(name, []).append(file)
    if len(kinds) != 1:
        listing = "; ".join(f"{name}: {one[0].path.name}" for name, one in kinds.items())
        raise WorkbenchError(
            f"expected files of one recording, got {listing or 'none'}: open one kind at a time"
        )
    ((name, of_kind),) = kinds.items()
    module = formats()[name]
    try:
        recording = module.read(of_kind)
        recording.align()
        frame = recording.frame()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise of_kind[0].wrong(
            f"it is not what {module.NAME} writes ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    except (OSError, MemoryError, RecursionError, pl.exceptions.PolarsError) as error:
        raise of_kind[0].wrong(f"it cannot be read: {str(error) or 'it is too large'}") from None
    if not recording.rows:
        raise of_kind[0].wrong(f"{module.NAME}: it holds no operation and no computing of any rank")
    title = of_kind[0].path.name if len(of_kind) == 1 else of_kind[0].path.absolute().parent.name
    return Store.from_frame(
        frame,
        {
            "title": title,
            "ranks": str(recording.ranks),
            "format": str(module.NAME),
            PRECISION: recording.precision,
            "findings": json.dumps(recording.findings),
        },
    )


def _format_of(file: File) -> str | None:
    """Return the name of the format that a file has; None: none that is known here."""
    if file.head.startswith(_PICKLES):
        raise file.wrong(
            "it is a pickle, and reading one can run code: nothing here reads it. The flight "
            "recorder also writes JSON (torch._C._distributed_c10d._dump_fr_trace_json), torch "
            "profiler export_chrome_trace"
        )
    return next((name for name, module in formats().items() if module.matches(file)), None)
