"""The process above the warm pool: when the driver or the fork server ends, it kills all below it.

    driver ─ guardian ─ fork server ─ ranks ─ whatever ranks start

The guardian is a "child subreaper" (prctl(2)): a process below it whose parent has ended becomes
its child, whatever session or process group that has put itself into. So it ends all of them by
killing its children until it has none, frozen ones too; and no number can be another process's by
then, for a child's number stays its own until its parent has asked for its end.

It imports nothing of ours and nothing large: it is there some 20 ms after the driver has asked for
it, and watches while the fork server below imports torch.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 0.3  # seconds that processes which a rank has left may take to end by themselves: a
# resource tracker of multiprocessing removes what its parent left in /dev/shm
LONGEST = 20.0  # seconds after which a process that cannot be killed (a dead disk) is given up
NO_PIDFD = 0.2  # seconds between two looks, where the kernel (before 5.3) tells of no process's end


def main(fd: int, driver: int, serve: Callable[[int, list[int]], NoReturn]) -> NoReturn:
    """Start the fork server, which serves the driver at the other end of ``fd``, and stand guard.

    ``driver``: its process; ``serve``: the fork server's work, given ``fd`` and its life lines.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt()
    lines = _life_line(driver)
    if os.getppid() != driver:
        os._exit(0)  # it ended before its life line was at hand
    fork_server = os.fork()
    if fork_server == 0:
        end_with(os.getppid())
        serve(fd, lines)
    code = _watch(fd, driver, fork_server, lines)
    if code is None:
        os.kill(fork_server, signal.SIGKILL)
    end_children(PATIENCE)
    _end_as(code or 0)


def adopt() -> None:
    """Become the parent of processes below this one whose own parent has ended, from now on."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends; now, if that has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children() -> set[int]:
    """Return the processes whose parent this one is, including those that have ended."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:
            return {int(word) for word in file.read().split()}
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {pid for pid in _processes() if _parent(pid) == me}


def end_children(patience: float, longest: float = LONGEST) -> None:
    """Wait until this process has no child; after ``patience`` seconds kill those that it has."""
    start, pause = time.monotonic(), 0.001
    while _reap():
        waited = time.monotonic() - start
        if waited > longest:
            return
        if waited >= patience:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _watch(fd: int, driver: int, fork_server: int, lines: list[int]) -> int | None:
    """Wait until the driver has gone, which returns None, or the fork server, which returns its
    exit code.
    """
    news = select.poll()
    news.register(fd, select.POLLRDHUP)  # what is said on it is for the fork server
    for line in [*lines, *_life_line(fork_server)]:
        news.register(line, select.POLLIN)
    blind = not lines
    while True:
        result = {one for one, _ in news.poll(NO_PIDFD * 1000 if blind else None)}
        ended, status = os.waitpid(fork_server, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if fd in result or not result.isdisjoint(lines) or os.getppid() != driver:
            return None


def _life_line(pid: int) -> list[int]:
    """Return a descriptor that is readable once that process has ended; none before Linux 5.3."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def _reap() -> bool:
    """Reap children that have ended; return whether others still run."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _end_as(code: int) -> NoReturn:
    """End as the fork server did: the driver sees how this process ends, and reports that one."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
