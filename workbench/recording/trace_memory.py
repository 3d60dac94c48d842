"""The memory of a trace: a run's segment, whose lanes are reserved when they are first needed; or
files in a folder, which grow by a block at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from pathlib import Path

from workbench.common.errors import WorkbenchError
from workbench.recording.events import DATA_AT, TRACE_BYTES
from workbench.shared_memory.segments import Segment, reserve


def trace_segment(whose: str) -> Segment:
    """Return a trace's memory: its head reserved, each lane when the rank first needs it."""
    fd = os.memfd_create(f"workbench trace of {whose}", os.MFD_CLOEXEC)
    try:
        reserve(fd, 0, DATA_AT, f"the trace of {whose}")
        os.ftruncate(fd, TRACE_BYTES)
        return Segment(fd, TRACE_BYTES)
    except BaseException:
        os.close(fd)
        raise


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder of that name, numbered if another container's process has made one."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = parent / (f"{name}.{number}" if number > 1 else name)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            break
    return path


def map_block(path: Path, offset: int, nbytes: int) -> memoryview:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, offset, nbytes)  # before it is mapped: never a bus error later
            return memoryview(mmap.mmap(fd, nbytes, offset=offset))
        finally:
            os.close(fd)
    except OSError as error:
        raise WorkbenchError(
            f"no room for the trace file {path}, which needs {nbytes:,} bytes more: "
            f"{error.strerror}"
        ) from error
