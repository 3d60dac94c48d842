"""torch.profiler's traces (``export_chrome_trace``, ``tensorboard_trace_handler``), one a rank.

    gloo:all_reduce, nccl:... (CPU)     an operation, from when a thread of the backend takes it up
    ncclDevKernel_... (GPU)             an operation as the GPU ran it, with its group; goes first
    DistributedDataParallel.forward     forward; the autograd engine's functions: backward
    Optimizer.step#..., DataLoader      optimizer, load; ProfilerStep#n counts iterations

Times are the host's wall clock, 1 µs or finer; those of several hosts are as far apart as their
clocks. https://github.com/pytorch/kineto
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.formats._recording import File, Recording, by_rank, bytes_of

NAME = "torch profiler"
PRECISION = "operations only, by torch's profiler"
_OPERATION = re.compile(r"(gloo|nccl|mpi|ucc|xccl|workbench):_?(\w+)")
_KERNEL = re.compile(r"ncclDevKernel_(?P<what>[A-Za-z]+?)_")
_NAMES = {
    "allreduce": "all_reduce",
    "all_gather_base": "all_gather",
    "allgather_base": "all_gather",
    "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_allv": "all_to_all",
    "sendrecv": "all_to_all",
}
_BACKWARD = "autograd::engine::evaluate_function"
_FORWARD = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward", "FSDP::forward")


def operation_name(name: str) -> str:
    """Return our name of an operation that torch calls ``name``."""
    plain = name.lower().strip("_")
    return _NAMES.get(plain, plain)


def matches(file: File) -> bool:
    return b'"traceEvents"' in file.head and (
        b'"schemaVersion"' in file.head or b'"baseTimeNanoseconds"' in file.head
    )


def read(files: Sequence[File]) -> Recording:
    result = Recording(NAME, PRECISION)
    texts = [(file, file.json()) for file in files]
    known = [(_rank(file, text), file) for file, text in texts]
    content = {id(file): text for file, text in texts}
    for rank, file in by_rank(known).items():
        text = content[id(file)]
        if size := int(_info(text).get("world_size", 0)):
            result.claim(size)
        _read_rank(result, rank, text)
    return result


def _info(text: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(text.get("distributedInfo") or {})


def _rank(file: File, text: Mapping[str, Any]) -> int:
    rank = _info(text).get("rank")
    return int(rank) if rank is not None else file.rank_in_name()


def _read_rank(result: Recording, rank: int, text: Mapping[str, Any]) -> None:
    base = int(text.get("baseTimeNanoseconds") or 0)
    events = [
        _Event(one, base) for one in text["traceEvents"] if one.get("ph") == "X" and "dur" in one
    ]
    events.sort(key=lambda event: event.start)
    boundaries = _boundaries(events)
    groups = {
        str(one.get("pg_name")): str(one.get("pg_desc") or one.get("pg_name"))
        for one in _info(text).get("pg_config") or []
    }
    size = int(_info(text).get("world_size", 0))
    kernels = [event for event in events if event.category == "kernel" and event.kernel]
    calls = kernels or [event for event in events if event.operation]
    _read_calls(result, rank, calls, events, boundaries, groups, size)
    for event in events:
        if kind := event.computing:
            result.add(
                rank,
                "compute",
                kind,
                event.start,
                event.end,
                iteration=_at(boundaries, event.start),
            )
    for start, end in _backwards(events):
        result.add(rank, "compute", "backward", start, end, iteration=_at(boundaries, start))


def _read_calls(
    result: Recording,
    rank: int,
    calls: Sequence[_Event],
    events: Sequence[_Event],
    boundaries: Sequence[int],
    groups: Mapping[str, str],
    size: int,
) -> None:
    """Add operations, numbered within their groups in the order of their calls."""
    numbers: dict[tuple[Any, ...], int] = {}
    messages: dict[Any, list[_Event]] = {}
    for event in events:
        if event.name in ("c10d::send", "c10d::recv_"):
            messages.setdefault(event.thread, []).append(event)
    for event in sorted(calls, key=lambda event: event.order):
        backend, operation = event.operation or ("nccl", event.kernel)
        named = str(event.args.get("Process Group Name", ""))
        group = groups.get(named, named)
        group = "default" if group in ("", "default_pg", "0") else group
        nbytes = event.nbytes
        more: dict[str, Any] = {"group": group, "nbytes": nbytes, "algorithm": backend}
        more["iteration"] = _at(boundaries, event.start)
        if operation in ("send", "recv"):
            peer, tag = event.peer(messages.get(event.thread, ()))
            key: tuple[Any, ...] = (group, operation, peer, tag)
            number = numbers[key] = numbers.get(key, -1) + 1
            more |= {"collective": "p2p", "peer": peer, "op": number, "step": 0, "slot": 0}
            result.add(rank, operation, operation, event.start, event.end, chunk=tag, **more)
            continue
        if operation == "all_gather" and nbytes > 0:
            more["nbytes"] = nbytes * max(int(event.args.get("Group size", size)), 1)
        key = (group,)
        number = numbers[key] = numbers.get(key, -1) + 1
        more |= {"collective": operation, "op": number}
        result.add(rank, "comm", "collective", event.start, event.end, **more)


class _Event:
    """One complete event of the trace. ``order`` counts calls, where the trace says so."""

    def __init__(self, event: Mapping[str, Any], base: int) -> None:
        self.name, self.category = str(event.get("name", "")), str(event.get("cat", ""))
        # Microseconds with decimals: a float would lose the last of them.
        self.start = base + round(float(event["ts"]) * 1000)
        self.end = self.start + max(round(float(event["dur"]) * 1000), 0)
        self.args: Mapping[str, Any] = event.get("args") or {}
        self.thread = event.get("tid")
        self.order = (int(self.args.get("Record function id", 0) or 0), self.start)

    @property
    def operation(self) -> tuple[str, str] | None:
        """The backend and the operation that its name says."""
        match = _OPERATION.match(self.name)
        usable = self.category in ("user_annotation", "cpu_op")
        return (match[1], operation_name(match[2])) if match and usable else None

    @property
    def kernel(self) -> str:
        """The operation whose kernel on a GPU it is; "" if it is none."""
        name = str(self.args.get("Collective name", ""))
        match = _KERNEL.match(self.name)
        return operation_name(name or (match["what"] if match else "")) if match else ""

    @property
    def nbytes(self) -> int:
        if "In msg nelems" in self.args:
            elements = int(self.args["In msg nelems"])
            return bytes_of([[elements]], str(self.args.get("dtype", "")))
        return bytes_of(self.args.get("Input Dims"), self.args.get("Input type"))

    @property
    def computing(self) -> str:
        """The kind of computing that it is, as the table calls it; "" if it is none."""
        if self.category not in ("user_annotation", "cpu_op"):
            return ""
        if self.name in _FORWARD:
            return "forward"
        if self.name.startswith("Optimizer.step#"):
            return "optimizer"
        return "load" if self.name.startswith("enumerate(DataLoader)") else ""

    def peer(self, messages: Sequence[_Event]) -> tuple[int, int]:
        """Return the other end of a message and its tag, by the call that it belongs to: the last
        one of its thread before it.
        """
        place = bisect_right(messages, self.start, key=lambda one: one.start)
        inputs = messages[place - 1].args.get("Concrete Inputs", []) if place else []
        try:
            return int(inputs[2]), int(inputs[3])
        except (IndexError, ValueError):
            return -1, 0


def _boundaries(events: Sequence[_Event]) -> list[int]:
    """Return when iterations begin: by the profiler's own steps, else after optimizer steps."""
    steps = [event.start for event in events if event.name.startswith("ProfilerStep#")]
    if steps:
        return steps
    return [0, *(event.end for event in events if event.computing == "optimizer")]


def _at(boundaries: Sequence[int], moment: int) -> int:
    return max(bisect_right(boundaries, moment) - 1, 0)


def _backwards(events: Sequence[_Event]) -> list[tuple[int, int]]:
    """Return the stretches in which the autograd engine runs, without a forward or a step in
    between.
    """
    result: list[tuple[int, int]] = []
    fresh = True
    for event in events:
        if event.computing:
            fresh = True
        elif event.name.startswith(_BACKWARD):
            if fresh:
                result.append((event.start, event.end))
            else:
                result[-1] = (result[-1][0], max(result[-1][1], event.end))
            fresh = False
    return result
