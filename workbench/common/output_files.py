"""Files that are written for the user: whole or not at all, and regular files only.

What is new is written beside the old file, reaches the disk, and takes its place: a full disk, an
error or a killed process leave the old one as it was. A symbolic link stays, and the file to which
it leads is replaced. A device, pipe, socket or folder is refused: it would be replaced by a file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from workbench.common.errors import WorkbenchError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


@contextlib.contextmanager
def atomically(path: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """Yield an empty file beside ``path``, which replaces ``path`` if the block succeeds.

    Raises WorkbenchError, which says why ``what`` could not be written to ``path``.
    """
    with _explained(path, what):
        target = regular(path, what)
        with _new_file_beside(target) as beside:
            yield beside
            _settle(beside, target)
            os.replace(beside, target)


def make_ready(path: str | os.PathLike[str], what: str) -> None:
    """Make the folder of ``path``, and write an empty file there that is removed again: to call
    before work whose result goes to ``path``. Raises WorkbenchError as ``atomically`` does.
    """
    with _explained(path, what):
        target = regular(path, what)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _new_file_beside(target):
            pass


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {what} to {path}: {error.strerror or error}. The folder must exist, be "
            "writable and have room; what was there before is untouched."
        ) from error


@contextlib.contextmanager
def _new_file_beside(target: Path) -> Iterator[Path]:
    """Yield an empty file in the folder of ``target``, which is gone in the end."""
    beside = target.with_name(f".workbench-{os.getpid()}-{secrets.token_hex(4)}.part")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield beside
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], what: str, text: str) -> None:
    """Write ``text`` to ``path``. Raises WorkbenchError as ``atomically`` does."""
    with atomically(path, what) as beside:
        beside.write_text(text, encoding="utf-8")


def regular(path: str | os.PathLike[str], what: str) -> Path:
    """Return the regular file that ``path`` is, leads to or may become.

    Raises WorkbenchError if something else is there; OSError if that cannot be determined.
    """
    path = Path(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return path
    if not stat.S_ISREG(mode):
        result = next((words for is_one, words in _KINDS if is_one(mode)), "no regular file")
        if stat.S_ISLNK(mode):
            result = "a symbolic link that leads back to itself"
        raise WorkbenchError(
            f"cannot write {what} to {path}: it is {result}, which stays as it is. Name a regular "
            "file, or a path where nothing is yet."
        )
    return path


def _settle(beside: Path, target: Path) -> None:
    """Flush the file to disk, with the permissions of the file that it replaces."""
    number = os.open(beside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(number, stat.S_IMODE(target.stat().st_mode))
        os.fsync(number)
    finally:
        os.close(number)
