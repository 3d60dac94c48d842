"""A temporary folder that goes with what it belongs to, and if its process is killed, soon after.

Its name says which process made it: where, its number, and when it began. The next process that
makes such a folder removes those whose process has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

from workbench.shared_memory.segments import birth_ticks
from workbench.transports.peer_page import host_identity

PREFIX = "workbench-events-"
_NAME = re.compile(PREFIX + r"([0-9a-f]{8})-(\d+)-(\d+)-.*")


def private_folder(owner: object) -> Path:
    """Return a new folder, which is removed with ``owner``; at the interpreter's exit too."""
    _sweep(Path(tempfile.gettempdir()))
    pid = os.getpid()
    prefix = f"{PREFIX}{_realm()}-{pid}-{birth_ticks(pid)}-"
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    weakref.finalize(owner, _remove, folder, pid)
    return folder


def _sweep(place: Path) -> None:
    """Remove what processes have left that were killed. Those of other machines, containers and
    users stay: whether they live is not known here.
    """
    for folder in place.glob(f"{PREFIX}*"):
        named = _NAME.fullmatch(folder.name)
        if named and named[1] == _realm() and birth_ticks(int(named[2])) != int(named[3]):
            shutil.rmtree(folder, ignore_errors=True)


def _realm() -> str:
    """Return a word for where process numbers mean the same, for this user."""
    return hashlib.sha256(host_identity().encode()).hexdigest()[:8]


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's exit leaves its parent's files alone
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
