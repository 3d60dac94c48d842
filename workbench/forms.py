"""The operations as methods of a group, in the shorter forms that torch gives them there.

``group.allreduce(x, ReduceOp.MAX)`` is what torch.distributed itself writes as
``group.allreduce([x], options)``: one tensor stands for a list, root, reduction and time limit for
their options.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from workbench.reductions import Reductions


class Forms(Reductions):
    """The part of ``WorkbenchGroup`` that puts every form of a call into the long one."""

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> Any:
        if not isinstance(opts, AllreduceOptions):
            opts = _options(AllreduceOptions, timeout, reduceOp=opts if op is None else op)
        return super().allreduce(_several(tensors), opts)

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, root: Any = None
    ) -> Any:
        if not isinstance(opts, BroadcastOptions):
            opts = _options(BroadcastOptions, timeout, rootRank=opts if root is None else root)
        return super().broadcast(_several(tensors), opts)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None,
        *, root: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(opts, ReduceOptions):
            root = opts if root is None else root
            opts = _options(ReduceOptions, timeout, rootRank=root, reduceOp=op)
        return super().reduce(_several(tensors), opts)

    def allgather(self, out: Any, x: Any, opts: Any = None) -> Any:
        if not isinstance(opts, AllgatherOptions):
            opts = _options(AllgatherOptions, opts)
        return super().allgather(_lists(out, x), _several(x), opts)

    def gather(
        self, out: Any, x: Any, opts: Any = None, timeout: timedelta | None = None,
        *, root: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(opts, GatherOptions):
            opts = _options(GatherOptions, timeout, rootRank=opts if root is None else root)
        return super().gather(_lists(out, x), _several(x), opts)

    def scatter(
        self, out: Any, x: Any, opts: Any = None, timeout: timedelta | None = None,
        *, root: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(opts, ScatterOptions):
            opts = _options(ScatterOptions, timeout, rootRank=opts if root is None else root)
        return super().scatter(_several(out), _lists(x, out), opts)

    def reduce_scatter(
        self, out: Any, x: Any, opts: Any = None, timeout: timedelta | None = None,
        *, op: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(opts, ReduceScatterOptions):
            opts = _options(ReduceScatterOptions, timeout, reduceOp=opts if op is None else op)
        return super().reduce_scatter(_several(out), _lists(x, out), opts)

    def alltoall_base(
        self, out: torch.Tensor, x: torch.Tensor, out_splits: Any, in_splits: Any, opts: Any = None
    ) -> Any:
        if not isinstance(opts, AllToAllOptions):
            opts = _options(AllToAllOptions, opts)
        return super().alltoall_base(out, x, out_splits, in_splits, opts)

    all_to_all_single = alltoall_base

    def alltoall(self, out: Any, x: Any, opts: Any = None) -> Any:
        if not isinstance(opts, AllToAllOptions):
            opts = _options(AllToAllOptions, opts)
        return super().alltoall(out, x, opts)

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> Any:
        if not isinstance(opts, BarrierOptions):
            opts = _options(BarrierOptions, opts if timeout is None else timeout)
        return super().barrier(opts)


def _options(kind: Any, timeout: timedelta | None, **fields: Any) -> Any:
    """New options; None leaves a field as torch has it."""
    opts = kind()
    for name, value in (*fields.items(), ("timeout", timeout)):
        if value is not None:
            setattr(opts, name, value)
    return opts


def _several(x: Any) -> list[torch.Tensor]:
    return [x] if isinstance(x, torch.Tensor) else x


def _lists(parts: Any, other: Any) -> Any:
    """A list of tensors is one of lists if the other end of the call is a tensor itself."""
    return [parts] if isinstance(other, torch.Tensor) else parts
