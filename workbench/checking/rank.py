"""What a rank of a check does: take a case, call the user's function, say what came of it.

A second thread listens to the driver, so that "where do you stand?" is answered while the function
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

from workbench import wire
from workbench.additions import Additions
from workbench.arrays import kind_of
from workbench.checking.cases import RENDEZVOUS, Case, given, pairs, room
from workbench.checking.noting import Capped, Guarded, Lines, Noting
from workbench.control import Control
from workbench.events import NOWHERE, Recorder, now
from workbench.members import Members
from workbench.parts import whole_of
from workbench.shared import Segment
from workbench.signature import signature
from workbench.source import Source, load, split_path
from workbench.transports.bell import Bells
from workbench.transports.mailbox import SLOTS

FOR_EVER = timedelta(hours=1)  # the driver has the deadlines


def main(body: dict[str, Any], fds: list[int], driver: socket.socket) -> int:
    """Serve the driver until it closes its end. Returns the process's exit code."""
    rank, n = body["rank"], body["ranks"]
    out = sys.stdout = sys.stderr = Capped()
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), n)
    recorder = Recorder.into_segment(Segment(fds[1], os.fstat(fds[1]).st_size), rank)
    os.chdir(body["folder"])
    torch.set_num_threads(1)
    ears = _Ears(driver)
    try:
        value: str | Source = Source(**body["function"]) if body["travels"] else body["function"]
        function = load("collectives", value, body["operation"], f"{body['operation']}_")
        store = TCPStore(
            "127.0.0.1", body["port"], n, is_master=False, timeout=timedelta(seconds=30)
        )
        members = Members(
            PrefixStore("check", store), rank, None, n, timeout=FOR_EVER,
            slot_bytes=body["slot_bytes"], recorder=recorder, control=control, bells=Bells.create(),
        )  # fmt: skip
        bench = _Bench(Noting(members, "comm", "default", control=control), function, value)
    except BaseException as error:
        ears.say({"broken": "".join(traceback.format_exception(error))})
        return 1
    ears.bench = bench
    ears.say({"ready": rank})
    while (asked := ears.heard.get()) is not None:
        if "case" in asked:
            report, result = bench.run(Case(**asked["case"]), body["name"])
            kept, characters = out.take()
            ears.say({**report, "output": kept, "characters": characters}, result)
        elif "settle" in asked:
            ears.say({"settled": rank, "left": bench.left()})
    return 0


class _Ears(threading.Thread):
    """Reads what the driver says; answers at once where the function stands."""

    bench: _Bench | None = None

    def __init__(self, driver: socket.socket) -> None:
        super().__init__(daemon=True, name="workbench check")
        self._driver, self._speaking = driver, threading.Lock()
        self.heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.start()

    def say(self, message: dict[str, Any], payload: bytes = b"") -> None:
        with self._speaking:
            wire.send(self._driver, message, payload)

    def run(self) -> None:
        try:
            while (message := wire.receive(self._driver)) is not None:
                if "where" in message[0] and self.bench is not None:
                    self.say({"here": message[0]["where"], **self.bench.standing()})
                else:
                    self.heard.put(message[0])
        except OSError:
            pass
        self.heard.put(None)


