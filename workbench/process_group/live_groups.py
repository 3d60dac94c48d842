"""The groups of this process: closed at its end, asked for bytes and for errors."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from workbench.common.errors import WorkbenchError
from workbench.messaging.communicator import Communicator
from workbench.messaging.members import Members

UNCOUNTED = ("metrics", "control", "recovery")  # groups whose bytes are not training's


class LiveGroup(Protocol):
    """The methods of an open group that this module calls (group.py has the class)."""

    label: str
    comm: Communicator
    members: Members
    counted: bool  # are its bytes among those of the past?

    def close(self) -> None: ...
    def abort(self) -> None: ...


_groups: weakref.WeakSet[LiveGroup] = weakref.WeakSet()
_counting = threading.RLock()
_past_bytes = 0  # sent by groups of training that were destroyed


def add(group: LiveGroup) -> None:
    """Register a group for its lifetime."""
    _groups.add(group)


def count(group: LiveGroup) -> None:
    """Add an ended group's bytes to the total, so that the group can be forgotten."""
    global _past_bytes
    with _counting:
        _past_bytes += _training_bytes(group)
        group.counted = True


def close_all() -> None:
    """Close every group of this process. Runs before the interpreter ends: a thread of ours that
    still waits then would abort the process ("terminate called without an active exception")."""
    for group in list(_groups):
        group.close()


def abort_all() -> None:
    """Abort every group of this process that is open."""
    for group in list(_groups):
        group.abort()


def forget_all() -> None:
    """Abort every group and forget them: a new generation has none, and none of their errors."""
    abort_all()
    _groups.clear()


def bytes_sent() -> int:
    """Return the payload bytes that this rank has sent in training: metrics, checks, grants left
    out.
    """
    with _counting:
        uncounted = [group for group in list(_groups) if not group.counted]
        return _past_bytes + sum(map(_training_bytes, uncounted))


def first_error() -> WorkbenchError | None:
    """Return the failure that this process's groups found first, if any did."""
    errors = (group.members.watch.error for group in list(_groups))
    return next((error for error in errors if error), None)


def _training_bytes(group: LiveGroup) -> int:
    return 0 if group.label in UNCOUNTED else int(group.comm.slots.bytes_sent)
