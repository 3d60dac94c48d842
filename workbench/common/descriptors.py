"""Open files: how many a run needs, and what to do where a process may have no more of them.

Measured: a driver has 15, and 4 for each rank (sockets, memory); a rank has 13, and 6 for each rank
whose mailboxes it shares, itself included. Further groups take more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from workbench.common.errors import WorkbenchError

_SPARE = 8  # for what the user's code opens, and libraries do for a moment


def check_descriptors(ranks: int) -> None:
    """Raise WorkbenchError if this number of ranks needs more descriptors than are allowed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    opened = limit  # where there is none left to count them with
    with contextlib.suppress(OSError):
        opened = len(os.listdir("/proc/self/fd")) - 1
    needs = max(opened + 15 + 4 * ranks, 13 + 6 * ranks) + _SPARE
    if needs > limit:
        raise WorkbenchError(
            f"{ranks} rank{'s' * (ranks > 1)} cannot start: this process, or each of them, needs "
            f"about {needs} open files; the limit is {limit}, and {opened} are open here. "
            f"{_remedy(needs)}"
        )


def in_words(error: BaseException, whose: str) -> str:
    """Explain an error of too many open files; "" if it is another one. Torch reports it as a
    RuntimeError.
    """
    number = error.errno if isinstance(error, OSError) else None
    words = os.strerror(errno.EMFILE) in str(error)
    if number not in (errno.EMFILE, errno.ENFILE) and not words:
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{whose} may have no more open files: the limit is {limit}. {_remedy(2 * limit)} ({error})"
    )


def take_limit(files: int) -> None:
    """Take the driver's limit, which may have changed since the pool started."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _remedy(needs: int) -> str:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(1024, needs)
    whole = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {most})) here, or "
    may = whole if most == resource.RLIM_INFINITY or most >= limit else ""
    return f"Raise it ({may}`ulimit -n {limit}` before Python starts), or use fewer ranks."