class _Bench:
    """The user's function, and what it is run with."""

    def __init__(self, comm: Noting, function: Any, value: str | Source) -> None:
        self.comm, self.function = comm, function
        self.own = isinstance(value, Source) or split_path(value) is not None
        # How many arguments it takes: whether it is told how to combine.
        self.takes = len(inspect.signature(function).parameters)
        self.file = inspect.getsourcefile(inspect.unwrap(function)) or ""
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            self.file = code.co_filename
        self.lines = comm.lines = Lines(lambda file: file == self.file)
        self.thread, self._op = threading.get_ident(), 0

    def run(self, case: Case, name: str) -> tuple[dict[str, Any], bytes]:
        """The report of one case, and the bytes of what the function left."""
        comm, me = self.comm, self.comm.rank
        comm.rendezvous = case.mode == RENDEZVOUS
        comm.fresh()
        x, into = _buffers(case, me)
        guards = [one for one in (x, into) if one is not None]
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
                    time.sleep((me * 7 + self._op) % case.ranks * 1e-3)  # they come one by one
                report["entered"] = now()
                arguments = self._arguments(case, x, into)
                with self._additions(case, x):
                    returned = self.function(comm, *arguments)
        except BaseException as error:
            report["raised"] = _told(error, self.file)
        report["left"] = now()
        itemsize = dtype.itemsize
        if "raised" not in report:
            alike = itemsize if not case.uneven else float("nan")  # no law says what each must send
            comm.end(start, case.whole * itemsize, itemsize=alike, peer=case.root)
        if self.lines.broken is not None:
            report["outside"] = self.lines.broken
        report["changed"] = [guard.name for guard in guards if guard.changed()]
        result = (into or x) if _matters(case, me) else None
        array = result.array if result is not None else np.zeros(0, case.dtype)
        if returned is not None and result is not None:
            what = kind_of(returned)
            if what == kind_of(result.tensor):
                array = torch.as_tensor(returned).detach().contiguous().numpy()
            else:
                report["shape"] = [what, self.lines.line]
        return report, np.ascontiguousarray(array).tobytes()

    def _additions(self, case: Case, x: Guarded | None) -> AbstractContextManager[Any]:
        """Whoever adds with torch is looked on at, as in training."""
        looks = self.own and case.operation == "all_reduce" and x is not None
        return Additions(self.comm, x.tensor) if looks and x is not None else nullcontext()

    def _arguments(self, case: Case, x: Guarded | None, into: Guarded | None) -> list[Any]:
        def of(one: Guarded | None) -> Any:  # ours take arrays where numpy has the dtype
            if one is None:
                return None
            return one.tensor if self.own or case.dtype == "float16" else one.array

        sent = pairs(case) if case.operation == "all_to_all" else np.zeros((1, 1), np.int64)
        me = self.comm.rank
        arguments = {
            "all_reduce": [of(x)],
            "broadcast": [of(x), case.root],
            "reduce": [of(x), case.root],
            "gather": [of(x), of(into), case.root],
            "scatter": [of(x), of(into), case.root],
            "all_to_all": [of(x), of(into), sent[me % len(sent)].tolist(),
                           sent[:, me % len(sent)].tolist()],
            "barrier": [],
        }.get(case.operation, [of(x), of(into)])  # fmt: skip
        if case.adds and self.takes > 1 + len(arguments):
            arguments.append(case.reduce)
        return arguments

    def left(self) -> list[list[int]]:
        """Receiver, line and slots of what was sent and that nobody has taken."""
        found = []
        for to, lines in sorted(self.comm.sent_from.items()):
            box = self.comm.members.outbox(to)
            free = box.free._get_value()
            if missing := SLOTS - free:
                found.append([to, lines[-missing] if missing <= len(lines) else -1, missing])
        return found

    def standing(self) -> dict[str, Any]:
        """Where this rank's function is now, and what it waits for if it does."""
        line, function = self.lines.standing(self.thread)
        found: dict[str, Any] = {"line": line, "function": function, "doing": self.comm.doing}
        newest = self.comm.members.watch.newest
        wait = newest() if newest is not None else None
        if wait is not None and now() - wait.looked < 400_000_000 and self.comm.doing:
            found["wait"] = [wait.since, wait.looked, wait.peer]
        return found


def _buffers(case: Case, me: int) -> tuple[Guarded | None, Guarded | None]:
    values, n = given(case, me), room(case, me)
    x = into = None
    in_place = case.operation in ("all_reduce", "broadcast", "reduce")
    if values is not None:
        if case.operation == "broadcast" and me != case.root:
            values = np.zeros_like(values)
        keeps = not in_place or (case.operation == "reduce" and me != case.root)
        x = Guarded("x", values, may_change=not keeps)
    if n is not None:
        into = Guarded("into", np.zeros(n, case.dtype))
    return x, into


def _matters(case: Case, me: int) -> bool:
    if case.operation in ("reduce", "gather"):
        return me == case.root
    return case.operation != "barrier"


def _told(error: BaseException, file: str) -> dict[str, Any]:
    """An error with the user's own line, the innermost one of it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    return {
        "kind": type(error).__name__,
        "text": str(error)[:2000],
        "line": own[-1].lineno if own else -1,
        "function": own[-1].name if own else "",
    }
