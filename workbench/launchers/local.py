"""Ranks on this machine, forked from one warm nursery that belongs to this driver.

The driver (a notebook's kernel, a script) is never forked itself. The nursery starts with the first
run and stays for the next; ``shutdown()`` or the driver's end, however it ends, takes all along.
"""

from __future__ import annotations

import atexit
import contextlib
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

from workbench import wire
from workbench.errors import WorkbenchError
from workbench.shared import how_it_ended, process_state

START_DEADLINE = 60.0  # seconds for the nursery to import torch, on a cold and busy machine


@dataclass
class RankProcess:
    """A process that waits for its orders, or follows them."""

    pid: int
    socket: socket.socket


class Nursery:
    """The driver's end of the nursery process."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path.insert(0, {root!r}); "
            f"from workbench.launchers.nursery import main; main({theirs.fileno()})"
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
        self.alive = True
        self.end = ""  # how the nursery ended, in words
        threading.Thread(target=self._listen, daemon=True, name="workbench nursery").start()

    def take(self, count: int) -> list[RankProcess]:
        """So many fresh rank processes. Raises WorkbenchError if the nursery cannot give them."""
        number, handed = next(self._numbers), queue.Queue[RankProcess | None]()
        try:
            with self._lock:
                self._requests[number] = handed
            return self._taken(number, handed, count)
        finally:
            with self._lock:
                self._requests.pop(number, None)
            while not handed.empty():  # given up: their processes end
                if (left := handed.get()) is not None:
                    left.socket.close()

    def _taken(
        self, number: int, handed: queue.Queue[RankProcess | None], count: int
    ) -> list[RankProcess]:
        try:
            wire.send(self._socket, {"take": count, "request": number})
        except OSError as error:
            raise WorkbenchError(
                f"the process that starts ranks is gone ({error}); wb.shutdown() and try again"
            ) from error
        if not self.alive:  # since before the request: nobody would answer it
            handed.put(None)
        taken: list[RankProcess] = []
        try:
            while len(taken) < count:
                given = handed.get(timeout=START_DEADLINE)
                if given is None:
                    raise WorkbenchError(
                        f"{self.end} when it had given {len(taken)} of {count} ranks"
                    )
                taken.append(given)
        except BaseException as error:
            for one in taken:
                one.socket.close()  # its process ends
            if isinstance(error, queue.Empty):
                raise WorkbenchError(
                    f"the process that starts ranks (pid {self.process.pid}) gave {len(taken)} of "
                    f"{count} within {START_DEADLINE:.0f} s: is this machine overloaded?"
                ) from None
            raise
        return taken

    def keep(self, count: int) -> None:
        """Have so many ready for the next run."""
        with contextlib.suppress(OSError):
            wire.send(self._socket, {"keep": count})

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
                message = wire.receive(self._socket)
            except OSError:
                message = None
            if message is None:
                break
            body, _, fds = message
            if "rank_process" in body:
                self._hand(RankProcess(body["rank_process"], socket.socket(fileno=fds[0])), body)
            elif "ended" in body:
                self._tell(body["ended"], body["code"])
        code = self.process.wait()
        whose = f"the process that starts ranks (pid {self.process.pid})"
        self.end = self.end or f"{whose} {how_it_ended(code)}"
        with self._lock:
            self.alive = False
            orphans = list(self._watchers)
            for request in self._requests.values():
                request.put(None)
        for pid in orphans:  # should the nursery have been killed, its ranks must not stay
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 1.0
        for pid in orphans:
            while process_state(pid) not in "ZX" and time.monotonic() < deadline:
                time.sleep(0.002)
            self._tell(pid, -signal.SIGKILL)

    def _hand(self, given: RankProcess, body: dict[str, Any]) -> None:
        """To who asked for it; one whose caller was interrupted meanwhile ends at once."""
        with self._lock:
            # A number that one of before had, whose end nobody asked for.
            self._ended.pop(given.pid, None)
            request = self._requests.get(body["request"])
            if request is not None:
                request.put(given)
        if request is None:
            given.socket.close()

    def _tell(self, pid: int, code: int) -> None:
        with self._lock:
            call = self._watchers.pop(pid, None)
            if call is None:
                self._ended[pid] = code
        if call is not None:
            call(pid, code)

    def close(self) -> None:
        """End the nursery and every rank; returns when they are gone."""
        self.end = "wb.shutdown() ended the process that starts ranks"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self._socket.close()


def meeting_place(ranks: int) -> Any:
    """A store of the driver's, at which so many ranks form their groups; its ``port`` is free."""
    from torch._C._distributed_c10d import TCPStore

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(ranks + 8)
    return TCPStore(
        "127.0.0.1",
        listener.getsockname()[1],
        None,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


_nursery: Nursery | None = None
_nursery_lock = threading.Lock()


def nursery() -> Nursery:
    """This driver's nursery, started on first use."""
    global _nursery
    with _nursery_lock:
        if _nursery is None or not _nursery.alive:
            if _nursery is not None:
                _nursery.close()
            _nursery = Nursery()
            atexit.register(shutdown)
        return _nursery


def shutdown() -> None:
    """End the warm pool: no process of ours is left when this returns. The next run starts anew."""
    global _nursery
    with _nursery_lock:
        ending, _nursery = _nursery, None
    if ending is not None:
        atexit.unregister(shutdown)
        ending.close()
