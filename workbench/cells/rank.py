"""A rank that runs cells: one after the other in its main thread, with what earlier ones left.

A thread hears the driver meanwhile: it says where the cell is, also while that waits. An interrupt
(SIGINT) reaches a cell only; between cells it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import types
from datetime import timedelta
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from workbench.cells import running
from workbench.cells.output import Printer
from workbench.common import ipc
from workbench.process_group import live_groups
from workbench.process_group.session import Session, use
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import STATE, TRAINING, Control
from workbench.shared_memory.segments import Segment

_METRIC = CODE["metric"]


def main(body: dict[str, Any], fds: list[int], driver: socket.socket) -> int:
    """Follow the driver's orders until it asks for the end, or is gone."""
    Rank(body, fds, driver).work()
    return 0


class Rank:
    """``body``: rank, size, port of the driver's store, threads, bare, timeout in seconds.

    ``fds``: control block, trace, pipes for output and for errors.
    """

    def __init__(self, body: dict[str, Any], fds: list[int], driver: socket.socket) -> None:
        self.rank, self.size, self.bare = body["rank"], body["size"], body["bare"]
        self._body, self._driver = body, driver
        self._telling = threading.Lock()
        self._orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._in_a_cell = False
        self._thread, self._pid = threading.get_ident(), os.getpid()
        signal.signal(signal.SIGINT, self._interrupted)
        self._control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), self.size)
        segment = Segment(fds[1], os.fstat(fds[1]).st_size)
        self._recorder = Recorder.into_segment(segment, self.rank)
        self._printers = [Printer(fd) for fd in fds[2:4]]
        for fd, number in zip(fds[2:4], (1, 2), strict=True):
            os.dup2(fd, number)  # what is not written by Python, too
        sys.stdout, sys.stderr = self._printers
        self.names = self._namespace()

    def work(self) -> None:
        threading.Thread(target=self._listen, daemon=True, name="workbench cells").start()
        answers = {"run": self._run, "group": self._regroup}
        while (order := self._orders.get()) is not None:
            answer = answers[order["do"]](order)
            for printer in self._printers:
                printer.flush()
            self._tell(answer)
        live_groups.close_all()

    def _listen(self) -> None:
        """Read the driver's messages, and answer urgent ones at once."""
        while True:
            try:
                message = ipc.receive(self._driver)
            except OSError:
                message = None
            if message is None or message[0]["do"] == "end":
                return self._orders.put(None)
            if message[0]["do"] == "where":
                self._tell({"at": running.place(self._thread)})
            else:
                self._orders.put(message[0])

    def _tell(self, answer: dict[str, Any]) -> None:
        with self._telling, contextlib.suppress(OSError):
            ipc.send(self._driver, answer)

    def _interrupted(self, *_: object) -> None:
        if self._in_a_cell:
            raise KeyboardInterrupt

    # -- a cell --

    def _namespace(self) -> dict[str, Any]:
        """Return the cell's variables: those of ``__main__``, where pickle and inspect look."""
        module = types.ModuleType("__main__")
        module.__dict__.update(
            rank=self.rank, world_size=self.size, torch=torch, dist=dist, __builtins__=__builtins__
        )
        sys.modules["__main__"] = module
        sys.argv = [""]
        np.random.seed()  # a fork has its parent's numbers before it, as have all others
        torch.set_num_threads(self._body["threads"])
        return module.__dict__

    def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        for printer in self._printers:
            printer.begin()
        value, error = "", None
        # Pages tell messages cell by cell, and ranks that wait for one that none will send.
        self._recorder.mark(_METRIC, "cell", value=order["cell"])
        try:
            if os.getcwd() != order["folder"]:
                os.chdir(order["folder"])
            os.environ["MASTER_PORT"] = str(order["port"])
            self._in_a_cell = True
            try:
                value = running.run(order["code"], order["name"], self.names)
            finally:
                self._in_a_cell = False
                if os.getpid() != self._pid:
                    self._leave_fork()
        except BaseException as caught:  # SystemExit too: the process stays
            self._in_a_cell = False
            error = running.describe_error(caught)
        self._recorder.mark(_METRIC, "cell over", value=order["cell"])
        lost = [printer.lost for printer in self._printers]
        return {"ended": order["cell"], "value": value, "error": error, "lost": lost}

    def _leave_fork(self) -> NoReturn:
        """End a process that the cell has forked where the cell ends: it is not a rank."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, SystemExit):
            sys.stderr.write(running.describe_error(error)["text"] + "\n")
        for printer in self._printers:
            printer.flush()
        os._exit(0 if error is None else getattr(error, "code", 1) or 0)

    # -- its process group --

    def _regroup(self, order: dict[str, Any]) -> dict[str, Any]:
        """Leave all groups, and make the default group again, unless the user makes it."""
        try:
            self._leave_groups()
            self._session(order["generation"])
            if not self.bare:
                self._join(order["generation"])
            self._control.set_rank(self.rank, STATE, TRAINING)
        except Exception as error:
            return {"grouped": order["generation"], "error": running.describe_error(error)}
        return {"grouped": order["generation"], "error": None}

    def _leave_groups(self) -> None:
        live_groups.abort_all()
        if dist.is_initialized():
            with contextlib.suppress(Exception):  # half a group is none
                dist.destroy_process_group()
        for lane in list(self._recorder._lanes.values()):
            lane.idle()  # a wait that was interrupted is over

    def _session(self, generation: int) -> None:
        """Start a new session, without calls that an interrupt left unfinished."""
        use(Session(self._recorder, control=self._control, generation=generation))
        os.environ |= {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.size),
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the driver keeps it
        }

    def _join(self, generation: int) -> None:
        store = TCPStore(
            "127.0.0.1",
            self._body["port"],
            self.size,
            is_master=False,
            timeout=timedelta(seconds=30),
        )
        dist.init_process_group(
            "workbench",
            store=PrefixStore(f"generation {generation}", store),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=self._body["timeout_s"]),
        )
