"""Operations that a Gloo group does for us, each recorded as one span: what our algorithms do not
take, and everything in a run over backend="gloo".

What the group hands to Gloo it still watches: a peer that ends, or that is in another operation, is
noticed here and named, where Gloo alone would wait for its own timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import AllreduceOptions

from workbench.common.errors import CollectiveError, PeerLost, WorkbenchError
from workbench.messaging.fingerprint import signature
from workbench.messaging.watchdog import PeerWait
from workbench.process_group.context import GroupContext
from workbench.process_group.staging import in_mode_of
from workbench.recording.events import Where, now
from workbench.shared_memory.control_block import SLICE

NAMING = 0.5  # seconds: how long to look for the rank that broke a connection


class GlooCall(NamedTuple):
    """One operation of the group inside."""

    operation: str
    start: Callable[[], Any]  # gives Gloo's handle
    inputs: list[torch.Tensor]
    result: list[torch.Tensor]
    number: int  # the signature
    root: int  # world rank; -1: there is none
    then: Callable[[], Any]

    def perform(self, group: GroupContext, number: int, where: Where, label: str) -> None:
        """Let Gloo do it, as the group's ``number``-th collective, within one row."""
        group.at_line(number, label)
        comm, start, doing = group.comm, now(), f"{self.operation} {number + 1}"
        comm.begin(self.operation, "gloo", number, self.number, where, (), "")
        peer_wait: PeerWait | None = None
        try:
            _agree(group)
            work, done = self.start(), threading.Event()
            work.get_future().add_done_callback(lambda _: done.set())
            while not done.wait(SLICE):
                peer_wait = peer_wait or PeerWait(group.members.watch, -1, comm.lane, doing)
                peer_wait.look()
            work.wait()
            self.then()
        except BaseException as error:
            comm.failed = True
            if isinstance(error, WorkbenchError) or not isinstance(error, RuntimeError):
                raise
            raise _explain(group, error, doing) from error
        finally:
            nbytes = sum(x.numel() * x.element_size() for x in self.result)
            comm.end(start, nbytes, label, peer=self.root)


def _call(
    group: GroupContext,
    operation: str,
    start: Callable[[], Any],
    result: Any,
    *,
    same: torch.Tensor | None = None,
    reduction: str = "",
    root: int = -1,
    then: Callable[[], Any] = lambda: None,
) -> GlooCall:
    """Return the call that runs ``start`` in Gloo, then ``then``.

    ``same``: a tensor that must be alike on every rank. ``root``: the root's rank in the group.
    """
    dtype = None if same is None else same.dtype
    elements = 0 if same is None else same.numel()
    root = group.members.world[root] if root >= 0 else -1
    number = signature(operation, dtype, elements, reduction, root)
    inputs = [] if same is None else [same]
    return GlooCall(operation, start, inputs, flatten(result), number, root, then)


def _agree(group: GroupContext) -> None:
    """Raise CollectiveError if a peer that is here already has passed something else.

    Gloo ends the whole process over a message of another size. Every rank writes its own arguments
    before it reads those of the others, so one of two that differ notices before its call.
    """
    with threading.Lock():  # a locked instruction: what was written is out
        pass
    group.members.watch.compare(range(group.comm.size))


def _explain(group: GroupContext, error: RuntimeError, doing: str) -> Exception:
    """Return the error of Gloo's as ours: which peer was lost; or with a note of whose it is."""
    members = group.members
    if "gloo/transport" not in str(error):
        error.add_note(  # a call that Gloo refuses
            f"[workbench] {doing} of group {group.label} is left to Gloo inside"
        )
        return error
    deadline = time.monotonic() + NAMING
    while time.monotonic() < deadline:  # a process that is killed closes its connections first
        for peer, other in enumerate(members.peers):
            if peer != group.comm.rank and (other.gone or other.left):
                return members.watch.lost(peer, doing)
        if heard := members.watch.heard():
            return heard
        time.sleep(1e-3)
    words = f"a peer was lost in {doing}: {error}"
    return members.watch.fail(PeerLost(words, peer=group.me, how="ended", doing=doing))


