"""The torch.distributed backend "workbench".

``import workbench; torch.distributed.init_process_group("workbench", ...)`` gives a ProcessGroup whose
all-reduce and point-to-point messages go through our communicator, chunk by chunk, and whose other
operations run in a Gloo group inside and are recorded as one span each. So plain PyTorch code (DDP,
FSDP2, tensor parallel, pipelining, a script) is seen without a change.

A synchronous call with nothing queued runs in the caller: the hop to another thread is most of a small
collective's time. Asynchronous ones run on the group's thread, one after the other, in order of call.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroupGloo,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from torch.futures import Future

from workbench.arrays import SUM, fast_array
from workbench.communicator import Communicator
from workbench.control import SLICE
from workbench.errors import CollectiveError, PeerLost, RunTimeout, WorkbenchError
from workbench.events import COLLECTIVE, COPY, Where, now
from workbench.members import Members
from workbench.p2p import RecvEngine, SendEngine, Transfer
from workbench.session import session
from workbench.signature import REDUCTIONS, signature
from workbench.watch import Patience

ONE_SHOT_BYTES = 32 * 1024  # "auto": up to here one-shot, above it the ring
_OURS = {"SUM": SUM, "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "AVG": SUM}
_REDUCE_NAMES = {
    getattr(dist.ReduceOp, name): name for name in REDUCTIONS if hasattr(dist.ReduceOp, name)
}
_DENSE = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip
_groups: weakref.WeakSet[WorkbenchGroup] = weakref.WeakSet()


class WorkbenchWork(dist._Work):
    """The handle of an asynchronous operation."""

    def __init__(self, result: list[torch.Tensor], devices: list[torch.device]) -> None:
        super().__init__()
        self._done = threading.Event()
        self._result, self._error = result, None
        raw: Future[Any] = Future(devices=devices) if devices else Future()
        self._raw = raw
        # An error set with Future.set_exception never reaches C++; one raised in a callback does.
        self._future = raw.then(self._outcome)

    _error: Exception | None

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise RuntimeError(f"{type(self._error).__name__}: {self._error}")
        return self._result

    def complete(self, error: Exception | None = None) -> None:
        self._error = error
        self._done.set()
        self._raw.set_result(None if error else self._result)

    def wait(self, timeout: timedelta | None = None) -> bool:
        limit = timeout.total_seconds() if timeout else None
        if limit:
            if not self._done.wait(limit):
                raise RunTimeout(f"the operation was not done within {limit} s")
        else:
            while not self._done.wait(1.0):
                pass  # in slices, so that Ctrl-C gets through; the operation itself has the deadline
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> Any:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future[Any]:
        return self._future


class P2PWork(WorkbenchWork):
    """The handle of a message: whoever waits for it also moves it."""

    def __init__(self, engine: Any, transfer: Transfer, result: list[torch.Tensor]) -> None:
        super().__init__(result, [])
        self.engine, self.transfer = engine, transfer
        transfer.after.append(lambda done: self.complete(done.error))

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.engine.wait(self.transfer)
        return super().wait(timeout)

    def _source_rank(self) -> int:
        return int(self.transfer.peer)


class _Queue:
    """Runs a group's collectives one after the other: in the caller if it may, else on a thread."""

    def __init__(self, name: str, before: Callable[[], None]) -> None:
        """``before``: called on the thread before each job."""
        self.before = before
        self.lock = threading.RLock()
        self._jobs: deque[tuple[Callable[[], None], WorkbenchWork]] = deque()
        self._wake = threading.Condition()
        self._running = self.closed = False
        self._thread: threading.Thread | None = None
        self._name = name

    def idle(self) -> bool:
        return not self._jobs and not self._running

    def submit(self, job: Callable[[], None], work: WorkbenchWork) -> None:
        with self._wake:
            self._jobs.append((job, work))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, daemon=True, name=f"workbench {self._name}"
                )
                self._thread.start()
            self._wake.notify()

    def _loop(self) -> None:
        torch.set_num_threads(1)
        while True:
            with self._wake:
                while not self._jobs and not self.closed:
                    self._wake.wait()
                if not self._jobs:
                    return
                job, work = self._jobs.popleft()
                self._running = True
            error: Exception | None = None
            try:
                with self.lock:
                    self.before()
                    job()
            except Exception as caught:  # it belongs to whoever waits for the work
                error = caught
            self._running = False
            work.complete(error)

    def close(self) -> None:
        with self._wake:
            self.closed = True
            self._wake.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10.0)


