"""The process that forks ranks and outlives none of them: nursery and guardian in one.

It has torch imported and no thread running, so that a fork is safe and a rank starts in
milliseconds. It is the ranks' parent, so that it learns how each one ended; and it reads the life
lines: when the driver's end of the socket closes, or its process ends while a child of its own
still holds that end, every rank is killed, frozen ones too. Were the nursery itself killed, the
kernel kills the ranks (PDEATHSIG).
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
from collections.abc import Callable
from typing import NoReturn

from workbench import wire

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
# torch._dynamo: a second's work that every rank's first optimizer would otherwise do again.
_PRELOAD = ("torch._dynamo", "workbench.strategies.ddp", "workbench.checking.rank")
SETTLED = 0.05  # seconds without orders after which a spare process rehearses; the run before it
# ends in them


def main(fd: int) -> NoReturn:
    """Serve the driver at the other end of ``fd`` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one host talk over loopback alone
    nursery = _Nursery(socket.socket(fileno=fd))  # before the imports: the driver may end meanwhile
    for module in _PRELOAD:
        importlib.import_module(module)
    import workbench.rank

    _share()
    try:
        nursery.serve(workbench.rank.main)
    except OSError:
        pass  # the driver is gone: nobody to tell
    finally:
        nursery.end()
        os._exit(0)


def _share() -> None:
    """What is here now all ranks share: the collector must not touch (and copy) it."""
    gc.collect()
    gc.freeze()


def _rehearse() -> None:
    from workbench.launchers import rehearsal

    with contextlib.suppress(Exception):
        rehearsal.rehearse()


class _Nursery:
    def __init__(self, driver: socket.socket) -> None:
        self._driver = driver
        self._learned = False
        self._sockets: dict[int, socket.socket] = {}  # of spare processes: the driver's end
        self._spare: list[int] = []
        self._living: set[int] = set()
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._life_lines: list[int] = []
        with contextlib.suppress(OSError):  # a kernel before 5.3: the socket alone
            self._life_lines.append(os.pidfd_open(os.getppid()))

    def serve(self, rank_main: Callable[[socket.socket], int]) -> None:
        """``{"take": n, "request": number}``: hand out n processes, each with that number.
        ``{"keep": n}``: have n ready for next time.
        """
        while True:
            news = [self._driver.fileno(), self._wake[0], *self._life_lines]
            readable, _, _ = select.select(news, [], [])
            if self._wake[0] in readable:
                self._tell_of_the_ended()
            if any(line in readable for line in self._life_lines):
                return
            if self._driver.fileno() in readable:
                message = wire.receive(self._driver)
                if message is None:
                    return
                order = message[0]
                for _ in range(order.get("take", 0)):
                    pid = self._spare.pop() if self._spare else self._fork(rank_main)
                    with self._sockets.pop(pid) as theirs:
                        answer = {"rank_process": pid, "request": order["request"]}
                        wire.send(self._driver, answer, fds=[theirs.fileno()])
                if order.get("keep", 0):
                    self._learn()
                while len(self._spare) < order.get("keep", 0):
                    self._spare.append(self._fork(rank_main, rehearses=True))

    def _learn(self) -> None:
        """Once, and not for the first run, which would have to wait for it."""
        if not self._learned:
            self._learned = True
            from workbench.launchers import rehearsal

            with contextlib.suppress(Exception):  # then ranks do it for the first time themselves
                rehearsal.learn()
            _share()

    def end(self) -> None:
        """Kill every rank, and stay until it is gone: who waits for us may count on that."""
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)  # ours to reap, so the number is nobody else's yet
        for pid in self._living:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _tell_of_the_ended(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 4096)
        for pid in list(self._living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            self._living.remove(pid)
            if pid in self._spare:
                self._spare.remove(pid)
            if pid in self._sockets:
                self._sockets.pop(pid).close()
            wire.send(self._driver, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})

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
        self, parent: int, mine: socket.socket, theirs: socket.socket,
        rank_main: Callable[[socket.socket], int], rehearses: bool,
    ) -> NoReturn:  # fmt: skip
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            prctl = ctypes.CDLL(None).prctl
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            prctl(
                PR_SET_TIMERSLACK, 1000
            )  # ns; by default each sleep of a paced link ends 50 µs late
            if os.getppid() != parent:
                os._exit(1)
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
