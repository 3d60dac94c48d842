"""Communication in torch's profiler: "workbench:all_reduce", where Gloo's says "gloo:all_reduce".

Nothing is done unless the profiler is on. An asynchronous operation lasts until its future is done,
in any thread; ``torch.distributed.record_comm`` gives another title.

The call itself has the name of torch's operator, "c10d::allreduce_", by which tools find
communication. It is a name only: a group of Python's is called without torch's dispatcher, which
would call the Gloo group inside. "record_param_comms" is missing, as over Gloo: its parameters can
be set from C++ alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
from torch._C import _distributed_c10d
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

# Since torch 2.13.
_given_title: Callable[[], str] = getattr(_distributed_c10d, "_get_comm_profiling_name", lambda: "")


def on() -> bool:
    """Return whether a profiler is active."""
    return profiler._is_profiler_enabled


def with_profiler(
    operation: str, tensors: Sequence[torch.Tensor], start: Callable[[], Any], asynchronous: bool
) -> Any:
    """Call ``start()`` within the profiler, and return its result: a handle, or None if all is done
    by then.
    """
    title = _given_title() or f"workbench:{operation}"
    if not (operator := _operator()):
        return _record_call(title, tensors, start, asynchronous)
    with _RecordFunctionFast(operator, [*tensors]):
        return _record_call(title, tensors, start, asynchronous)


def _record_call(
    title: str, tensors: Sequence[torch.Tensor], start: Callable[[], Any], asynchronous: bool
) -> Any:
    if not asynchronous:
        with _RecordFunctionFast(title, [*tensors]):
            return start()
    with profiler.record_function(title) as span:
        work = start()
        if work is not None:
            span._call_end_callbacks_on_future(work.get_future())
        return work


_HERE = str(Path(__file__).parents[1])
# Methods of a group, and the operator that torch calls in their place for its own groups.
OPERATORS = {
    name: f"c10d::{name}_"
    for name in (
        "allreduce allreduce_coalesced broadcast reduce allgather _allgather_base "
        "allgather_coalesced allgather_into_tensor_coalesced gather scatter reduce_scatter "
        "_reduce_scatter_base reduce_scatter_tensor_coalesced alltoall alltoall_base recv"
    ).split()
}
OPERATORS |= {
    "barrier": "c10d::barrier",
    "send": "c10d::send",
    "recv_anysource": "c10d::recv_any_source_",
}


def _operator() -> str:
    """Return the operator of the method that was called from outside of the workbench: only that
    method knows which one.
    """
    result, frame = "", cast("FrameType | None", sys._getframe(2))
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        result = OPERATORS.get(frame.f_code.co_name, result)
        frame = frame.f_back
    return result
