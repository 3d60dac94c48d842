"""A group of torch's own, with every operation recorded as a span: rank, operation, group, bytes,
start and end.

    torch.distributed, DDP's reducer, FSDP -> ObservedGroup -> the group that torch made

The group inside does the work, and what it returns is returned. An operation ends when its future
is done; a message, whose handle has no future, when it is waited for or asked about; on a GPU, when
the device has come past it (device_time.py). Nothing is known of the inside of an operation: pages
say "operations only".
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    PrefixStore,
    ProcessGroup,
    Work,
    _register_process_group,
    _unregister_process_group,
)

from workbench.attaching import device_time
from workbench.attaching.spans import Span, Spans
from workbench.process_group.entry import session_of_job
from workbench.process_group.group import WorkbenchGroup
from workbench.process_group.making import name_in_records
from workbench.recording.group_members import group_words
from workbench.transports.rendezvous import meet

_MEETING = timedelta(seconds=60)  # for what the ranks tell each other of the job
_LAST_S = 2.0  # so long the end of a group, or of the interpreter, waits for what is under way


def observe(group: Any, store: Any, ranks: Sequence[int], name: str) -> Any:
    """Return what torch is to use in ``group``'s place, registered where that was.

    ``ranks``: the world ranks of a group that is not the default one; ``name``: the backend that
    was asked for. A group of ours, and one that is observed already, is returned as it is.
    """
    if isinstance(group, ObservedGroup | WorkbenchGroup):
        return group
    session = session_of_job(ranks[group.rank()] if ranks else group.rank())
    session.attach()
    if not ranks:
        session.recorder.only_operations()
        session.recorder.joined(group.size())
        _agree_on_the_job(session, store, group)
    shown = name_in_records(str(group.group_name), str(group.group_desc))
    if ranks:
        session.recorder.group(shown, ranks)
    spans = Spans(session, session.group_name(shown, whole=not ranks), name, ranks)
    outer = ObservedGroup(group, spans)
    _put_in_place(group, outer)
    _observed_groups.add(outer)
    return outer


def _agree_on_the_job(session: Any, store: Any, group: Any) -> None:
    """Note of which attempt of which job this process is, as all ranks agree on it.

    Without a store that works for all (MPI's groups have none) it stays unsaid.
    """
    keys = PrefixStore("workbench", store)
    with contextlib.suppress(Exception):
        ranks = range(group.size())
        meeting = meet(keys, group.rank(), ranks, group="default", timeout=_MEETING)
        session.recorder.belongs(meeting.job, meeting.attempt)


def _put_in_place(inner: Any, outer: ObservedGroup) -> None:
    """Register ``outer`` wherever torch has registered ``inner``."""
    world = dist.distributed_c10d._world
    tables: list[Any] = [world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag]
    for table in tables:
        if inner in table:
            table[outer] = table.pop(inner)
    for groups in world.tags_to_pg.values():
        groups[:] = [outer if one is inner else one for one in groups]
    _unregister_process_group(inner.group_name)
    _register_process_group(inner.group_name, outer)


def _observed(method: str, operation: str) -> Callable[..., Any]:
    def call(self: ObservedGroup, *args: Any, **options: Any) -> Any:
        return self._collective(method, operation, args, options)

    call.__name__ = method
    return call


class ObservedGroup(ProcessGroup):
    """One rank's end of a group that torch made, with spans of what it is asked for."""

    def __init__(self, inner: Any, spans: Spans) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner, self.spans = inner, spans
        self.ranks = [spans.world_rank(rank) for rank in range(inner.size())]
        kinds, types = [], ProcessGroup.BackendType
        for device in inner._device_types:
            backend = inner._get_backend(device)
            kinds.append(dist.Backend.backend_type_map.get(backend.name(), types.CUSTOM))
            self._register_backend(device, kinds[-1], backend)
        if kinds:  # as torch chooses
            self._set_default_backend(types.NCCL if types.NCCL in kinds else kinds[0])
        self._set_group_name(inner.group_name)
        self._set_group_desc(inner.group_desc)
        if inner.bound_device_id is not None:
            self.bound_device_id = inner.bound_device_id

    def __repr__(self) -> str:
        return f"<observed {group_words(self.ranks)}>"

    allreduce = _observed("allreduce", "all_reduce")
    allreduce_coalesced = _observed("allreduce_coalesced", "all_reduce")
    broadcast = _observed("broadcast", "broadcast")
    reduce = _observed("reduce", "reduce")
    allgather = _observed("allgather", "all_gather")
    _allgather_base = _observed("_allgather_base", "all_gather")
    all_gather_single = _observed("all_gather_single", "all_gather")
    allgather_coalesced = _observed("allgather_coalesced", "all_gather")
    allgather_into_tensor_coalesced = _observed("allgather_into_tensor_coalesced", "all_gather")
    all_gather_single_coalesced = _observed("all_gather_single_coalesced", "all_gather")
    gather = _observed("gather", "gather")
    scatter = _observed("scatter", "scatter")
    reduce_scatter = _observed("reduce_scatter", "reduce_scatter")
    _reduce_scatter_base = _observed("_reduce_scatter_base", "reduce_scatter")
    reduce_scatter_single = _observed("reduce_scatter_single", "reduce_scatter")
    reduce_scatter_tensor_coalesced = _observed("reduce_scatter_tensor_coalesced", "reduce_scatter")
    reduce_scatter_single_coalesced = _observed("reduce_scatter_single_coalesced", "reduce_scatter")
    alltoall_base = _observed("alltoall_base", "all_to_all")
    all_to_all_single = _observed("all_to_all_single", "all_to_all")
    alltoall = _observed("alltoall", "all_to_all")
    barrier = _observed("barrier", "barrier")

    def _collective(
        self, method: str, operation: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        opts = args[-1] if args else None
        tensors = _tensors(args[0]) if args and operation != "barrier" else []
        others = _tensors(args[1]) if len(args) > 1 else []
        root = getattr(opts, "rootRank", -1)
        nbytes = max(_bytes(tensors), _bytes(others))
        if operation in ("gather", "scatter"):  # only the root passes the whole
            nbytes = self.size() * min(filter(None, (_bytes(tensors), _bytes(others))), default=0)
        span = self.spans.collective(operation, nbytes, root, tensors[0] if tensors else None)
        asynchronous = getattr(opts, "asyncOp", True)
        return self._ended(span, getattr(self.inner, method), args, options, tensors, asynchronous)

    def _ended(
        self,
        span: Span,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        tensors: list[torch.Tensor],
        asynchronous: bool,
    ) -> Any:
        """Call the group inside, and end the span when the operation has ended."""
        if tensors and tensors[0].is_cuda:
            return device_time.measured(span, lambda: call(*args, **options), asynchronous)
        try:
            work = call(*args, **options)
            if work is not None and not asynchronous:
                work.wait()
                work = None
        except BaseException:
            span.end()
            raise
        if work is None:
            span.end()
            return None
        try:
            work.get_future().add_done_callback(lambda _: span.end())
        except RuntimeError:  # a handle without a future
            return ObservedWork(work, span)
        return work

    # -- point to point --

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        span = self.spans.message("send", to, tag, tensors[0])
        return self._ended(span, self.inner.send, (tensors, to, tag), {}, tensors, True)

    def recv(self, tensors: list[torch.Tensor], frm: int, tag: int) -> Any:
        span = self.spans.message("recv", frm, tag, tensors[0])
        return self._ended(span, self.inner.recv, (tensors, frm, tag), {}, tensors, True)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        span = self.spans.message("recv", -1, tag, tensors[0])
        return self._ended(span, self.inner.recv_anysource, (tensors, tag), {}, tensors, True)

    # -- what else torch asks of a group --

    def getBackendName(self) -> str:
        return str(self.inner.name())

    name = getBackendName

    def get_group_store(self) -> Any:
        return self.inner.get_group_store()

    def set_timeout(self, timeout: timedelta) -> None:
        self.inner.set_timeout(timeout)

    def monitored_barrier(self, *args: Any, **options: Any) -> None:
        span = self.spans.collective("monitored_barrier", 0, -1, None)
        try:
            self.inner.monitored_barrier(*args, **options)
        finally:
            span.end()

    def _start_coalescing(self, device: torch.device) -> None:
        self.inner._start_coalescing(device)

    def _end_coalescing(self, device: torch.device) -> Any:
        return self.inner._end_coalescing(device)

    def _get_sequence_number_for_group(self) -> int:
        return int(self.inner._get_sequence_number_for_group())

    def _set_sequence_number_for_group(self) -> None:
        self.inner._set_sequence_number_for_group()

    def split_group(self, *args: Any, **options: Any) -> Any:
        return self.inner.split_group(*args, **options)

    def shutdown(self) -> None:
        device_time.finish(_LAST_S)
        self.spans.close()
        self.inner.shutdown()

    def abort(self) -> None:
        self.spans.close()
        self.inner.abort()


class ObservedWork(Work):
    """The handle of a message: its span ends when it is known that the message has arrived."""

    def __init__(self, inner: Any, span: Span) -> None:
        super().__init__()
        self._inner, self._span = inner, span

    def wait(self, timeout: timedelta | None = None) -> bool:
        try:
            result = self._inner.wait() if timeout is None else self._inner.wait(timeout)
        except BaseException:
            self._span.end()
            raise
        self._over()
        return bool(result)

    def is_completed(self) -> bool:
        if result := bool(self._inner.is_completed()):
            self._over()
        return result

    def _over(self) -> None:
        if self._span.peer < 0:
            with contextlib.suppress(RuntimeError):
                self._span.came_from(int(self._inner._source_rank()))
        self._span.end()

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        return self._inner.exception()

    def result(self) -> Any:
        return self._inner.result()

    def synchronize(self) -> None:
        self._inner.synchronize()
        self._over()

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())

    source_rank = _source_rank


def _tensors(argument: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument: one, a list of them, or lists in a list."""
    if isinstance(argument, torch.Tensor):
        return [argument]
    if not isinstance(argument, list | tuple):
        return []
    if len(argument) == 1 and isinstance(argument[0], torch.Tensor):
        return [argument[0]]
    return [tensor for part in argument for tensor in _tensors(part)]


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(x.nbytes for x in tensors)


_observed_groups: weakref.WeakSet[ObservedGroup] = weakref.WeakSet()


def _let_them_end() -> None:
    """Wait for operations that are under way, before the interpreter ends: their ends are told to
    Python from threads of torch's, which would find none and abort the process.
    """
    deadline = time.monotonic() + _LAST_S
    for group in list(_observed_groups):
        while group.spans.under_way and time.monotonic() < deadline:
            time.sleep(1e-3)


threading._register_atexit(_let_them_end)  # type: ignore[attr-defined]
