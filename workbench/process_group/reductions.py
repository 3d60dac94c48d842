"""The collectives that add, as calls: all-reduce, reduce, reduce-scatter.

What numpy and torch do not add for us (complex numbers, bits, sparse tensors) is left to the Gloo
group inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from workbench.common.errors import CollectiveError
from workbench.messaging.fingerprint import REDUCTIONS
from workbench.process_group import gloo_operations as gloo
from workbench.process_group.calls import (
    Algorithm,
    CollectiveCall,
    SeveralCalls,
    check_equal_parts,
    ours,
    shape_of,
)
from workbench.process_group.context import GroupContext
from workbench.process_group.gloo_operations import GlooCall, check_shares
from workbench.process_group.staging import values_ready
from workbench.transports.arrays import LEFT_TO_TORCH, PLAIN, SUM, fast_array, together

Call = CollectiveCall | GlooCall
OURS = {"SUM": SUM, "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "AVG": SUM}
# By number, which is a ReduceOp's hash: its member `op` takes three times as long to get.
REDUCE_NAMES = {
    getattr(dist.ReduceOp, name).value: name for name in REDUCTIONS if hasattr(dist.ReduceOp, name)
}
DENSE = PLAIN | LEFT_TO_TORCH


def all_reduce(group: GroupContext, tensors: list[torch.Tensor], opts: Any) -> Call | SeveralCalls:
    x, reduction = tensors[0], reduction_of(opts)
    if not _adds(group, "all_reduce", [x], reduction):
        return gloo.all_reduce(group, tensors, opts, reduction)
    if len(tensors) > 1:
        return SeveralCalls([all_reduce(group, [one], opts) for one in tensors], tensors)
    ready, comm, staging = values_ready(tensors), group.comm, group.staging

    def move(algorithm: Algorithm) -> None:
        if comm.size == 1:
            return
        (flat,) = staging.take([x], ready)
        result = algorithm(comm, fast_array(flat), OURS[reduction])
        if isinstance(result, torch.Tensor) and result.data_ptr() != flat.data_ptr():
            flat.copy_(result.view(-1))
        if reduction == "AVG":
            _average(flat, comm.size)
        staging.give([x], [flat], ready)

    plan = group.plans.plan("all_reduce", x.dtype, x.numel(), reduction)
    return CollectiveCall("all_reduce", x, tuple(x.shape), tensors, plan, move)


def reduce(group: GroupContext, tensors: list[torch.Tensor], opts: Any) -> Call:
    x, reduction = tensors[0], reduction_of(opts)
    if not _adds(group, "reduce", [x], reduction):
        return gloo.reduce(group, tensors, opts)
    root, ready = opts.rootRank, values_ready(tensors)
    comm, staging = group.comm, group.staging

    def move(algorithm: Algorithm) -> None:
        (flat,) = staging.take([x], ready)
        algorithm(comm, fast_array(flat), root, OURS[reduction])
        if root == comm.rank:
            if reduction == "AVG":
                _average(flat, comm.size)
            staging.give([x], [flat], ready)

    plan = group.plans.plan("reduce", x.dtype, x.numel(), reduction, root)
    return CollectiveCall("reduce", x, tuple(x.shape), tensors, plan, move)


def reduce_scatter(
    group: GroupContext, out: list[torch.Tensor], x: list[list[torch.Tensor]], opts: Any
) -> Call:
    parts = x[0]
    uneven = len({part.numel() for part in parts}) > 1  # ranks keep what is theirs of it all
    if uneven or not _adds(group, "reduce_scatter", [*parts, *out], reduction_of(opts)):
        return gloo.reduce_scatter(group, out, x, opts)
    check_equal_parts(group, "reduce_scatter", parts, out[0])
    return _reduce_parts(group, out[0], parts, opts)


def reduce_scatter_single(
    group: GroupContext, out: torch.Tensor, x: torch.Tensor, opts: Any
) -> Call:
    if not _adds(group, "reduce_scatter", [x, out], reduction_of(opts)):
        return gloo.reduce_scatter_single(group, out, x, opts)
    check_shares(group, out, x)
    return _reduce_parts(group, out, [x], opts)


def _reduce_parts(
    group: GroupContext, out: torch.Tensor, xs: Sequence[torch.Tensor], opts: Any
) -> CollectiveCall:
    reduction, ready = reduction_of(opts), values_ready(xs)
    comm, staging = group.comm, group.staging

    def move(algorithm: Algorithm) -> None:
        whole = staging.take(xs, ready)
        (into,) = staging.take([out], ready, into=True)
        # What is there is needed until the end.
        whole = [x.clone() if _overlap(x, into) else x for x in whole]
        algorithm(comm, together(whole, fast_array), fast_array(into), OURS[reduction])
        if reduction == "AVG":
            _average(into, comm.size)
        staging.give([out], [into], ready)

    elements = sum(x.numel() for x in xs)
    plan = group.plans.plan("reduce_scatter", out.dtype, elements, reduction)
    return CollectiveCall("reduce_scatter", out, shape_of(xs, out), [out], plan, move)


def _adds(
    group: GroupContext, operation: str, tensors: Sequence[torch.Tensor], reduction: str
) -> bool:
    """Return whether our algorithms add these."""
    if not ours(group, operation, tensors):
        return False
    x = tensors[0]
    if reduction == "AVG" and x.dtype == torch.bool:
        raise CollectiveError(
            f"{operation}: rank {group.me} asks for AVG of {x.dtype}, and AVG takes numbers: "
            "use MAX for any, MIN for all, or convert to float first"
        )
    return x.dtype in DENSE and reduction in OURS


def reduction_of(opts: Any) -> str:
    """Return the name of the reduction that a call asks for; "" of one that has none here."""
    return REDUCE_NAMES.get(hash(opts.reduceOp), "")


def _average(total: torch.Tensor, ranks: int) -> None:
    """Divide a sum by the number of ranks, in place; of integers toward zero, as NCCL does, and
    programs themselves where Gloo refuses. All ranks have the same sum, so the same average.
    """
    total.div_(ranks, rounding_mode=None if total.is_floating_point() else "trunc")


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether these flat tensors share memory."""
    return a.data_ptr() < b.data_ptr() + b.nbytes and b.data_ptr() < a.data_ptr() + a.nbytes
