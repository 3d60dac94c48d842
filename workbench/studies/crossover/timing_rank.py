"""A rank that times algorithms: it runs the cases that its driver asks for, in order.

A case is a burst of calls, one right after the other, with a new root each; before it all ranks
meet. The rank reports the seconds per call, by round.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from workbench.choosing.predict import function_of
from workbench.collectives import users_own
from workbench.common import ipc
from workbench.messaging.communicator import Communicator
from workbench.messaging.fingerprint import signature
from workbench.messaging.members import Members
from workbench.messaging.progress_engine import ProgressEngine
from workbench.recording.events import NOWHERE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment
from workbench.theory.walk import ROOTED, arguments
from workbench.user_code.source import Source

TIMEOUT = timedelta(seconds=30)


def main(body: dict[str, Any], fds: list[int], driver: socket.socket) -> int:
    """Follow the orders of ``timing_pool.TimingPool`` until the driver ends them."""
    rank, size = body["rank"], body["size"]
    torch.set_num_threads(1)
    if body.get("core") is not None:
        os.sched_setaffinity(0, {body["core"]})
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), size)
    store = TCPStore("127.0.0.1", body["port"], size, is_master=False, timeout=TIMEOUT)
    members = Members(
        PrefixStore("timing", store),
        rank,
        None,
        size,
        timeout=TIMEOUT,
        slot_bytes=body["slot_bytes"],
        recorder=Recorder.off(rank),
        control=control,
        bells=ProgressEngine().bells,
    )
    timing = _Timing(Communicator(members, "comm", "timing", control=control))
    try:
        while (order := ipc.receive(driver)) is not None:
            try:
                ipc.send(driver, {"seconds": timing.case(**order[0])})
            except Exception as error:
                text = "".join(traceback.format_exception(error))
                ipc.send(driver, {"failed": text, "words": f"{type(error).__name__}: {error}"})
                return 1
    except OSError:
        return 0  # the driver is gone
    members.close()
    return 0


class _Timing:
    def __init__(self, comm: Communicator) -> None:
        self.comm, self.op = comm, 0
        self._own: dict[str, Callable[..., Any]] = {}
        self._kept: tuple[tuple[str, int], list[Sequence[Any]]] = (("", -1), [])
        self._met: set[tuple[str, str]] = set()  # algorithms that were called with these tensors

    def case(
        self,
        operation: str,
        algorithm: str,
        nbytes: int,
        calls: int,
        rounds: int,
        source: dict[str, str] | None = None,
        levels: Sequence[int] = (),
    ) -> list[float]:
        """Return the seconds per call, by round. New tensors get a warm-up round, which does not
        count.
        """
        if operation == "sleep":
            return [_overslept() for _ in range(rounds)]
        function, self.comm.levels = self._function(operation, algorithm, source), tuple(levels)
        inputs, fresh = self._tensors(operation, nbytes)
        fresh = fresh or (operation, algorithm) not in self._met
        self._met.add((operation, algorithm))
        result = []
        for _ in range(rounds + fresh):
            self._meet()
            start = time.perf_counter()
            for call in range(calls):
                self._call(operation, algorithm, function, inputs[call % len(inputs)], nbytes)
            result.append((time.perf_counter() - start) / calls)
        return result[fresh:]

    def _tensors(self, operation: str, nbytes: int) -> tuple[list[Sequence[Any]], bool]:
        """Return an algorithm's arguments by root, and whether they are new."""
        fresh = self._kept[0] != (operation, nbytes)
        if fresh:
            self._met.clear()
            rank, size = self.comm.rank, self.comm.size
            roots = range(size) if operation in ROOTED else (0,)
            inputs = [arguments(operation, rank, size, nbytes // 4, root) for root in roots]
            self._kept = (operation, nbytes), inputs
        return self._kept[1], fresh

    def _function(
        self, operation: str, algorithm: str, source: dict[str, str] | None
    ) -> Callable[..., Any]:
        if source is None:
            return function_of(operation, algorithm)
        if source["code"] not in self._own:
            self._own[source["code"]] = users_own(Source(**source).load())
        return self._own[source["code"]]

    def _call(
        self, operation: str, algorithm: str, function: Callable[..., Any], inputs: Any, nbytes: int
    ) -> None:
        self.op += 1
        number = signature(operation, torch.float32, nbytes // 4)
        self.comm.begin(operation, algorithm, self.op, number, NOWHERE)
        function(self.comm, *inputs)

    def _meet(self) -> None:
        """Wait until all ranks have come; return at about the same time on each."""
        one = np.zeros(1, np.float32)
        self._call("all_reduce", "one_shot", function_of("all_reduce", "one_shot"), (one,), 4)
        time.sleep(1e-3)  # the rank that was woken last is awake too


def _overslept() -> float:
    """Return by how much a sleep of one millisecond is late."""
    start = time.perf_counter()
    time.sleep(1e-3)
    return time.perf_counter() - start - 1e-3
