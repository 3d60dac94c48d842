"""The process that forks ranks and outlives none of them.

It has torch imported and no thread running, so that a fork is safe and a rank starts in
milliseconds. It is the ranks' parent, so that it learns how each one ended; and the subreaper of
what ranks leave behind, which ends with its rank. The guardian above it (guardian.py) ends all of
them with the driver; it reads the life lines too, should the guardian be frozen. If the fork server
itself is killed, the kernel kills the ranks (PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

from workbench.common import ipc
from workbench.common.errors import WorkbenchError
from workbench.common.guardian import PATIENCE, adopt, children, end_children, end_with

PR_SET_TIMERSLACK = 29
# What every rank would otherwise import after its fork: the process group alone, and what chooses
# its algorithms, in 20 ms.
_PRELOAD = (
    "workbench.strategies.ddp",
    "workbench.studies.checking.case_runner",
    "workbench.process_group.entry",
    "workbench.process_group.making",
    "workbench.choosing.together",
)
SETTLED = 0.05  # seconds without orders after which a spare process rehearses; the run before it
# ends in them


def main(fd: int, life_lines: Iterable[int] = ()) -> NoReturn:
    """Serve the driver at the other end of ``fd`` until it is gone. ``life_lines``: descriptors
    that are readable when it is.
    """
    adopt()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one host talk over loopback alone
    fork_server = _ForkServer(socket.socket(fileno=fd), life_lines)
    fork_server.greet()
    rank_main = preload()
    try:
        fork_server.serve(rank_main)
    except OSError:
        pass  # the driver is gone: no one is left to notify
    finally:
        fork_server.end()
        with contextlib.suppress(OSError):
            os.kill(os.getppid(), signal.SIGCONT)  # a guardian that is frozen
        os._exit(0)


def preload() -> Callable[[socket.socket], int]:
    """Import what ranks need, for all that are forked from here. Returns what a rank does."""
    gc.disable()  # all of these objects stay: looking them through takes a tenth of the import
    for module in _PRELOAD:
        importlib.import_module(module)
    import workbench.rank.main
    from workbench import native

    with contextlib.suppress(WorkbenchError):  # ranks say what is wrong with it
        native.compiled()
    _share()
    return workbench.rank.main.main


def _share() -> None:
    """Freeze what is here now, which all ranks share: the garbage collector must not touch (and
    copy) it.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def _rehearse() -> None:
    from workbench.rank import warm_up

    with contextlib.suppress(Exception):
        warm_up.rehearse()


class _ForkServer:
    def __init__(self, driver: socket.socket, life_lines: Iterable[int]) -> None:
        self._driver = driver
        self._learned = False
        self._sockets: dict[int, socket.socket] = {}  # of spare processes: the driver's end
        self._spare: list[int] = []
        self._living: set[int] = set()
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._life_lines = [*life_lines]
        self._left_behind: dict[int, float] = {}  # by ranks: process -> when it is killed

    def greet(self) -> None:
        """Tell the driver this process's number: the driver itself started the guardian."""
        with contextlib.suppress(OSError):
            ipc.send(self._driver, {"fork_server": os.getpid()})

    def serve(self, rank_main: Callable[[socket.socket], int]) -> None:
        """Serve orders. ``{"take": n, "request": number}``: hand out n processes, each with that
        number. ``{"keep": n}``: have n ready for next time; with ``"learn": False``, at once.
        """
        while True:
            news = [self._driver.fileno(), self._wake[0], *self._life_lines]
            readable, _, _ = select.select(news, [], [], self._kill_left_behind())
            if self._wake[0] in readable:
                self._tell_of_the_ended()
            if any(line in readable for line in self._life_lines):
                return
            if self._driver.fileno() in readable:
                message = ipc.receive(self._driver)
                if message is None:
                    return
                order = message[0]
                for _ in range(order.get("take", 0)):
                    pid = self._spare.pop() if self._spare else self._fork(rank_main)
                    with self._sockets.pop(pid) as theirs:
                        answer = {"rank_process": pid, "request": order["request"]}
                        ipc.send(self._driver, answer, fds=[theirs.fileno()])
                if order.get("keep", 0) and order.get("learn", True):
                    self._learn()
                while len(self._spare) < order.get("keep", 0):
                    self._spare.append(self._fork(rank_main, rehearses=True))

    def _learn(self) -> None:
        """Learn what ranks can inherit: once, and not for the first run, which would have to wait
        for it.
        """
        if not self._learned:
            self._learned = True
            from workbench.rank import warm_up

            with contextlib.suppress(Exception):  # then ranks do it for the first time themselves
                warm_up.learn()
            _share()

    def end(self) -> None:
        """Kill every rank and what they left, and stay until it is gone: a process that waits for
        us can count on that.
        """
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)  # ours to reap, so no other process has the number yet
        end_children(PATIENCE)

    def _tell_of_the_ended(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 4096)
        with contextlib.suppress(ChildProcessError):  # there is no child at all
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._tell_of(*ended)
        self._find_left_behind()

    def _tell_of(self, pid: int, status: int) -> None:
        if pid not in self._living:
            self._left_behind.pop(pid, None)
            return
        self._living.remove(pid)
        if pid in self._spare:
            self._spare.remove(pid)
        if pid in self._sockets:
            self._sockets.pop(pid).close()
        ipc.send(self._driver, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _find_left_behind(self) -> None:
        """Find processes that a rank left behind. A rank adopts what its own children leave
        (``adopt``), so a child of ours that is not a rank belongs to a rank that has ended.
        """
        deadline = time.monotonic() + PATIENCE
        for pid in children() - self._living:
            self._left_behind.setdefault(pid, deadline)

    def _kill_left_behind(self) -> float | None:
        """Kill those whose time has come. Returns in how many seconds the next one's has."""
        now = time.monotonic()
        for pid in [pid for pid, deadline in self._left_behind.items() if deadline <= now]:
            os.kill(pid, signal.SIGKILL)  # that it has ended is told by SIGCHLD
            self._left_behind[pid] = now + 1.0
        return max(0.0, min(self._left_behind.values()) - now) if self._left_behind else None

    def _fork(self, rank_main: Callable[[socket.socket], int], *, rehearses: bool = False) -> int:
        mine, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_a_rank(parent, mine, theirs, rank_main, rehearses)
        mine.close()
        self._sockets[pid] = theirs
        self._living.add(pid)
        return pid

    def _be_a_rank(
        self,
        parent: int,
        mine: socket.socket,
        theirs: socket.socket,
        rank_main: Callable[[socket.socket], int],
        rehearses: bool,
    ) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with(parent)
            adopt()
            # ns; by default each sleep of a paced link ends 50 µs late
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
            for other in (self._driver, theirs, *self._sockets.values()):
                other.close()
            for fd in (*self._wake, *self._life_lines):
                os.close(fd)
            if rehearses and not select.select([mine], [], [], SETTLED)[0]:
                _rehearse()
            code = rank_main(mine)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
