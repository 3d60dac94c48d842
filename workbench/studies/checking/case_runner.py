"""The ranks' side of a check: take a case, call the user's function, report the outcome.

A second thread listens to the driver, so that the rank can report its position while the function
waits or loops.
"""

from __future__ import annotations

import inspect
import os
import queue
import socket
import sys
import threading
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from workbench.common import ipc
from workbench.messaging.chunk_index import whole_of
from workbench.messaging.fingerprint import signature
from workbench.messaging.members import Members
from workbench.messaging.reduction_tracer import Additions
from workbench.recording.events import NOWHERE, now
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment
from workbench.studies.checking.cases import (
    RENDEZVOUS,
    Case,
    output_length,
    pair_lengths,
    rank_input,
)
from workbench.studies.checking.tracing import (
    GuardedTensor,
    LineTracer,
    OutputBuffer,
    TracingCommunicator,
)
from workbench.transports.arrays import kind_of
from workbench.transports.doorbell import Bells
from workbench.transports.mailbox import SLOTS
from workbench.user_code.source import Source, load, split_path

FOREVER = timedelta(hours=1)  # the driver enforces the deadlines


def main(body: dict[str, Any], fds: list[int], driver: socket.socket) -> int:
    """Run cases until the driver closes its end of the socket; return the process's exit code."""
    rank, n = body["rank"], body["ranks"]
    out = sys.stdout = sys.stderr = OutputBuffer()
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), n)
    recorder = Recorder.into_segment(Segment(fds[1], os.fstat(fds[1]).st_size), rank)
    os.chdir(body["folder"])
    torch.set_num_threads(1)
    link = _DriverLink(driver)
    try:
        value: str | Source = Source(**body["function"]) if body["travels"] else body["function"]
        function = load("collectives", value, body["operation"], f"{body['operation']}_")
        store = TCPStore(
            "127.0.0.1", body["port"], n, is_master=False, timeout=timedelta(seconds=30)
        )
        members = Members(
            PrefixStore("check", store),
            rank,
            None,
            n,
            timeout=FOREVER,
            slot_bytes=body["slot_bytes"],
            recorder=recorder,
            control=control,
            bells=Bells.create(),
        )
        bench = _CaseRunner(
            TracingCommunicator(members, "comm", "default", control=control), function, value
        )
    except BaseException as error:
        link.say({"broken": "".join(traceback.format_exception(error))})
        return 1
    link.bench = bench
    link.say({"ready": rank})
    while (message := link.heard.get()) is not None:
        if "case" in message:
            report, result = bench.run(Case(**message["case"]), body["name"])
            kept, characters = out.take()
            link.say({**report, "output": kept, "characters": characters}, result)
        elif "settle" in message:
            link.say({"settled": rank, "left": bench.left()})
    return 0


class _DriverLink(threading.Thread):
    """Reads the driver's messages; answers a question for the rank's position at once."""

    bench: _CaseRunner | None = None

    def __init__(self, driver: socket.socket) -> None:
        super().__init__(daemon=True, name="workbench check")
        self._driver, self._speaking = driver, threading.Lock()
        self.heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.start()

    def say(self, message: dict[str, Any], payload: bytes = b"") -> None:
        with self._speaking:
            ipc.send(self._driver, message, payload)

    def run(self) -> None:
        try:
            while (message := ipc.receive(self._driver)) is not None:
                if "where" in message[0] and self.bench is not None:
                    self.say({"here": message[0]["where"], **self.bench.standing()})
                else:
                    self.heard.put(message[0])
        except OSError:
            pass
        self.heard.put(None)


