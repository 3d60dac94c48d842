"""The collectives that move tensors and add nothing, as calls: checked, planned, and how they move.

FSDP2, tensor parallelism and object collectives ask for these. What our algorithms do not take
(sparse tensors, devices other than hosts and GPUs) is left to the Gloo group inside, and so
is everything in a group that is there for comparison.
"""

from __future__ import annotations

from typing import Any

import torch

from workbench.common.errors import CollectiveError
from workbench.process_group import gloo_operations as gloo
from workbench.process_group.calls import (
    Algorithm,
    CollectiveCall,
    SeveralCalls,
    Tensors,
    check_equal_parts,
    ours,
    shape_of,
)
from workbench.process_group.context import GroupContext
from workbench.process_group.gloo_operations import GlooCall
from workbench.process_group.staging import values_ready
from workbench.transports.arrays import moved, together

Call = CollectiveCall | GlooCall
NOTHING = torch.empty(0)


def broadcast(group: GroupContext, tensors: list[torch.Tensor], opts: Any) -> Call:
    if not ours(group, "broadcast", tensors):
        return gloo.broadcast(group, tensors, opts)
    x, root, ready = tensors[0], opts.rootRank, values_ready(tensors)
    comm, staging = group.comm, group.staging
    mine = root == comm.rank

    def move(algorithm: Algorithm) -> None:
        flats = staging.take([x], ready, into=not mine)
        algorithm(comm, together(flats, moved), root)
        if not mine:
            staging.give([x], flats, ready)

    plan = group.plans.plan("broadcast", x.dtype, x.numel(), root=root)
    return CollectiveCall("broadcast", x, tuple(x.shape), tensors, plan, move)


def all_gather(
    group: GroupContext, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any
) -> Call:
    if not ours(group, "all_gather", [*x, *out[0]]):
        return gloo.all_gather(group, out, x, opts)
    check_equal_parts(group, "all_gather", out[0], x[0])
    return _gather_all(group, out[0], x[0])


def all_gather_single(group: GroupContext, out: torch.Tensor, x: torch.Tensor, opts: Any) -> Call:
    if not ours(group, "all_gather", [x, out]):
        return gloo.all_gather_single(group, out, x, opts)
    return _gather_all(group, [out], x)


def all_gather_coalesced(
    group: GroupContext, out: Any, x: list[torch.Tensor], opts: Any
) -> SeveralCalls | GlooCall:
    """Gather several tensors at once. ``out``: a list for each rank, of as many tensors as ``x``
    has.
    """
    everything = [*x, *(one for part in out for one in part)]
    if group.session.native or any(one.layout != torch.strided for one in everything):
        return gloo.all_gather_coalesced(group, out, x, opts)
    calls = [all_gather(group, [[p[i] for p in out]], [one], opts) for i, one in enumerate(x)]
    return SeveralCalls(calls, [one for part in out for one in part])


def _gather_all(group: GroupContext, outs: Tensors, x: torch.Tensor) -> CollectiveCall:
    comm, staging = group.comm, group.staging
    whole = sum(out.numel() for out in outs)
    if whole != x.numel() * comm.size:
        raise CollectiveError(
            f"all_gather of {x.numel():,} elements over {comm.size} ranks gives "
            f"{x.numel() * comm.size:,}, and rank {group.me} has room for {whole:,}"
        )
    ready = values_ready([x])

    def move(algorithm: Algorithm) -> None:
        flats = staging.take(outs, ready, into=True)
        mine = together(staging.take([x], ready), moved)
        algorithm(comm, mine, together(flats, moved))
        staging.give(outs, flats, ready)

    plan = group.plans.plan("all_gather", x.dtype, x.numel())
    return CollectiveCall("all_gather", x, shape_of(outs, x), [*outs], plan, move)


def gather(
    group: GroupContext, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any
) -> Call:
    outs, one = (out[0] if out else []), x[0]
    if not ours(group, "gather", [one, *outs]):
        return gloo.gather(group, out, x, opts)
    root, ready = opts.rootRank, values_ready(x)
    comm, staging = group.comm, group.staging
    mine = root == comm.rank
    if mine:
        check_equal_parts(group, "gather", outs, one)

    def move(algorithm: Algorithm) -> None:
        flats = staging.take(outs, ready, into=True) if mine else []
        into = together(flats, moved) if mine else None
        algorithm(comm, together(staging.take(x, ready), moved), into, root)
        if mine:
            staging.give(outs, flats, ready)

    plan = group.plans.plan("gather", one.dtype, one.numel(), root=root)
    return CollectiveCall("gather", one, tuple(one.shape), outs, plan, move)


