"""The torch.distributed backend "workbench".

``import workbench; torch.distributed.init_process_group("workbench", ...)`` gives a ProcessGroup
whose collectives (operations.py, reductions.py) and point-to-point messages go through our
communicator, chunk by chunk; what our algorithms do not take runs in a Gloo group inside and is
recorded as one span a call. So plain PyTorch code (DDP, FSDP2, tensor parallel, pipelining, a
script) is seen without a change.

A synchronous call with nothing queued runs in the caller: the hop to another thread is most of a
small collective's time. Asynchronous ones run on the group's thread, one after the other, in order
of call.

What passes over Gloo passes here (tests/drop_in). Where the two differ on purpose:

* Taken too: int16; unsigned numbers and eight-bit floats where they only move; what is complex
  in a gather; tensors that are not contiguous; messages to oneself.
* ``get_backend()`` is "workbench". What torch does for the name "gloo" alone it does not for ours:
  ``dist.monitored_barrier`` (the group's own method works); its profiler titles begin with
  "workbench:", not "gloo:", and there are no "c10d::" operations around them, nor shapes of what
  is asynchronous.
* Ranks that disagree on an operation, its shape, dtype or root are told so, where Gloo ends the
  process or waits; a message must have the shape and dtype that its receiver expects, where Gloo
  takes a shorter one.
* A time limit counts time without progress, not time since the call. Errors are a RuntimeError as
  torch's are, under names of their own (errors.py). A wait for one message that gave up breaks
  nothing: the message may still come.
* A group that was destroyed, or aborted, refuses further calls. Gloo's goes on.
* Operations of one group run one after the other, in order of call; Gloo runs two at a time.
* A list of several tensors for ``group.allreduce`` is as many all-reduces; Gloo adds them up.
* A rank's part after ``reduce`` is left alone where it is not the root; Gloo uses it as room.
  MIN and MAX of what is no number are none; over Gloo that depends on the order.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import (
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    Store,
)

from workbench import profiled
from workbench.arrays import moved
from workbench.choosing.costs import agreed
from workbench.communicator import Communicator
from workbench.driver import Driver
from workbench.errors import CollectiveError, GroupClosed, WorkbenchError
from workbench.forms import Forms
from workbench.hosts import of_hosts
from workbench.members import Members
from workbench.p2p import RecvEngine, SendEngine, Transfer
from workbench.session import Session, session
from workbench.signature import signature
from workbench.staging import Staging, in_mode_of
from workbench.transports.gloo import break_connections
from workbench.work import JobQueue, P2PWork, WorkbenchWork

UNCOUNTED = ("metrics", "control")  # groups whose bytes are not training's
_groups: weakref.WeakSet[WorkbenchGroup] = weakref.WeakSet()
_making = threading.RLock()  # of what threads share and is made with the first message


class WorkbenchGroup(Forms):
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
        self._store = store
        self.inner = _Inner(PrefixStore("inner", store), rank, size, timeout=timeout)
        self.inner.outer = weakref.ref(self)
        for device in ("cpu", "cuda"):  # as torch does for Gloo, whether there is one or not
            self._register_backend(torch.device(device), ProcessGroup.BackendType.GLOO, self.inner)
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
        given = here.costs or agreed(PrefixStore("costs", store), rank)
        links = given.links.among(self.members.world)
        if not links.levels:  # no spec says which ranks share a host: where they are says it
            links = replace(links, levels=of_hosts([peer.host for peer in self.members.peers]))
        self.comm.levels = links.levels
        self.costs = given.over(links).cut_into(here.slot_bytes)
        slots = self.comm.slots  # not self: the thread must not keep the group alive
        self.queue = JobQueue(lane, before=lambda: setattr(slots, "inline", False))
        self._ops = itertools.count()  # numbers of collectives
        self._plans = {}
        self._engines: dict[str, SendEngine | RecvEngine] = {}
        self._counts: deque[WorkbenchWork] = deque(maxlen=8)
        self._staging = Staging(self.comm.lane)
        self._pid, self._closed = os.getpid(), False
        _groups.add(self)

    def getBackendName(self) -> str:
        return "workbench"

    def _choose(self, operation: str, nbytes: int) -> str:
        """What "auto" takes, the same on every rank: they go by the same costs."""
        from workbench.choosing.choose import choose  # here: it stands on what this file defines

        return choose(operation, self.comm.size, nbytes, self.costs)

    # -- what else torch asks of a group --

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on: how long anything may take without progress."""
        self.timeout = timeout
        self.members.set_timeout(timeout)
        ProcessGroupGloo._set_default_timeout(self.inner, timeout)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """As Gloo's, which names who did not come. (``torch.distributed.monitored_barrier`` asks
        for a group called "gloo".)
        """
        self.inner.monitored_barrier(timeout or self.timeout, wait_all_ranks)

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
        x = tensors[0].data
        host = (
            x
            if x.is_contiguous() and x.device.type == "cpu"
            else torch.empty(x.shape, dtype=x.dtype)
        )

        def after(transfer: Transfer) -> None:
            if host is not x and transfer.error is None:
                x.copy_(host)

        return self._message("recv", host, frm, tag, tensors, in_mode_of(x, after))

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
        if self._closed:
            raise self._is_closed()
        lowest = -1 if kind == "recv" else 0  # -1: from anybody
        if not lowest <= peer < self.comm.size:
            raise CollectiveError(
                f"rank {self._me} cannot {kind} with rank {peer} of group {self.label}: it has "
                f"ranks 0 to {self.comm.size - 1}"
            )
        engine = self._engines.get(kind) or self._new_engine(kind)
        number = signature("p2p", host.dtype, host.numel())
        flat = moved(host.view(-1))
        recorder = self.session.recorder
        label = recorder.name(self.session.current_label())
        transfer = Transfer(flat, peer, tag, number, recorder.where, label)
        transfer.after = after
        work = P2PWork(engine, transfer, result)
        if profiled.on():
            title = "recvAnySource" if peer < 0 else kind
            return profiled.told(title, result, partial(_posted, engine, transfer, work), True)
        return _posted(engine, transfer, work)

    def _new_engine(self, kind: str) -> SendEngine | RecvEngine:
        with _making:  # one, whichever thread has the first message
            if kind not in self._engines:
                lane = kind if self.label == "default" else f"{kind}:{self.label}"
                made = (SendEngine if kind == "send" else RecvEngine)(
                    self.comm, lane, self.session.driver
                )
                self._engines[kind] = made
            return self._engines[kind]

    def spare(self, world_ranks: Iterable[int]) -> None:
        """The end of these ranks is no failure of the group.

        Only messages from them fail then, with PeerLost; messages to them are dropped.
        """
        watch, world = self.members.watch, self.members.world
        watch.spare = {world.index(rank) for rank in world_ranks if rank in world}
        watch.found = self.session.lost

    # -- running --

    def _run(
        self, operation: str, job: Callable[[int], None], inputs: list[torch.Tensor],
        result: list[torch.Tensor], opts: Any,
    ) -> Any:  # fmt: skip
        asynchronous = getattr(opts, "asyncOp", True)
        if profiled.on():
            start = partial(self._start, job, result, asynchronous, limit_ns(opts))
            return profiled.told(operation, inputs, start, asynchronous)
        return self._start(job, result, asynchronous, limit_ns(opts))

    def _start(
        self, job: Callable[[int], None], result: list[torch.Tensor], asynchronous: bool, limit: int
    ) -> Any:
        """Run the collective: here if it may, else on the group's thread. It is numbered when it
        begins, which is in the same order on all ranks. ``limit``: ns without progress; 0: the
        group's.
        """
        if self._closed:
            raise self._is_closed()
        if not asynchronous and self.queue.idle():
            with self.queue.lock:
                self.comm.slots.inline = True
                self._perform(job, limit)
            return None  # torch takes no handle as "done"
        work = WorkbenchWork(result, _devices(result))
        if label := self.session.current_label():
            work.telling = lambda: self.session.label(label)
        self.queue.submit(lambda: self._perform(job, limit), work)
        if not asynchronous:
            work.wait()
            return None
        if len(result) == 1 and result[0].numel() == 1:
            # A handle's methods end with its last reference in Python. DDP's join counts who is
            # still there, hands the handle to C++ and asks it in the backward pass.
            self._counts.append(work)
        return work

    def _perform(self, job: Callable[[int], None], limit: int) -> None:
        watch = self.members.watch
        watch.limit_ns = limit or watch.timeout_ns
        job(next(self._ops))

    def _is_closed(self) -> GroupClosed:
        return GroupClosed(
            f"process group {self.label} was destroyed, and rank {self._me} still uses it: make a "
            "new one with torch.distributed.new_group"
        )

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
        self.members.watch.fail(GroupClosed("the process group was aborted"))
        self.close()

    def __del__(self) -> None:
        # The threads hold no reference to the group, so this may be the last chance to end them.
        self.close()


class _Inner(ProcessGroupGloo):
    """The Gloo group inside. torch asks it, where it knows Gloo by name, on behalf of ours."""

    outer: Any

    def _set_default_timeout(self, timeout: timedelta) -> None:
        if (group := self.outer()) is not None:
            group.set_timeout(timeout)


def _posted(engine: Any, transfer: Transfer, work: P2PWork) -> P2PWork:
    engine.driver.submit(engine, transfer)
    return work


def _driver(here: Session) -> Driver:
    with _making:
        if here.driver is None or here.driver.pid != os.getpid():  # a fork has none
            here.driver = Driver()
        driver: Driver = here.driver
        return driver


def limit_ns(opts: Any) -> int:
    """What these options allow one call in nanoseconds; 0: they leave it to the group."""
    given = getattr(opts, "timeout", None)
    return 0 if given is None or given.days < 0 else int(given.total_seconds() * 1e9)


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
