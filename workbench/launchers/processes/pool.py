"""The warm pool: ranks on this machine, forked from one fork server that belongs to this driver.

The driver (a notebook's kernel, a script) is never forked itself. The fork server starts with the
first run and stays for the next. ``shutdown()`` ends it with its ranks; so does the driver's end,
however it comes: above the fork server stands a guardian (guardian.py). In a fork of the driver the
pool is the parent's: the fork gets a pool of its own when it starts a run.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.common import descriptors, guardian, ipc, live_runs, threads
from workbench.common.errors import WorkbenchError
from workbench.recording.run_queue import LOOK, OwnTime
from workbench.shared_memory.segments import how_it_ended, process_state
from workbench.transports.meeting_place import meeting_place as meeting_place

_FULL = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
START_DEADLINE = 60.0  # seconds of its own for the fork server to import torch, from a cold disk


@dataclass
class RankProcess:
    """A process that waits for its orders, or follows them."""

    pid: int
    socket: socket.socket
    driver: int  # whose it is

    @property
    def ours(self) -> bool:
        """Whether this process is its driver, and not a fork of it."""
        return os.getpid() == self.driver

    def hang_up(self) -> None:
        """Close the line: it hears that it has no orders any more, also where a fork of the driver
        still holds this end. In that fork this does nothing to the rank.
        """
        if self.ours:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


# The guardian without the package, which would take longer to import than all that it does; the
# fork server with it, in the process that the guardian has forked.
_GUARDIAN = """
import runpy
import sys

def serve(fd, life_lines):
    sys.path.insert(0, {root!r})
    from workbench.launchers.processes.fork_server import main
    main(fd, life_lines)

