"""The process that forks ranks and outlives none of them: nursery and guardian in one.

It has torch imported and no thread running, so that a fork is safe and a rank starts in milliseconds.
It is the ranks' parent, so that it learns how each one ended; and it reads the life line: when the
driver's end of the socket closes, however the driver ended, every rank is killed, frozen ones too.
Were the nursery itself killed, the kernel kills the ranks (PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def main(fd: int) -> NoReturn:
    """Serve the driver at the other end of ``fd`` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = socket.socket(fileno=fd)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one host talk over loopback alone
    import torch._dynamo  # a second's work that every rank's first optimizer would otherwise do again

    import workbench.job
    import workbench.rank
    import workbench.strategies.ddp
    from workbench import wire

    gc.collect()
    gc.freeze()  # what is here now is shared by all ranks: the collector must not touch (and copy) it
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, socket.socket] = {}
    spare: list[int] = []
    try:
        while True:
            readable, _, _ = select.select([driver, wake_read], [], [])
            if wake_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                for pid, code in _ended():
                    if pid in spare:
                        spare.remove(pid)
                    if pid in children:
                        children.pop(pid).close()
                    wire.send(driver, {"ended": pid, "code": code})
            if driver in readable:
                message = wire.receive(driver)
                if message is None:
                    break
                _serve(
                    message[0],
                    driver,
                    children,
                    spare,
                    (wake_read, wake_write),
                    workbench.rank.main,
                )
    except OSError:
        pass  # the driver is gone: nobody to tell
    finally:
        for pid in _all_children(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _all_children(children: dict[int, socket.socket]) -> list[int]:
    return list(_living | set(children))


_living: set[int] = set()


def _serve(message, driver, children, spare, wake, rank_main) -> None:  # type: ignore[no-untyped-def]
    """``{"take": n}``: hand out n processes. ``{"keep": n}``: have n ready for the next time."""
    from workbench import wire

    for _ in range(message.get("take", 0)):
        pid = spare.pop() if spare else _fork(driver, children, wake, rank_main)
        with children.pop(pid) as theirs:
            wire.send(driver, {"rank_process": pid}, fds=[theirs.fileno()])
    while len(spare) < message.get("keep", 0):
        spare.append(_fork(driver, children, wake, rank_main))


def _fork(driver, children, wake, rank_main) -> int:  # type: ignore[no-untyped-def]
    mine, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            for other in (driver, theirs, *children.values()):
                other.close()
            for fd in wake:
                os.close(fd)
            code = rank_main(mine)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    mine.close()
    children[pid] = theirs
    _living.add(pid)
    return pid


def _ended() -> list[tuple[int, int]]:
    """Reap: (process, exit code, or minus the signal's number)."""
    found = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        _living.discard(pid)
        found.append((pid, os.waitstatus_to_exitcode(status)))
    return found
