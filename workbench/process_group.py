"""The torch.distributed backend "workbench".

``import workbench; torch.distributed.init_process_group("workbench", ...)`` gives a ProcessGroup
whose all-reduce and point-to-point messages go through our communicator, chunk by chunk, and whose
other operations run in a Gloo group inside and are recorded as one span each. So plain PyTorch code
(DDP, FSDP2, tensor parallel, pipelining, a script) is seen without a change.

A synchronous call with nothing queued runs in the caller: the hop to another thread is most of a
small collective's time. Asynchronous ones run on the group's thread, one after the other, in order
of call.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllreduceOptions,
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    Store,
)

from workbench.arrays import LEFT_TO_TORCH, SUM, fast_array
from workbench.communicator import Communicator
from workbench.driver import Driver
from workbench.errors import CollectiveError, WorkbenchError
from workbench.events import Where, now
from workbench.gloo_operations import GlooOperations
from workbench.members import Members
from workbench.p2p import RecvEngine, SendEngine, Transfer
from workbench.session import Session, last_words, session
from workbench.signature import REDUCTIONS, signature
from workbench.staging import Staging, values_ready
from workbench.transports.gloo import break_connections
from workbench.work import AllWork, JobQueue, P2PWork, WorkbenchWork

ONE_SHOT_BYTES = 32 * 1024  # "auto": up to here one-shot, above it the ring
UNCOUNTED = ("metrics", "control")  # groups whose bytes are not training's
_OURS = {"SUM": SUM, "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "AVG": SUM}
_REDUCE_NAMES = {
    getattr(dist.ReduceOp, name): name for name in REDUCTIONS if hasattr(dist.ReduceOp, name)
}
_DENSE = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip
_groups: weakref.WeakSet[WorkbenchGroup] = weakref.WeakSet()


class WorkbenchGroup(GlooOperations):
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
        here = session()
        self.timeout, self.label = timeout, name
        self.inner = ProcessGroupGloo(PrefixStore("inner", store), rank, size, timeout=timeout)
        self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self.inner)
        if torch.cuda.is_available():
            self._register_backend(torch.device("cuda"), ProcessGroup.BackendType.GLOO, self.inner)
        self._set_default_backend(ProcessGroup.BackendType.GLOO)
        self.inner._set_sequence_number_for_group()
        self.members = Members(
            PrefixStore("workbench", store), rank, world, size,
            timeout=timeout, slot_bytes=here.slot_bytes, recorder=here.recorder,
            control=here.control, bells=_driver(here).bells,
        )  # fmt: skip
        lane = "comm" if name == "default" else f"comm:{name}"
        self.comm = Communicator(
            self.members, lane, name, control=here.control, generation=here.generation
        )
        self.session = here
        slots = self.comm.slots  # not self: the thread must not keep the group alive
        self.queue = JobQueue(lane, before=lambda: setattr(slots, "inline", False))
        self._op = 0
        self._plans: dict[tuple[Any, ...], tuple[int, int, str, str]] = {}
        self._engines: dict[str, SendEngine | RecvEngine] = {}
        self._staging = Staging(self.comm.lane)
        self._pid, self._closed = os.getpid(), False
        _groups.add(self)

    def getBackendName(self) -> str:
        return "workbench"

    # -- all-reduce: ours --

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else AllreduceOptions()
        reduction = _REDUCE_NAMES.get(getattr(opts.reduceOp, "op", opts.reduceOp), "")
        x = tensors[0]
        if (
            self.session.native
            or x.layout != torch.strided
            or x.dtype not in _DENSE
            or reduction not in _OURS
        ):
            return self._delegate(
                "all_reduce", lambda: self.inner.allreduce(tensors, opts), tensors, opts, reduction
            )
        if reduction == "AVG" and not x.is_floating_point():
            raise CollectiveError(
                f"AVG takes floating and complex types, not {x.dtype}: use SUM and divide"
            )
        if len(tensors) > 1:
            works = [self.allreduce([one], opts) for one in tensors]
            return AllWork(works, tensors) if opts.asyncOp else None
        where, label = self.session.recorder.where, self.session.current_label()
        ready = values_ready(x)
        return self._run(
            lambda op: self._all_reduce(op, x, reduction, where, label, ready),
            tensors,
            opts.asyncOp,
        )

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        works = [self.allreduce([one], opts or AllreduceOptions()) for one in tensors]
        return AllWork([work for work in works if work is not None], tensors)

    def _all_reduce(
        self, op: int, x: torch.Tensor, reduction: str, where: Where, label: str, ready: Any
    ) -> None:
        comm, start = self.comm, now()
        nbytes, number, algorithm, dtype = self._plan(x, reduction)
        comm.begin("all_reduce", algorithm, op, number, where, tuple(x.shape), dtype)
        try:
            if comm.size > 1 and nbytes:
                self._reduce_in_place(x, algorithm, _OURS[reduction], reduction == "AVG", ready)
        finally:
            comm.end(start, nbytes, label, x.element_size())

    def _reduce_in_place(
        self, x: torch.Tensor, algorithm: str, reduce: str, average: bool, ready: Any
    ) -> None:
        x = x.detach()
        dense = (
            x if x.is_contiguous() and x.device.type == "cpu" else self._staging.to_host(x, ready)
        )
        flat = dense.view(-1)
        result = self.session.algorithm("all_reduce", algorithm)(
            self.comm, fast_array(flat), reduce
        )
        if isinstance(result, torch.Tensor) and result.data_ptr() != flat.data_ptr():
            flat.copy_(result.view(-1))
        if average:
            flat.div_(self.comm.size)
        if dense is not x:
            self._staging.back(x, dense)

    def _plan(self, x: torch.Tensor, reduction: str) -> tuple[int, int, str, str]:
        """Payload bytes, signature, algorithm and dtype's name of an all-reduce; worked out once
        each.
        """
        key = x.dtype, x.numel(), reduction, self.session.all_reduce
        plan = self._plans.get(key)
        if plan is None:
            nbytes = x.numel() * x.element_size()
            number = signature("all_reduce", x.dtype, x.numel(), reduction)
            plan = nbytes, number, self._choose(nbytes), str(x.dtype).removeprefix("torch.")
            self._plans[key] = plan
        return plan

    def _choose(self, nbytes: int) -> str:
        chosen: str = self.session.all_reduce
        if chosen != "auto":
            return chosen
        return "one_shot" if nbytes <= ONE_SHOT_BYTES else "ring"

    # -- point to point: ours --

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        x = tensors[0]
        host = self._dense(x)
        return self._message("send", host, to, tag, tensors, None)

    def recv(self, tensors: list[torch.Tensor], frm: int, tag: int) -> Any:
        return self._receive(tensors, frm, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        return self._receive(tensors, -1, tag)

    def _receive(self, tensors: list[torch.Tensor], frm: int, tag: int) -> Any:
        x = tensors[0].detach()
        host = (
            x
            if x.is_contiguous() and x.device.type == "cpu"
            else torch.empty(x.shape, dtype=x.dtype)
        )

        def after(transfer: Transfer) -> None:
            if host is not x and transfer.error is None:
                x.copy_(host)

        return self._message("recv", host, frm, tag, tensors, after)

    def _dense(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach().cpu().contiguous()

    def _message(
        self,
        kind: str,
        host: torch.Tensor,
        peer: int,
        tag: int,
        result: list[torch.Tensor],
        after: Any,
    ) -> Any:
        engine = self._engines.get(kind)
        if engine is None:
            lane = kind if self.label == "default" else f"{kind}:{self.label}"
            engine = self._engines[kind] = (SendEngine if kind == "send" else RecvEngine)(
                self.comm, lane, self.session.driver
            )
        number = signature("p2p", host.dtype, host.numel())
        flat = _bytes_if_odd(host.view(-1)).numpy()
        transfer = Transfer(flat, peer, tag, number, self.session.recorder.where)
        transfer.after = after
        work = P2PWork(engine, transfer, result)
        engine.driver.submit(engine, transfer)
        return work

    def spare(self, world_ranks: Iterable[int]) -> None:
        """The end of these ranks is no failure of the group.

        Only messages from them fail then, with PeerLost; messages to them are dropped.
        """
        watch, world = self.members.watch, self.members.world
        watch.spare = {world.index(rank) for rank in world_ranks if rank in world}
        watch.found = self.session.lost

    # -- running --

    def _run(
        self, job: Callable[[int], None], result: list[torch.Tensor], asynchronous: bool
    ) -> Any:
        """Give the collective its number and run it: here if it may, else on the group's thread."""
        op = self._op
        self._op += 1
        if not asynchronous and self.queue.idle():
            with self.queue.lock:
                self.comm.slots.inline = True
                job(op)
            return None  # torch takes no handle as "done"
        work = WorkbenchWork(result, _devices(result))
        self.queue.submit(lambda: job(op), work)
        if not asynchronous:
            work.wait()
            return None
        return work

    def close(self) -> None:
        """Finish what is queued, stop the threads, let peers take what was sent."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # a fork of this rank: threads, mailboxes and connections are not its own
        watch = self.members.watch
        for engine in self._engines.values():
            engine.close()
        self.queue.close(give_up=lambda: setattr(watch, "closing", True))
        self.members.close()
        if watch.error is not None:
            # Gloo's destructor waits for what is under way inside, and nobody may come for it.
            others = [peer for peer in range(self.comm.size) if peer != self.comm.rank]
            break_connections(self.inner, others)

    shutdown = close

    def abort(self) -> None:
        self.members.watch.fail(WorkbenchError("the process group was aborted"))
        self.close()

    def __del__(self) -> None:
        # The threads hold no reference to the group, so this may be the last chance to end them.
        self.close()


def _bytes_if_odd(flat: torch.Tensor) -> torch.Tensor:
    """Dtypes that numpy does not know travel as bytes: a message is not added to anything."""
    if flat.dtype in _DENSE and flat.dtype not in LEFT_TO_TORCH:
        return flat
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)  # an empty one may have stride 0


def _driver(here: Session) -> Driver:
    if here.driver is None or here.driver.pid != os.getpid():  # a fork has none
        here.driver = Driver()
    driver: Driver = here.driver
    return driver


def _devices(tensors: list[torch.Tensor]) -> list[torch.device]:
    return list({tensor.device for tensor in tensors if tensor.device.type == "cuda"})


def close_all() -> None:
    """Close every group of this process. Runs before the interpreter ends: a thread of ours that
    still waits then would abort the process ("terminate called without an active exception")."""
    for group in list(_groups):
        group.close()


def bytes_sent() -> int:
    """Payload bytes that this rank has sent in training: metrics, checks, grants left out."""
    counted = [group for group in list(_groups) if group.label not in UNCOUNTED]
    return sum(group.comm.slots.bytes_sent for group in counted)


def first_error() -> WorkbenchError | None:
    """The failure that this process's groups found first, if any did."""
    return next(
        (group.members.watch.error for group in list(_groups) if group.members.watch.error), None
    )


def _create(options: Any, _backend_options: Any = None) -> WorkbenchGroup:
    world = list(options.global_ranks_in_group)  # empty for the default group
    rank, size = options.group_rank, options.group_size
    here = session(world[rank] if world else rank)
    name = here.group_name(options.group_id, whole=not world)
    if not world:
        here.recorder.joined(size)
    return WorkbenchGroup(options.store, rank, size, options.timeout, world or None, name)


def register() -> None:
    """Make "workbench" known to torch.distributed."""
    if "WORKBENCH" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "workbench", _create, extended_api=True, devices=["cpu", "cuda"]
        )
        threading._register_atexit(last_words)  # type: ignore[attr-defined]
        threading._register_atexit(close_all)  # type: ignore[attr-defined]  # is called first