class _CaseRunner:
    """The user's function, and the communicator and tracer that it runs with."""

    def __init__(self, comm: TracingCommunicator, function: Any, value: str | Source) -> None:
        self.comm, self.function = comm, function
        self.own = isinstance(value, Source) or split_path(value) is not None
        # The number of its arguments decides whether it gets ``reduce``.
        self.takes = len(inspect.signature(function).parameters)
        self.file = inspect.getsourcefile(inspect.unwrap(function)) or ""
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            self.file = code.co_filename
        self.lines = comm.lines = LineTracer(lambda file: file == self.file)
        self.thread, self._op = threading.get_ident(), 0

    def run(self, case: Case, name: str) -> tuple[dict[str, Any], bytes]:
        """Run one case; return the report, and the bytes of the function's result."""
        comm, me = self.comm, self.comm.rank
        comm.rendezvous = case.mode == RENDEZVOUS
        comm.fresh()
        x, into = _buffers(case, me)
        guards = [tensor for tensor in (x, into) if tensor is not None]
        dtype = getattr(torch, case.dtype)
        number = signature(case.operation, dtype, case.elements, case.reduce)
        comm.begin(case.operation, name, self._op, number, NOWHERE, (case.whole,), case.dtype)
        self._op += 1
        if self.own and x is not None:
            comm.whole = whole_of((into or x).tensor if case.operation != "scatter" else x.tensor)
        report: dict[str, Any] = {"done": self._op - 1}
        start, returned = now(), None
        try:
            with self.lines.followed(lambda: next(filter(None, (g.broken() for g in guards)), "")):
                if case.operation == "barrier":
                    time.sleep((me * 7 + self._op) % case.ranks * 1e-3)  # ranks enter one by one
                report["entered"] = now()
                arguments = self._arguments(case, x, into)
                with self._additions(case, x):
                    returned = self.function(comm, *arguments)
        except BaseException as error:
            report["raised"] = _error_report(error, self.file)
        report["left"] = now()
        itemsize = dtype.itemsize
        if "raised" not in report:
            # Where sizes are uneven, no law gives the bytes that each rank must send.
            symmetric_size = itemsize if not case.uneven else float("nan")
            comm.end(start, case.whole * itemsize, itemsize=symmetric_size, peer=case.root)
        if self.lines.broken is not None:
            report["outside"] = self.lines.broken
        report["changed"] = [guard.name for guard in guards if guard.changed()]
        result = (into or x) if _matters(case, me) else None
        array = result.array if result is not None else np.zeros(0, case.dtype)
        if returned is not None and result is not None:
            kind = kind_of(returned)
            if kind == kind_of(result.tensor):
                array = torch.as_tensor(returned).detach().contiguous().numpy()
            else:
                report["shape"] = [kind, self.lines.line]
        return report, np.ascontiguousarray(array).tobytes()

    def _additions(self, case: Case, x: GuardedTensor | None) -> AbstractContextManager[Any]:
        """Trace additions that the user's own code makes with torch, as in training."""
        looks = self.own and case.operation == "all_reduce" and x is not None
        return Additions(self.comm, x.tensor) if looks and x is not None else nullcontext()

    def _arguments(
        self, case: Case, x: GuardedTensor | None, into: GuardedTensor | None
    ) -> list[Any]:
        def of(guard: GuardedTensor | None) -> Any:  # built-in algorithms take numpy arrays
            if guard is None:
                return None
            return guard.tensor if self.own or case.dtype == "float16" else guard.array

        sent = pair_lengths(case) if case.operation == "all_to_all" else np.zeros((1, 1), np.int64)
        me = self.comm.rank
        arguments = {
            "all_reduce": [of(x)],
            "broadcast": [of(x), case.root],
            "reduce": [of(x), case.root],
            "gather": [of(x), of(into), case.root],
            "scatter": [of(x), of(into), case.root],
            "all_to_all": [
                of(x),
                of(into),
                sent[me % len(sent)].tolist(),
                sent[:, me % len(sent)].tolist(),
            ],
            "barrier": [],
        }.get(case.operation, [of(x), of(into)])
        if case.adds and self.takes > 1 + len(arguments):
            arguments.append(case.reduce)
        return arguments

    def left(self) -> list[list[int]]:
        """Return receiver, line and slots of each message that was never received."""
        unreceived = []
        for to, lines in sorted(self.comm.sent_from.items()):
            box = self.comm.members.outbox(to)
            free = box.free._get_value()
            if missing := SLOTS - free:
                unreceived.append([to, lines[-missing] if missing <= len(lines) else -1, missing])
        return unreceived

    def standing(self) -> dict[str, Any]:
        """Return the function's current position, and its current wait if there is one."""
        line, function = self.lines.standing(self.thread)
        position: dict[str, Any] = {"line": line, "function": function, "doing": self.comm.doing}
        newest = self.comm.members.watch.newest
        wait = newest() if newest is not None else None
        if wait is not None and now() - wait.looked < 400_000_000 and self.comm.doing:
            position["wait"] = [wait.since, wait.looked, wait.peer]
        return position


def _buffers(case: Case, me: int) -> tuple[GuardedTensor | None, GuardedTensor | None]:
    values, n = rank_input(case, me), output_length(case, me)
    x = into = None
    in_place = case.operation in ("all_reduce", "broadcast", "reduce")
    if values is not None:
        if case.operation == "broadcast" and me != case.root:
            values = np.zeros_like(values)
        keeps = not in_place or (case.operation == "reduce" and me != case.root)
        x = GuardedTensor("x", values, may_change=not keeps)
    if n is not None:
        into = GuardedTensor("into", np.zeros(n, case.dtype))
    return x, into


def _matters(case: Case, me: int) -> bool:
    if case.operation in ("reduce", "gather"):
        return me == case.root
    return case.operation != "barrier"


def _error_report(error: BaseException, file: str) -> dict[str, Any]:
    """Return an error's type, text and origin, with the innermost of the user's own lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if frame.filename == file]
    return {
        "kind": type(error).__name__,
        "text": str(error)[:2000],
        "how": getattr(error, "how", ""),
        "found_by": getattr(error, "found_by", -1),
        "line": own_frames[-1].lineno if own_frames else -1,
        "function": own_frames[-1].name if own_frames else "",
    }