def all_reduce(group: GroupContext, tensors: Any, opts: Any, reduction: str) -> GlooCall:
    start = _later(group, "allreduce", tensors, opts)
    return _call(group, "all_reduce", start, tensors, reduction=reduction)


def broadcast(group: GroupContext, tensors: Any, opts: Any) -> GlooCall:
    start = _later(group, "broadcast", tensors, opts)
    return _call(group, "broadcast", start, tensors, same=tensors[0], root=opts.rootRank)


def reduce(group: GroupContext, tensors: Any, opts: Any) -> GlooCall:
    start = _later(group, "reduce", tensors, opts)
    return _call(group, "reduce", start, tensors, same=tensors[0], root=opts.rootRank)


def all_gather(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    return _call(group, "all_gather", _later(group, "allgather", out, x, opts), out, same=x[0])


def all_gather_single(
    group: GroupContext, out: torch.Tensor, x: torch.Tensor, opts: Any
) -> GlooCall:
    return _call(group, "all_gather", _later(group, "_allgather_base", out, x, opts), out, same=x)


def all_gather_coalesced(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    start = _later(group, "allgather_coalesced", out, x, opts)
    return _call(group, "all_gather_coalesced", start, out)


def gather(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    start = _later(group, "gather", out, x, opts)
    return _call(group, "gather", start, out, same=x[0], root=opts.rootRank)


def scatter(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    start = _later(group, "scatter", out, x, opts)
    return _call(group, "scatter", start, out, same=out[0], root=opts.rootRank)


def reduce_scatter(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    parts = x[0]
    whole = torch.cat([part.detach().reshape(-1) for part in parts])
    before = sum(part.numel() for part in parts[: group.comm.rank])
    return _reduce_and_keep(group, out[0], whole, before, opts)


def reduce_scatter_single(
    group: GroupContext, out: torch.Tensor, x: torch.Tensor, opts: Any
) -> GlooCall:
    check_shares(group, out, x)
    whole = x.detach().clone(memory_format=torch.contiguous_format).view(-1)
    return _reduce_and_keep(group, out, whole, group.comm.rank * out.numel(), opts)


def _reduce_and_keep(
    group: GroupContext, out: torch.Tensor, whole: torch.Tensor, start: int, opts: Any
) -> GlooCall:
    """Return what Gloo does for reduce-scatter too; but its own handle of that says nothing until
    waited for.
    """
    inner = AllreduceOptions()
    inner.reduceOp = opts.reduceOp
    kept = whole[start : start + out.numel()].view(out.shape)
    keep = in_mode_of(out, lambda: out.data.copy_(kept))
    reducing = _later(group, "allreduce", [whole], inner)
    return _call(group, "reduce_scatter", reducing, out, same=whole, then=keep)


def all_to_all_single(
    group: GroupContext, out: torch.Tensor, x: Any, out_splits: Any, in_splits: Any, opts: Any
) -> GlooCall:
    start = _later(group, "alltoall_base", out, x, out_splits, in_splits, opts)
    return _call(group, "all_to_all", start, out)


def all_to_all(group: GroupContext, out: Any, x: Any, opts: Any) -> GlooCall:
    return _call(group, "all_to_all", _later(group, "alltoall", out, x, opts), out)


def barrier(group: GroupContext, opts: Any) -> GlooCall:
    return _call(group, "barrier", _later(group, "barrier", opts), None)


def check_shares(group: GroupContext, out: torch.Tensor, x: torch.Tensor) -> None:
    """Raise CollectiveError unless ``out`` is one rank's equal share of ``x``."""
    if x.numel() != out.numel() * group.comm.size:
        raise CollectiveError(
            f"reduce_scatter over {group.comm.size} ranks of {x.numel():,} elements leaves each "
            f"{x.numel() / group.comm.size:,.6g}, and rank {group.me} receives {out.numel():,}"
        )


def flatten(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a tensor, or of lists of them."""
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flatten(part)]


def _later(group: GroupContext, method: str, *arguments: Any) -> Callable[[], Any]:
    """Return what calls that method of the group inside."""
    return lambda: getattr(group.inner, method)(*arguments)
