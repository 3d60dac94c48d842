"""Horovod's timeline (HOROVOD_TIMELINE): what rank 0 knows of every tensor.

    pid          a tensor, by its metadata's name
    B ... E      NEGOTIATE_ALLREDUCE: which is ready? X "3" within it: rank 3 is, from now on
    B ... E      ALLREDUCE: the operation, with activities within it: MEMCPY_IN_FUSION_BUFFER, ...

A rank's operation lasts here from when it was ready until rank 0's has ended. Ranks that Horovod
did not ask, because it had kept their answer, are missing.

https://horovod.readthedocs.io/en/stable/timeline_include.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.common.errors import WorkbenchError
from workbench.formats._recording import File, Recording, bytes_of

NAME = "Horovod timeline"
PRECISION = "operations only, by Horovod's rank 0; of others when they were ready"
_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ADASUM": "all_reduce",
    "ALLGATHER": "all_gather",
    "BROADCAST": "broadcast",
    "ALLTOALL": "all_to_all",
    "REDUCESCATTER": "reduce_scatter",
    "BARRIER": "barrier",
    "JOIN": "join",
}
_NEGOTIATE = "NEGOTIATE_"


def matches(file: File) -> bool:
    head = file.head.lstrip()
    return head.startswith(b"[") and b'"process_sort_index"' in head and b'"process_name"' in head


def read(files: Sequence[File]) -> Recording:
    if len(files) > 1:
        raise files[1].wrong("one Horovod timeline is a whole recording: open them one by one")
    result, tensors = Recording(NAME, PRECISION), dict[int, _Tensor]()
    for event in _events(files[0]):
        tensor = tensors.setdefault(int(event.get("pid", 0)), _Tensor())
        tensor.hear(event)
    calls = sorted((call for one in tensors.values() for call in one.calls), key=lambda c: c.start)
    for number, call in enumerate(calls):
        _add(result, number, call)
    return result


def _events(file: File) -> list[Mapping[str, Any]]:
    """Return the events; a timeline whose job was killed may lack its end."""
    data = file.data()
    try:
        events = file.parsed(data)
    except WorkbenchError:
        events = file.parsed(data[: data.rfind(b"}") + 1] + b"]")
    if not isinstance(events, list) or not all(isinstance(one, dict) for one in events):
        raise file.wrong("expected a list of events")
    return events


class _Call:
    """One operation on one tensor."""

    def __init__(self, tensor: str, operation: str, start: int) -> None:
        self.tensor, self.operation, self.start = tensor, operation, start
        self.begun = self.end = start
        self.ready: dict[int, int] = {}
        self.activities: list[tuple[str, int, int]] = []
        self.nbytes = -1


class _Tensor:
    """The events of one tensor, in the order of the file."""

    def __init__(self) -> None:
        self.name, self.calls = "", list[_Call]()
        self._negotiation: _Call | None = None
        self._open: list[tuple[str, int]] = []

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take in the tensor's next event."""
        phase, name = event.get("ph"), str(event.get("name", ""))
        if phase == "M":
            if name == "process_name":
                self.name = str((event.get("args") or {}).get("name", ""))
            return
        if phase not in ("B", "E", "X"):
            return
        moment = int(event["ts"]) * 1000
        if phase == "X" and name.isdigit() and self._negotiation is not None:
            self._negotiation.ready.setdefault(int(name), moment)
        elif phase == "B":
            self._begin(name, moment)
        elif phase == "E" and self._open:
            self._end(moment, event.get("args") or {})

    def _begin(self, name: str, moment: int) -> None:
        if name.startswith(_NEGOTIATE):
            operation = _OPERATIONS.get(name.removeprefix(_NEGOTIATE), name.lower())
            self._negotiation = _Call(self.name, operation, moment)
        elif not self._open:
            operation = _OPERATIONS.get(name, name.lower())
            call = self._negotiation or _Call(self.name, operation, moment)
            call.begun, self._negotiation = moment, None
            self.calls.append(call)
        self._open.append((name, moment))

    def _end(self, moment: int, args: Mapping[str, Any]) -> None:
        name, start = self._open.pop()
        if name.startswith(_NEGOTIATE) or not self.calls:
            return
        call = self.calls[-1]
        if self._open:
            call.activities.append((name, start, moment))
            return
        call.end = moment
        shape = [int(n) for n in re.findall(r"\d+", str(args.get("shape", "")))]
        if "dtype" in args:
            call.nbytes = bytes_of([shape or [1]], str(args["dtype"]))


def _add(result: Recording, number: int, call: _Call) -> None:
    more = {"collective": call.operation, "op": number, "group": "default", "algorithm": "horovod"}
    ready = call.ready or {0: call.start}
    for rank, moment in ready.items():
        start = min(moment, call.end)
        result.add(
            rank,
            "comm",
            "collective",
            start,
            call.end,
            nbytes=call.nbytes,
            name=call.tensor,
            **more,
        )
        if start < call.begun:  # until all were
            result.add(rank, "comm", "wait", start, min(call.begun, call.end), **more)
    for name, start, end in call.activities if 0 in ready else []:
        kind = "copy" if "MEMCPY" in name else "wait" if "WAIT" in name or name == "QUEUE" else ""
        start = max(start, ready[0], call.begun)
        if kind and start <= end <= call.end:
            result.add(0, "comm", kind, start, end, name=name.lower(), value=math.nan, **more)