name = "workbench.common.guardian"
runpy.run_path({guardian!r}, run_name=name)["main"]({fd}, {driver}, serve)
"""


class ForkServer:
    """The driver's end of the fork server.

    ``process``: the guardian, which the driver starts and which starts the fork server.
    """

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self.driver, self.environment = os.getpid(), dict(os.environ)
        root = str(Path(__file__).resolve().parents[3])
        code = _GUARDIAN.format(
            root=root, guardian=guardian.__file__, fd=theirs.fileno(), driver=self.driver
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C or a kernel's interrupt is the driver's business
        )
        theirs.close()
        self._socket = mine
        self._requests: dict[int, queue.Queue[RankProcess | None]] = {}  # None: no more will come
        self._numbers = itertools.count()
        self._watchers: dict[int, Callable[[int, int], None]] = {}
        self._ended: dict[int, int] = {}
        self._lock = threading.Lock()
        self._greeted, self._pid = threading.Event(), -1
        self.alive = True
        self.end = ""  # how the fork server ended, in words
        threads.start(self._listen, "workbench fork server")

    @property
    def pid(self) -> int:
        """The fork server's pid; waits until it is known. -1: it ended before it could send it."""
        self._greeted.wait(START_DEADLINE)
        return self._pid

    def changes(self) -> dict[str, str | None]:
        """Return the environment variables that changed since the pool started; None: removed.

        The pool itself still has the values of before.
        """
        now, before = dict(os.environ), self.environment
        changed: dict[str, str | None] = {name: None for name in before.keys() - now.keys()}
        return changed | {k: v for k, v in now.items() if before.get(k) != v}

    def take(self, count: int) -> list[RankProcess]:
        """Take ``count`` fresh rank processes. Raises WorkbenchError if there are none."""
        number, handed = next(self._numbers), queue.Queue[RankProcess | None]()
        try:
            with self._lock:
                self._requests[number] = handed
            return self._receive(number, handed, count)
        finally:
            with self._lock:
                self._requests.pop(number, None)
            while not handed.empty():  # given up: their processes end
                if (left := handed.get()) is not None:
                    left.hang_up()

    def _receive(
        self, number: int, handed: queue.Queue[RankProcess | None], count: int
    ) -> list[RankProcess]:
        try:
            ipc.send(self._socket, {"take": count, "request": number})
        except OSError as error:
            raise WorkbenchError(
                f"the process that starts ranks is gone ({error}); wb.shutdown() and try again"
            ) from error
        if not self.alive:  # since before the request: no process would answer it
            handed.put(None)
        processes: list[RankProcess] = []
        try:
            while len(processes) < count:
                process = self._next(handed)
                if process is None:
                    why = self.end or descriptors.in_words(_FULL, "this process")
                    raise WorkbenchError(
                        f"{why} when it had given {len(processes)} of {count} ranks"
                    )
                processes.append(process)
        except BaseException as error:
            for one in processes:
                one.hang_up()  # its process ends
            if isinstance(error, queue.Empty):
                stopped = process_state(self._pid) in "Tt"
                why = ": it is stopped (SIGSTOP)" if stopped else ", not counting waits for a core"
                raise WorkbenchError(
                    f"the process that starts ranks (pid {self._pid}) gave {len(processes)} of "
                    f"{count} within {START_DEADLINE:.0f} s{why}. wb.shutdown() ends it; the next "
                    "run starts another one"
                ) from None
            raise
        return processes

    def _next(self, handed: queue.Queue[RankProcess | None]) -> RankProcess | None:
        """Return the next process handed out, however long that takes on a busy machine. Raises
        queue.Empty where the fork server had all the time that it needs, or stands still.
        """
        pids = [self.process.pid]
        clock = OwnTime(pids)
        while True:
            with contextlib.suppress(queue.Empty):
                return handed.get(timeout=LOOK)
            if self._greeted.is_set() and self._pid not in pids:
                pids.append(self._pid)
            if clock.seconds > START_DEADLINE:
                raise queue.Empty

    def keep(self, count: int, *, learn: bool = True) -> None:
        """Keep this many processes ready for the next run. ``learn``: let the fork server take time
        to learn what they can inherit.
        """
        with contextlib.suppress(OSError):
            ipc.send(self._socket, {"keep": count, "learn": learn})

    def watch(self, pid: int, ended: Callable[[int, int], None]) -> None:
        """Call ``ended(pid, code)`` once that process has ended; at once if it already has."""
        with self._lock:
            code = self._ended.pop(pid, None if self.alive else -signal.SIGKILL)
            if code is None:
                self._watchers[pid] = ended
        if code is not None:
            ended(pid, code)

    def _listen(self) -> None:
        while True:
            try:
                message = ipc.receive(self._socket)
            except OSError:
                message = None
            if message is None:
                break
            body, _, fds = message
            if "fork_server" in body:
                self._pid = body["fork_server"]
                self._greeted.set()
            elif "rank_process" in body:
                self._hand(body, fds)
            elif "ended" in body:
                self._tell(body["ended"], body["code"])
        code = self.process.wait()
        self._greeted.set()  # no thread need wait for it any more
        whose = f"the process that starts ranks (pid {self._pid})"
        self.end = self.end or f"{whose} {how_it_ended(code)}"
        with self._lock:
            self.alive = False
            orphans = list(self._watchers)
            for request in self._requests.values():
                request.put(None)
        for pid in orphans:  # should the fork server have been killed, its ranks must not stay
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 1.0
        for pid in orphans:
            while process_state(pid) not in "ZX" and time.monotonic() < deadline:
                time.sleep(0.002)
            self._tell(pid, -signal.SIGKILL)

    def _hand(self, body: dict[str, Any], fds: list[int]) -> None:
        """Hand the process to the caller that asked for it; where the caller was interrupted
        meanwhile, end it at once. One whose socket found no descriptor free here has ended.
        """
        process = None
        if fds:
            process = RankProcess(body["rank_process"], socket.socket(fileno=fds[0]), self.driver)
        with self._lock:
            # The number of an earlier process, whose end was not requested.
            self._ended.pop(body["rank_process"], None)
            request = self._requests.get(body["request"])
            if request is not None:
                request.put(process)
        if request is None and process is not None:
            process.hang_up()

    def _tell(self, pid: int, code: int) -> None:
        with self._lock:
            call = self._watchers.pop(pid, None)
            if call is None:
                self._ended[pid] = code
        if call is not None:
            call(pid, code)

    def close(self) -> None:
        """End the fork server and every rank; return when they are gone."""
        self.end = "wb.shutdown() ended the process that starts ranks"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._greeted.is_set():  # there is no rank yet; and the kernel ends it with
            self.process.kill()  # the guardian
        try:
            self.process.wait(guardian.LONGEST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self._socket.close()

    def must_be_ours(self, what: str) -> None:
        """Raise WorkbenchError in a fork of the driver, where nothing of ``what`` goes on."""
        must_own(self.driver, what)

    def forget(self) -> None:
        """Drop the pool in a fork of the driver: the socket and the processes are the parent's."""
        self.alive, self.end = False, "this process is a fork, and the pool is its parent's"
        self._socket.close()


def must_own(owner: int, what: str) -> None:
    """Raise WorkbenchError in a fork of process ``owner``, the driver that started ``what``."""
    if os.getpid() != owner:
        raise WorkbenchError(
            f"{what} was started by process {owner}, of which this one ({os.getpid()}) "
            "is a fork: wait for it there, or start one of your own here"
        )


_warm_pool: ForkServer | None = None
_warm_pool_lock = threading.Lock()


def warm_pool() -> ForkServer:
    """Return this driver's fork server, started on first use."""
    global _warm_pool
    with _warm_pool_lock:
        if threads.at_the_end():
            raise WorkbenchError(
                "this process is ending, and starts no ranks any more: wait for what goes on "
                "(run.wait()) before its last line"
            )
        if _warm_pool is None or not _warm_pool.alive:
            if _warm_pool is not None:
                _warm_pool.close()
            _warm_pool = ForkServer()
        return _warm_pool


def shutdown() -> None:
    """End all that goes on here: runs under every launcher, comparisons, studies, ranks that run
    cells, and the warm pool. When this returns, each is done and no process of ours is left.

    The next run starts new ones. Raises WorkbenchError, which names processes that do not end.
    """
    threads.stop_launching()
    try:
        live_runs.end_all("wb.shutdown() ended it")
    finally:
        threads.end_processes()


def _end_pool() -> None:
    global _warm_pool
    with _warm_pool_lock:
        ending, _warm_pool = _warm_pool, None
    if ending is not None:
        ending.close()


def _after_fork() -> None:
    """Leave the pool to the parent, in a fork of the driver."""
    global _warm_pool, _warm_pool_lock
    _warm_pool_lock = threading.Lock()  # the thread that held it is not in this process
    if _warm_pool is not None:
        _warm_pool.forget()
        _warm_pool = None


threads.ends.append(_end_pool)
os.register_at_fork(after_in_child=_after_fork)
