"""Communication in torch's profiler: "workbench:all_reduce", where Gloo's says "gloo:all_reduce".

Nothing is done unless somebody profiles. What is asynchronous lasts until its future is done,
whichever thread does it; ``torch.distributed.record_comm`` gives another title.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _distributed_c10d
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

# Since torch 2.13.
_given_title: Callable[[], str] = getattr(_distributed_c10d, "_get_comm_profiling_name", lambda: "")


def on() -> bool:
    """Does somebody profile?"""
    return profiler._is_profiler_enabled


def told(
    operation: str, tensors: Sequence[torch.Tensor], start: Callable[[], Any], asynchronous: bool
) -> Any:
    """What ``start()`` returns: a handle, or None if all is done by then."""
    title = _given_title() or f"workbench:{operation}"
    if not asynchronous:
        with _RecordFunctionFast(title, [*tensors]):
            return start()
    with profiler.record_function(title) as span:
        work = start()
        if work is not None:
            span._call_end_callbacks_on_future(work.get_future())
        return work
