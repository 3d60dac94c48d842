"""The torch.distributed backend "workbench".

``import workbench; torch.distributed.init_process_group("workbench", ...)`` gives a ProcessGroup
whose collectives (process_group/operations.py, process_group/reductions.py) and point-to-point
messages go through our communicator, chunk by chunk; what our algorithms do not take runs in a Gloo
group inside and is recorded as one span a call. So plain PyTorch code (DDP, FSDP2, tensor parallel,
pipelining, a script) is seen without a change.

A synchronous call with nothing queued runs in the caller: the hop to another thread is most of a
small collective's time. Asynchronous ones run on the group's thread, one after the other, in order
of call.

What passes over Gloo passes here (tests/drop_in). Where the two differ on purpose:

* Taken too: int16; unsigned numbers and eight-bit floats where they only move; what is complex
  in a gather; tensors that are not contiguous; messages to oneself.
* ``get_backend()`` is "workbench". What torch does for the name "gloo" alone it does not for ours:
  its profiler titles begin with "workbench:", not "gloo:", without shapes of what is asynchronous
  (process_group/profiling.py). ``dist.monitored_barrier`` works where it is called by that name.
* Ranks that disagree on an operation, its shape, dtype or root are told so, where Gloo ends the
  process or waits; a message must have the shape and dtype that its receiver expects, where Gloo
  takes a shorter one.
* A time limit counts time without progress, not time since the call. Errors are a RuntimeError as
  torch's are, under names of their own (common/errors.py). A wait for one message that gave up
  breaks nothing: the message may still come.
* A group that was destroyed, or aborted, refuses further calls. Gloo's goes on.
* Operations of one group run one after the other, in order of call; Gloo runs two at a time.
* A list of several tensors for ``group.allreduce`` is as many all-reduces; Gloo adds them up.
* A rank's part after ``reduce`` is left alone where it is not the root; Gloo uses it as room.
  MIN and MAX of NaN are NaN; over Gloo that depends on the order.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroup,
    ProcessGroupGloo,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Store,
)

from workbench.common.errors import GroupClosed
from workbench.process_group import live_groups, operations, profiling, reductions
from workbench.process_group.calls import CollectiveCall, SeveralCalls
from workbench.process_group.context import join
from workbench.process_group.fast_path import FastPath
from workbench.process_group.gloo_operations import GlooCall
from workbench.process_group.messages import Messages
from workbench.process_group.overloads import lists, options, several
from workbench.process_group.reductions import reduction_of
from workbench.process_group.work import AllWork, JobQueue, WorkbenchWork
from workbench.recording.events import Where
from workbench.transports.alarm_lines import break_connections

Call = CollectiveCall | GlooCall
Tensor = torch.Tensor


class WorkbenchGroup(ProcessGroup):
    """One rank's end of a process group."""

    _closed = True  # until it is made

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        world: list[int] | None,
        name: str,
    ) -> None:
        super().__init__(rank, size)  # the three-argument form fails in a subclass
        self.timeout, self.label, self._store = timeout, name, store
        context = self.context = join(store, rank, size, timeout, world, name)
        self.members, self.comm, self.inner = context.members, context.comm, context.inner
        self.inner.outer = weakref.ref(self)
        for device in ("cpu", "cuda"):  # as torch does for Gloo, whether there is one or not
            self._register_backend(torch.device(device), ProcessGroup.BackendType.GLOO, self.inner)
        self._set_default_backend(ProcessGroup.BackendType.GLOO)
        self.inner._set_sequence_number_for_group()
        slots = self.comm.slots  # not self: the thread must not keep the group alive
        self.queue = JobQueue(self.comm.lane.name, before=lambda: slots.run_inline(False))
        self._messages = Messages(self.comm, context.session, name)
        self._numbers = itertools.count()  # of collectives
        self._fast_path = FastPath(context, self.queue, self._numbers)
        self._counts: deque[WorkbenchWork] = deque(maxlen=8)
        self._coalesced: list[Any] | None = None
        self._pid, self._closed, self.counted = os.getpid(), False, False
        live_groups.add(self)

    def __repr__(self) -> str:
        return f"<workbench {self.members.words}>"

    # -- what else torch asks of a group --

    def getBackendName(self) -> str:
        return "workbench"

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long an operation can wait without progress, from now on."""
        self.timeout = timeout
        self.members.set_timeout(timeout)
        ProcessGroupGloo._set_default_timeout(self.inner, timeout)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait for all ranks as Gloo's does, which names those that did not come."""
        self.inner.monitored_barrier(timeout or self.timeout, wait_all_ranks)

    def spare(self, world_ranks: Iterable[int]) -> None:
        """Do not count the end of these ranks as a failure of the group."""
        watch, world = self.members.watch, self.members.world
        ranks = map(self.context.session.run_rank, world_ranks)
        watch.spare = {world.index(rank) for rank in ranks if rank in world}
        watch.lost_ranks = self.context.session.lost

    # -- several operations in one handle (torch's _coalescing_manager, with a device) --

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Any:
        """Return the handle of all that was begun since; each began at once."""
        works, self._coalesced = self._coalesced, None
        return AllWork(works or [], [])

    def _note(self, work: Any) -> Any:
        """Return a handle; one of several operations in one is kept for that."""
        if self._coalesced is not None and work is not None:
            self._coalesced.append(work)
        return work

    # -- point to point --

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Any:
        self._check_open()
        return self._note(self._messages.send(tensors, to, tag))

    def recv(self, tensors: list[Tensor], frm: int, tag: int, *, stays: bool = False) -> Any:
        self._check_open()
        return self._note(self._messages.recv(tensors, frm, tag, stays=stays))

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Any:
        self._check_open()
        return self._note(self._messages.recv(tensors, -1, tag))

    # -- collectives, in every form that torch gives them --

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> Any:
        plain = type(opts) is AllreduceOptions and type(tensors) is list and len(tensors) == 1
        if plain and self._took_fast_path("all_reduce", tensors, reduction_of(opts), opts):
            return None
        opts = options(AllreduceOptions, opts, timeout, reduceOp=op)
        return self.run(reductions.all_reduce(self.context, several(tensors), opts), opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        each = AllreduceOptions()  # which torch's own of this call are not
        if opts is not None:
            each.reduceOp, each.timeout, each.asyncOp = opts.reduceOp, opts.timeout, opts.asyncOp
        calls = [reductions.all_reduce(self.context, [one], each) for one in tensors]
        return self.run(SeveralCalls(calls, tensors), each)

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, root: Any = None
    ) -> Any:
        plain = type(opts) is BroadcastOptions and type(tensors) is list and len(tensors) == 1
        if plain and self._took_fast_path("broadcast", tensors, opts.rootRank, opts):
            return None
        opts = options(BroadcastOptions, opts, timeout, rootRank=root)
        return self.run(operations.broadcast(self.context, several(tensors), opts), opts)

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Any:
        opts = options(ReduceOptions, opts, timeout, rootRank=root, reduceOp=op)
        return self.run(reductions.reduce(self.context, several(tensors), opts), opts)

    def allgather(self, out: Any, x: Any, opts: Any = None) -> Any:
        opts = options(AllgatherOptions, opts)
        call = operations.all_gather(self.context, lists(out, x), several(x), opts)
        return self.run(call, opts)

    def _allgather_base(self, out: Tensor, x: Tensor, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        if self._took_fast_path("all_gather", (out, x), None, opts):
            return None
        return self.run(operations.all_gather_single(self.context, out, x, opts), opts)

    def allgather_coalesced(self, out: Any, x: list[Tensor], opts: Any = None) -> Any:
        opts = options(AllgatherOptions, opts)
        return self.run(operations.all_gather_coalesced(self.context, out, x, opts), opts)

    def allgather_into_tensor_coalesced(
        self, outs: list[Tensor], xs: list[Tensor], opts: Any = None
    ) -> Any:
        opts, pairs = opts or AllgatherOptions(), zip(outs, xs, strict=True)
        calls = [operations.all_gather_single(self.context, out, x, opts) for out, x in pairs]
        return self.run(SeveralCalls(calls, outs), opts)

    def gather(
        self,
        out: Any,
        x: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Any:
        opts = options(GatherOptions, opts, timeout, rootRank=root)
        return self.run(operations.gather(self.context, lists(out, x), several(x), opts), opts)

    def scatter(
        self,
        out: Any,
        x: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Any:
        opts = options(ScatterOptions, opts, timeout, rootRank=root)
        return self.run(operations.scatter(self.context, several(out), lists(x, out), opts), opts)

    def reduce_scatter(
        self,
        out: Any,
        x: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> Any:
        opts = options(ReduceScatterOptions, opts, timeout, reduceOp=op)
        call = reductions.reduce_scatter(self.context, several(out), lists(x, out), opts)
        return self.run(call, opts)

    def _reduce_scatter_base(self, out: Tensor, x: Tensor, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        if self._took_fast_path("reduce_scatter", (out, x), reduction_of(opts), opts):
            return None
        return self.run(reductions.reduce_scatter_single(self.context, out, x, opts), opts)

    def reduce_scatter_tensor_coalesced(
        self, outs: list[Tensor], xs: list[Tensor], opts: Any = None
    ) -> Any:
        opts, pairs = opts or ReduceScatterOptions(), zip(outs, xs, strict=True)
        calls = [reductions.reduce_scatter_single(self.context, out, x, opts) for out, x in pairs]
        return self.run(SeveralCalls(calls, outs), opts)

    def alltoall_base(
        self, out: Tensor, x: Tensor, out_splits: Any, in_splits: Any, opts: Any = None
    ) -> Any:
        opts = options(AllToAllOptions, opts)
        even = not out_splits and not in_splits
        if even and self._took_fast_path("all_to_all", (out, x), None, opts):
            return None
        call = operations.all_to_all_single(self.context, out, x, out_splits, in_splits, opts)
        return self.run(call, opts)

    def alltoall(self, out: Any, x: Any, opts: Any = None) -> Any:
        opts = options(AllToAllOptions, opts)
        return self.run(operations.all_to_all(self.context, out, x, opts), opts)

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> Any:
        opts = options(BarrierOptions, opts, timeout)
        return self.run(operations.barrier(self.context, opts), opts)

    # torch 2.13 calls these names
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # -- running --

    def _took_fast_path(self, operation: str, tensors: Any, detail: Any, opts: Any) -> bool:
        """Perform a plain call at once; return whether it was one (process_group/fast_path.py)."""
        return not self._closed and self._fast_path.take(operation, tensors, detail, opts)

    def run(self, call: Call | SeveralCalls, opts: Any) -> Any:
        """Perform a call; return its handle, or None if all is done by then."""
        if isinstance(call, SeveralCalls):
            return AllWork([self.run(one, opts) for one in call.calls], call.result)
        asynchronous, limit = getattr(opts, "asyncOp", True), limit_ns(opts)
        if profiling.on():
            start = partial(self._start, call, asynchronous, limit)
            return profiling.with_profiler(call.operation, call.inputs, start, asynchronous)
        return self._start(call, asynchronous, limit)

    def _start(self, call: Call, asynchronous: bool, limit: int) -> Any:
        """Perform the call: here if it may, else on the group's thread. It is numbered when it
        begins, which is in the same order on all ranks. ``limit``: ns without progress; 0: the
        group's.
        """
        self._check_open()
        session, queue = self.context.session, self.queue
        where, label = session.recorder.where, session.current_label()
        if not asynchronous and queue.idle():
            with queue.lock:
                self.comm.slots.run_inline(True)
                self._perform(call, limit, where, label)
            return None  # torch takes no handle as "done"
        devices = {tensor.device for tensor in call.result if tensor.device.type == "cuda"}
        work = WorkbenchWork(call.result, list(devices))
        if label:
            work.telling = lambda: session.label(label)
        queue.submit(lambda: self._perform(call, limit, where, label), work)
        if not asynchronous:
            work.wait()
            return None
        if len(call.result) == 1 and call.result[0].numel() == 1:
            # A handle's methods end with its last reference in Python. DDP's join counts the ranks
            # that are still there, hands the handle to C++ and asks it in the backward pass.
            self._counts.append(work)
        return self._note(work)

    def _perform(self, call: Call, limit: int, where: Where, label: str) -> None:
        watch = self.members.watch
        watch.limit_ns = limit or watch.timeout_ns
        with np.errstate(all="ignore") if self.context.session.attached else nullcontext():
            call.perform(self.context, next(self._numbers), where, label)

    # -- the end --

    def _check_open(self) -> None:
        if self._closed:
            raise GroupClosed(
                f"process group {self.label} was destroyed, and rank {self.context.me} still uses "
                "it: make a new one with torch.distributed.new_group"
            )

    def close(self) -> None:
        """Finish what is queued, stop the threads, let peers take what was sent."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # a fork of this rank: threads, mailboxes and connections are not its own
        watch = self.members.watch
        self._messages.close()
        self.queue.close(give_up=lambda: setattr(watch, "closing", True))
        self.members.close()
        if watch.error is not None:
            # Gloo's destructor waits for what is under way inside, and might wait forever.
            others = [peer for peer in range(self.comm.size) if peer != self.comm.rank]
            break_connections(self.inner, others)
        live_groups.count(self)
        for lane in [self.comm.lane, *self._messages.lanes]:  # of the groups that follow
            self.context.session.recorder.give_back(lane)

    shutdown = close

    def abort(self) -> None:
        if not self._closed:
            self.members.watch.fail(GroupClosed("the process group was aborted"))
        self.close()

    def __del__(self) -> None:
        # The threads hold no reference to the group, so this may be the last chance to end them.
        self.close()


def limit_ns(opts: Any) -> int:
    """Return what these options allow one call in nanoseconds; 0: they leave it to the group."""
    limit = getattr(opts, "timeout", None)
    return 0 if limit is None or limit.days < 0 else int(limit.total_seconds() * 1e9)