def scatter(
    group: GroupContext, out: list[torch.Tensor], x: list[list[torch.Tensor]], opts: Any
) -> Call:
    xs, one = (x[0] if x else []), out[0]
    if not ours(group, "scatter", [one, *xs]):
        return gloo.scatter(group, out, x, opts)
    root, ready = opts.rootRank, values_ready(out)
    comm, staging = group.comm, group.staging
    mine = root == comm.rank
    if mine:
        check_equal_parts(group, "scatter", xs, one)

    def move(algorithm: Algorithm) -> None:
        flats = staging.take(out, ready, into=True)
        whole = together(staging.take(xs, ready), moved) if mine else None
        algorithm(comm, whole, together(flats, moved), root)
        staging.give(out, flats, ready)

    plan = group.plans.plan("scatter", one.dtype, one.numel(), root=root)
    return CollectiveCall("scatter", one, tuple(one.shape), out, plan, move)


def all_to_all_single(
    group: GroupContext,
    out: torch.Tensor,
    x: torch.Tensor,
    out_splits: Any,
    in_splits: Any,
    opts: Any,
) -> Call:
    if not ours(group, "all_to_all", [x, out]):
        return gloo.all_to_all_single(group, out, x, out_splits, in_splits, opts)
    sends = _split_sizes(group, x, in_splits, "sends")
    receives = _split_sizes(group, out, out_splits, "receives")
    return _exchange_all(group, [out], [x], receives, sends)


def all_to_all(
    group: GroupContext, out: list[torch.Tensor], x: list[torch.Tensor], opts: Any
) -> Call:
    if not ours(group, "all_to_all", [*x, *out]):
        return gloo.all_to_all(group, out, x, opts)
    if len(x) != group.comm.size or len(out) != group.comm.size:
        raise CollectiveError(
            f"all_to_all over {group.comm.size} ranks takes as many tensors, and rank "
            f"{group.me} sends {len(x)} and receives {len(out)}"
        )
    sends, receives = [one.numel() for one in x], [one.numel() for one in out]
    return _exchange_all(group, out, x, receives, sends)


def _exchange_all(
    group: GroupContext, outs: Tensors, xs: Tensors, receives: list[int], sends: list[int]
) -> CollectiveCall:
    comm, staging, me = group.comm, group.staging, group.comm.rank
    if sends[me] != receives[me]:
        raise CollectiveError(
            f"all_to_all: rank {group.me} keeps {sends[me]:,} elements of its own and has room "
            f"for {receives[me]:,}"
        )
    ready = values_ready(xs)

    def move(algorithm: Algorithm) -> None:
        flats = staging.take(outs, ready, into=True)
        mine, into = together(staging.take(xs, ready), moved), together(flats, moved)
        per = flats[0].itemsize // into.itemsize  # some dtypes travel as bytes
        algorithm(comm, mine, into, [per * one for one in sends], [per * one for one in receives])
        staging.give(outs, flats, ready)

    x, elements = xs[0], sum(sends)
    shape = tuple(x.shape) if len(xs) == 1 else (elements,)
    # Ranks may differ in their sizes: whether they fit is seen by every message.
    plan = group.plans.plan("all_to_all", x.dtype, elements, agreed=0)
    even = len({*sends, *receives}) == 1
    return CollectiveCall("all_to_all", x, shape, [*outs], plan, move, judged=even, always=True)


def _split_sizes(group: GroupContext, x: torch.Tensor, splits: Any, verb: str) -> list[int]:
    """Return how many elements of ``x`` belong to each rank; ``splits`` counts rows."""
    size, rows = group.comm.size, x.shape[0] if x.dim() else x.numel()
    if not splits:
        if rows % size:
            raise CollectiveError(
                f"all_to_all: rank {group.me} {verb} {rows:,} rows, which {size} ranks cannot "
                "share evenly: say how many for each (split sizes)"
            )
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise CollectiveError(
            f"all_to_all over {size} ranks: rank {group.me} {verb} {rows:,} rows, and its "
            f"split sizes are {[*splits]}"
        )
    return [rows_for * (x.numel() // rows if rows else 0) for rows_for in splits]


def barrier(group: GroupContext, opts: Any) -> Call:
    if group.session.native:
        return gloo.barrier(group, opts)
    comm, plan = group.comm, group.plans.plan("barrier", NOTHING.dtype, 0)

    def move(algorithm: Algorithm) -> None:
        algorithm(comm)

    return CollectiveCall("barrier", NOTHING, (0,), [], plan, move, always=True)
