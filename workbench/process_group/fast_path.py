"""A fast path for plain calls: synchronous, of dense host tensors, with nothing queued.

What such a call is (its plan, its algorithm, its tensors as flat arrays) is remembered by where its
tensors lie, and how they look. Everything else goes by operations.py and reductions.py,
which also decides what a call of a new kind is: both paths do the same and write the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

from workbench.process_group.context import GroupContext
from workbench.process_group.plans import Plan
from workbench.process_group.work import JobQueue
from workbench.recording.events import now
from workbench.transports.arrays import NUMPY, PLAIN, at_address

MOST = 256  # calls that are remembered, of a group
TYPES = (torch.Tensor, torch.nn.Parameter)
OURS = "workbench.collectives."  # where algorithms are that keep nothing they are given
Arguments = Callable[[list[Any]], tuple[Any, ...]]  # of the algorithm, from the flat arrays


class Known(NamedTuple):
    """A call that has come before."""

    plan: Plan
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    itemsize: float


NEW = Known(Plan(0, "", 0, 0, "", -1), print, (), (), 0.0)  # stands for a call of a new kind


class FastPath:
    """The plain calls of one group."""

    def __init__(
        self, context: GroupContext, queue: JobQueue, numbers: itertools.count[int]
    ) -> None:
        self._context, self._queue, self._numbers = context, queue, numbers
        self._comm, self._session = context.comm, context.session
        self._watch, self._slots = context.members.watch, context.comm.slots
        self._recorder, self._labels = context.session.recorder, context.session.labels
        self._known: dict[tuple[Any, ...], Known | None] = {}
        self._limit = timedelta(), 0  # the last call's, in nanoseconds too

    def take(
        self,
        operation: str,
        tensors: Sequence[torch.Tensor],
        detail: Any,
        opts: Any,
    ) -> bool:
        """Perform a call, if it is a plain one; return whether it was.

        ``detail``: the reduction, or the root. ``tensors``: of which the first is written.
        """
        queue, session = self._queue, self._session
        if opts.asyncOp or profiler._is_profiler_enabled or not queue.idle():
            return False
        if session.attached:  # their calls silence numpy: group.py
            return False
        choice = session.all_reduce, session.algorithms.get(operation)  # which algorithm
        x = tensors[0]
        if type(x) not in TYPES or not x.is_contiguous():
            return False
        at: tuple[Any, ...] = operation, detail, choice, x.data_ptr(), x.shape, x.dtype
        for x in tensors[1:]:
            if type(x) not in TYPES or not x.is_contiguous():
                return False
            at = *at, x.data_ptr(), x.shape, x.dtype
        known = self._known.get(at, NEW)
        if known is NEW:
            if len(self._known) >= MOST:
                self._known.clear()
                self._comm.forget()
            known = self._known[at] = self._find(operation, tensors, detail)
        if known is None:
            return False
        timeout, limit = self._limit
        if opts.timeout != timeout:
            timeout = opts.timeout
            limit = 0 if timeout.days < 0 else int(timeout.total_seconds() * 1e9)
            self._limit = timeout, limit
        with queue.lock:
            self._perform(operation, known, limit)
        return True

    def _perform(self, operation: str, known: Known, limit: int) -> None:
        plan, function, arguments, shape, itemsize = known
        comm, watch = self._comm, self._watch
        if not self._slots.inline:
            self._slots.run_inline(True)
        watch.limit_ns = limit or watch.timeout_ns
        start, number, where = now(), next(self._numbers), self._recorder.where
        comm.begin(operation, plan.algorithm, number, plan.number, where, shape, plan.dtype)
        try:
            function(comm, *arguments)
        except BaseException:
            comm.failed = True
            raise
        finally:
            comm.end(start, plan.nbytes, self._labels.text, itemsize, plan.root)

    def _find(self, operation: str, tensors: Sequence[torch.Tensor], detail: Any) -> Known | None:
        """Work out a call of a new kind; None: this path does not take it."""
        if self._session.native or self._comm.size == 1 or not all(map(_is_plain, tensors)):
            return None
        if len({x.dtype for x in tensors}) > 1 or _overlap(*tensors):
            return None
        call = _CALLS[operation](tensors, detail, self._comm.size)
        if call is None:
            return None
        elements, arguments, of = call
        plan = self._context.plans.plan(operation, tensors[0].dtype, elements, **of)
        function = self._session.algorithm(operation, plan.algorithm)
        if not plan.nbytes or not function.__module__.startswith(OURS):
            return None
        arrays = [at_address(x.data_ptr(), x.numel(), x.dtype) for x in tensors]
        self._comm.cut_once(arrays)
        shape = tuple(tensors[0 if operation == "all_gather" else -1].shape)
        return Known(plan, function, arguments(arrays), shape, float(plan.itemsize))


def _is_plain(x: torch.Tensor) -> bool:
    return (
        x.is_cpu
        and x.layout is torch.strided
        and x.dtype in PLAIN
        and x.numel() > 1  # of one element: it may be the negative of what lies there
        and x.data_ptr() != 0
    )


def _overlap(out: torch.Tensor, x: torch.Tensor | None = None) -> bool:
    if x is None:
        return False
    return x.data_ptr() < out.data_ptr() + out.nbytes and out.data_ptr() < x.data_ptr() + x.nbytes


# Of a call: its elements, the algorithm's arguments, what else the plan goes by.
Call = tuple[int, Arguments, dict[str, Any]] | None
Tensors = Sequence[torch.Tensor]


def _all_reduce(tensors: Tensors, reduction: str, size: int) -> Call:
    if reduction not in NUMPY.reduce:
        return None
    of = {"reduction": reduction}
    return tensors[0].numel(), lambda flat: (flat[0], reduction), of


def _broadcast(tensors: Tensors, root: int, size: int) -> Call:
    return tensors[0].numel(), lambda flat: (flat[0], root), {"root": root}


def _all_gather(tensors: Tensors, _: None, size: int) -> Call:
    out, x = tensors
    if out.numel() != x.numel() * size:
        return None
    return x.numel(), lambda flat: (flat[1], flat[0]), {}


def _reduce_scatter(tensors: Tensors, reduction: str, size: int) -> Call:
    out, x = tensors
    if reduction not in NUMPY.reduce or x.numel() != out.numel() * size:
        return None
    of = {"reduction": reduction}
    return x.numel(), lambda flat: (flat[1], flat[0], reduction), of


def _all_to_all(tensors: Tensors, _: None, size: int) -> Call:
    out, x = tensors
    if out.numel() != x.numel() or (x.shape[0] if x.dim() else x.numel()) % size:
        return None
    if out.shape[0] % size:
        return None
    parts = [x.numel() // size] * size
    return x.numel(), lambda flat: (flat[1], flat[0], parts, parts), {"agreed": 0}


_CALLS: dict[str, Callable[[Tensors, Any, int], Call]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