class WorkbenchGroup(dist.ProcessGroup):
    """One rank's end of a process group."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        world: list[int] | None,
        name: str,
    ) -> None:
        super().__init__(rank, size)  # the three-argument form fails in a subclass
        here = session()
        self.timeout, self.label = timeout, name
        self.inner = ProcessGroupGloo(dist.PrefixStore("inner", store), rank, size, timeout=timeout)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self.inner)
        if torch.cuda.is_available():
            self._register_backend(
                torch.device("cuda"), dist.ProcessGroup.BackendType.GLOO, self.inner
            )
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self.inner._set_sequence_number_for_group()
        self.members = Members(
            dist.PrefixStore("workbench", store), rank, world, size,
            timeout=timeout, slot_bytes=here.slot_bytes, recorder=here.recorder, control=here.control,
        )  # fmt: skip
        lane = "comm" if name == "default" else f"comm:{name}"
        self.comm = Communicator(
            self.members, lane, name, control=here.control, generation=here.generation
        )
        self.session = here
        slots = self.comm.slots  # not self: the thread must not keep the group alive
        self.queue = _Queue(lane, before=lambda: setattr(slots, "inline", False))
        self._op = 0
        self._plans: dict[tuple[Any, ...], tuple[int, int, str, str]] = {}
        self._engines: dict[str, SendEngine | RecvEngine] = {}
        self._staging: dict[torch.dtype, torch.Tensor] = {}
        self._closed = False
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
                f"AVG takes floating and complex types, not {x.dtype}: use SUM and divide as you need"
            )
        if len(tensors) > 1:
            works = [self.allreduce([one], opts) for one in tensors]
            return _All(works, tensors) if opts.asyncOp else None
        where, label = self.session.recorder.where, self.session.current_label()
        ready = _record_stream_event(x)
        return self._run(
            lambda op: self._all_reduce(op, x, reduction, where, label, ready),
            tensors,
            opts.asyncOp,
        )

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        works = [self.allreduce([one], opts or AllreduceOptions()) for one in tensors]
        return _All([work for work in works if work is not None], tensors)

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
        dense = x if x.is_contiguous() and x.device.type == "cpu" else self._to_host(x, ready)
        flat = dense.view(-1)
        result = self.session.algorithm("all_reduce", algorithm)(self.comm, fast_array(flat), reduce)
        if isinstance(result, torch.Tensor) and result.data_ptr() != flat.data_ptr():
            flat.copy_(result.view(-1))
        if average:
            flat.div_(self.comm.size)
        if dense is not x:
            self._back(x, dense)

    def _plan(self, x: torch.Tensor, reduction: str) -> tuple[int, int, str, str]:
        """Payload bytes, signature, algorithm and dtype's name of an all-reduce; worked out once each."""
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

    # -- tensors that do not lie flat in host memory --

    def _to_host(self, x: torch.Tensor, ready: Any) -> torch.Tensor:
        """A contiguous copy on the host: pinned, and recorded as a ``copy``, if ``x`` lies on a GPU."""
        if x.device.type == "cpu":
            return x.contiguous()
        start = now()
        pinned = self._staging.get(x.dtype)
        if pinned is None or pinned.numel() < x.numel():
            pinned = self._staging[x.dtype] = torch.empty(x.numel(), dtype=x.dtype, pin_memory=True)
        host = pinned[: x.numel()].view(x.shape)
        with torch.cuda.stream(self._side_stream(x.device)):
            if ready is not None:
                torch.cuda.current_stream(x.device).wait_event(ready)
            host.copy_(x, non_blocking=True)
            torch.cuda.current_stream(x.device).synchronize()
        name = self.session.recorder.name("device to host")
        self.comm.lane.write(COPY, start, now(), nbytes=host.nbytes, name=name)
        return host

    def _back(self, x: torch.Tensor, dense: torch.Tensor) -> None:
        if x.device.type == "cpu":
            x.copy_(dense)
            return
        start = now()
        with torch.cuda.stream(self._side_stream(x.device)):
            x.copy_(dense, non_blocking=True)
            torch.cuda.current_stream(x.device).synchronize()
        name = self.session.recorder.name("host to device")
        self.comm.lane.write(COPY, start, now(), nbytes=dense.nbytes, name=name)

    def _side_stream(self, device: torch.device) -> torch.cuda.Stream:
        if not hasattr(self, "_stream"):
            self._stream = torch.cuda.Stream(device)
        return self._stream

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
        after = (lambda _: x.copy_(host)) if host is not x else None
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
                self.comm, lane
            )
        number = signature("p2p", host.dtype, host.numel())
        flat = _bytes_if_odd(host.view(-1))
        transfer = Transfer(flat, peer, tag, number, self.session.recorder.where)
        if after is not None:
            transfer.after.append(after)
        work = P2PWork(engine, transfer, result)
        engine.submit(transfer, wait=False)
        return work

    # -- everything else: Gloo, as one span --

    def _delegate(
        self,
        collective: str,
        call: Callable[[], Any],
        result: Any,
        opts: Any,
        reduction: str = "",
        same: torch.Tensor | None = None,
    ) -> Any:
        tensors = [same] if same is not None else []
        dtype = tensors[0].dtype if tensors else None
        elements = tensors[0].numel() if tensors else 0
        number = signature(collective, dtype, elements, reduction)
        nbytes = (
            sum(t.numel() * t.element_size() for t in _flatten(result)) if result is not None else 0
        )
        where, label = self.session.recorder.where, self.session.current_label()
        return self._run(
            lambda op: self._gloo(op, collective, call, number, nbytes, where, label),
            _flatten(result),
            getattr(opts, "asyncOp", True),
        )

    def _gloo(
        self,
        op: int,
        collective: str,
        call: Callable[[], Any],
        number: int,
        nbytes: int,
        where: Where,
        label: str,
    ) -> None:
        comm, start = self.comm, now()
        comm.begin(collective, "gloo", op, number, where, (), "")
        patience: Patience | None = None
        try:
            work, done = call(), threading.Event()
            work.get_future().add_done_callback(lambda _: done.set())
            while not done.wait(SLICE):
                patience = patience or Patience(
                    self.members.watch, -1, comm.lane, f"{collective} {op}"
                )
                patience.look()
            work.wait()
        except RuntimeError as error:
            if isinstance(error, WorkbenchError):
                raise
            raise self._gloo_error(error, f"{collective} {op}") from error
        finally:
            comm.end(start, nbytes, label)

    def _gloo_error(self, error: RuntimeError, doing: str) -> Exception:
        for peer in range(self.comm.size):
            if peer != self.comm.rank and self.members.peers[peer].gone:
                return self.members.watch.lost(peer, doing)
        if "Connection closed by peer" in str(error) or "Connection reset" in str(error):
            return self.members.watch.fail(PeerLost(f"a peer was lost in {doing}: {error}"))
        return error

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or BroadcastOptions()
        return self._delegate(
            "broadcast", lambda: self.inner.broadcast(tensors, opts), tensors, opts, same=tensors[0]
        )

    def reduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or ReduceOptions()
        return self._delegate(
            "reduce", lambda: self.inner.reduce(tensors, opts), tensors, opts, same=tensors[0]
        )

    def allgather(
        self, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any = None
    ) -> Any:
        opts = opts or AllgatherOptions()
        return self._delegate("all_gather", lambda: self.inner.allgather(out, x, opts), out, opts)

    def _allgather_base(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        return self._delegate(
            "all_gather", lambda: self.inner._allgather_base(out, x, opts), out, opts, same=x
        )

    all_gather_single = _allgather_base

    def allgather_coalesced(self, out: Any, x: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        return self._delegate(
            "all_gather_coalesced", lambda: self.inner.allgather_coalesced(out, x, opts), out, opts
        )

    def allgather_into_tensor_coalesced(
        self, outs: list[torch.Tensor], xs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        return _All(
            [self._allgather_base(out, x, opts) for out, x in zip(outs, xs, strict=True)], outs
        )

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, out: Any, x: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or GatherOptions()
        return self._delegate("gather", lambda: self.inner.gather(out, x, opts), out, opts)

    def scatter(self, out: list[torch.Tensor], x: Any, opts: Any = None) -> Any:
        opts = opts or ScatterOptions()
        return self._delegate("scatter", lambda: self.inner.scatter(out, x, opts), out, opts)

    def reduce_scatter(self, out: list[torch.Tensor], x: Any, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        return self._delegate(
            "reduce_scatter", lambda: self.inner.reduce_scatter(out, x, opts), out, opts
        )

    def _reduce_scatter_base(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        return self._delegate(
            "reduce_scatter",
            lambda: self.inner._reduce_scatter_base(out, x, opts),
            out,
            opts,
            same=x,
        )

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self, outs: list[torch.Tensor], xs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        return _All(
            [self._reduce_scatter_base(out, x, opts) for out, x in zip(outs, xs, strict=True)], outs
        )

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self, out: torch.Tensor, x: torch.Tensor, out_splits: Any, in_splits: Any, opts: Any = None
    ) -> Any:
        opts = opts or AllToAllOptions()
        return self._delegate(
            "all_to_all",
            lambda: self.inner.alltoall_base(out, x, out_splits, in_splits, opts),
            out,
            opts,
        )

    all_to_all_single = alltoall_base

    def alltoall(self, out: list[torch.Tensor], x: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or AllToAllOptions()
        return self._delegate("all_to_all", lambda: self.inner.alltoall(out, x, opts), out, opts)

    def barrier(self, opts: Any = None) -> Any:
        opts = opts or BarrierOptions()
        return self._delegate("barrier", lambda: self.inner.barrier(opts), None, opts)

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
        if self.members.watch.error is None:
            self.members.watch.closing = not self.queue.idle()
        self.queue.close()
        for engine in self._engines.values():
            engine.close()
        self.members.close()

    shutdown = close

    def abort(self) -> None:
        self.members.watch.fail(WorkbenchError("the process group was aborted"))
        self.close()

    def __del__(self) -> None:
        # The threads hold no reference to the group, so this may be the last chance to end them.
        self.close()


class _All(dist._Work):
    """The handle of several operations: done when all are."""

    def __init__(self, works: list[Any], result: Any) -> None:
        super().__init__()
        self._works, self._result = [work for work in works if work is not None], result

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> Future[Any]:
        done: Future[Any] = Future()
        self.wait()
        done.set_result(self._result)
        return done


def _bytes_if_odd(flat: torch.Tensor) -> torch.Tensor:
    """Dtypes that numpy does not know travel as bytes: a message is not added to anything."""
    return (
        flat.view(torch.uint8)
        if flat.dtype not in _DENSE or flat.dtype in (torch.bfloat16, torch.float16)
        else flat
    )


def _flatten(result: Any) -> list[torch.Tensor]:
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in _flatten(part)]


def _devices(tensors: list[torch.Tensor]) -> list[torch.device]:
    return list({tensor.device for tensor in tensors if tensor.device.type == "cuda"})


def _record_stream_event(x: torch.Tensor) -> Any:
    """For a GPU tensor: the point in the caller's stream after which its values are there."""
    if x.device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(x.device))
    return event


def close_all() -> None:
    """Close every group of this process. Runs before the interpreter ends: a thread of ours that still
    waits then would abort the process ("terminate called without an active exception")."""
    for group in list(_groups):
        group.close()


def bytes_sent() -> int:
    """Payload bytes that this rank has sent in training: metrics and checks left out."""
    return sum(group.comm.slots.bytes_sent for group in list(_groups) if group.label != "metrics")


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
    return WorkbenchGroup(options.store, rank, size, options.timeout, world or None, name)


def register() -> None:
    """Make "workbench" known to torch.distributed."""
    if "WORKBENCH" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "workbench", _create, extended_api=True, devices=["cpu", "cuda"]
        )
        threading._register_atexit(close_all)  # type: ignore[attr-defined]
