"""Operations that a Gloo group does for us, each recorded as one span: what our algorithms do not
take, and everything in a run over backend="gloo".

What the group hands to Gloo it still watches: a peer that ends, or that is in another operation, is
noticed here and named, where Gloo alone would wait for its own timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions, ProcessGroup

from workbench.communicator import Communicator
from workbench.control import SLICE
from workbench.errors import CollectiveError, PeerLost, WorkbenchError
from workbench.events import Where, now
from workbench.members import Members
from workbench.session import Session
from workbench.signature import signature
from workbench.staging import in_mode_of
from workbench.watch import Patience
from workbench.work import AllWork

NAMING = 0.5  # seconds: how long to look for who it was that broke a connection


class GlooOperations(ProcessGroup):
    """The part of ``WorkbenchGroup`` that is delegated to the group inside."""

    inner: Any  # a ProcessGroupGloo; its methods are not in torch's type stubs
    comm: Communicator
    members: Members
    session: Session

    def _run(
        self, operation: str, job: Callable[[int], None], inputs: list[torch.Tensor],
        result: list[torch.Tensor], opts: Any,
    ) -> Any:  # fmt: skip
        raise NotImplementedError  # WorkbenchGroup's

    def _delegate(
        self,
        collective: str,
        call: Callable[[], Any],
        result: Any,
        opts: Any,
        reduction: str = "",
        same: torch.Tensor | None = None,
        then: Callable[[], Any] = lambda: None,
        root: int = -1,
    ) -> Any:
        """Run ``call`` in Gloo, then ``then``.

        ``same``: a tensor that must be alike on every rank. ``root``: the root's rank in the group.
        """
        tensors = [same] if same is not None else []
        dtype = tensors[0].dtype if tensors else None
        elements = tensors[0].numel() if tensors else 0
        root = self.members.world[root] if root >= 0 else -1
        number = signature(collective, dtype, elements, reduction, root)
        nbytes = (
            sum(t.numel() * t.element_size() for t in flatten(result)) if result is not None else 0
        )
        where, label = self.session.recorder.where, self.session.current_label()
        return self._run(
            collective,
            lambda op: self._gloo(op, collective, call, then, number, nbytes, where, label, root),
            tensors,
            flatten(result),
            opts,
        )

    def _gloo(
        self,
        op: int,
        collective: str,
        call: Callable[[], Any],
        then: Callable[[], Any],
        number: int,
        nbytes: int,
        where: Where,
        label: str,
        root: int,
    ) -> None:
        comm, start = self.comm, now()
        comm.begin(collective, "gloo", op, number, where, (), "")
        patience: Patience | None = None
        try:
            self._agree()
            work, done = call(), threading.Event()
            work.get_future().add_done_callback(lambda _: done.set())
            while not done.wait(SLICE):
                patience = patience or Patience(
                    self.members.watch, -1, comm.lane, f"{collective} {op}"
                )
                patience.look()
            work.wait()
            then()
        except RuntimeError as error:
            if isinstance(error, WorkbenchError):
                raise
            raise self._gloo_error(error, f"{collective} {op}") from error
        finally:
            comm.end(start, nbytes, label, peer=root)

    def _agree(self) -> None:
        """Raise CollectiveError if a peer that is here already has passed something else.

        Gloo ends the whole process over a message of another size. Every rank writes what it passes
        before it reads what the others passed: of two that differ, one notices before its call.
        """
        with threading.Lock():  # a locked instruction: what was written is out
            pass
        self.members.watch.compare(range(self.comm.size))

    def _gloo_error(self, error: RuntimeError, doing: str) -> Exception:
        if "gloo/transport" not in str(error):
            return error  # a call that Gloo refuses
        deadline = time.monotonic() + NAMING
        while time.monotonic() < deadline:  # a process that is killed closes its connections first
            for peer, other in enumerate(self.members.peers):
                if peer != self.comm.rank and (other.gone or other.left):
                    return self.members.watch.lost(peer, doing)
            if heard := self.members.watch.heard():
                return heard
            time.sleep(1e-3)
        return self.members.watch.fail(PeerLost(f"a peer was lost in {doing}: {error}"))

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        return self._delegate(
            "broadcast", lambda: self.inner.broadcast(tensors, opts), tensors, opts,
            same=tensors[0], root=opts.rootRank,
        )  # fmt: skip

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        return self._delegate(
            "reduce", lambda: self.inner.reduce(tensors, opts), tensors, opts,
            same=tensors[0], root=opts.rootRank,
        )  # fmt: skip

    def allgather(self, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any) -> Any:
        return self._delegate(
            "all_gather", lambda: self.inner.allgather(out, x, opts), out, opts, same=x[0]
        )

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
        return AllWork(
            [self._allgather_base(out, x, opts) for out, x in zip(outs, xs, strict=True)], outs
        )

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, out: Any, x: list[torch.Tensor], opts: Any) -> Any:
        return self._delegate(
            "gather", lambda: self.inner.gather(out, x, opts), out, opts,
            same=x[0], root=opts.rootRank,
        )  # fmt: skip

    def scatter(self, out: list[torch.Tensor], x: Any, opts: Any) -> Any:
        return self._delegate(
            "scatter", lambda: self.inner.scatter(out, x, opts), out, opts,
            same=out[0], root=opts.rootRank,
        )  # fmt: skip

    def reduce_scatter(self, out: list[torch.Tensor], x: Any, opts: Any) -> Any:
        parts = x[0]
        whole = torch.cat([part.detach().reshape(-1) for part in parts])
        before = sum(part.numel() for part in parts[: self.comm.rank])
        return self._reduce_and_keep(out[0], whole, before, opts)

    def _reduce_scatter_base(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None) -> Any:
        if x.numel() != out.numel() * self.comm.size:
            raise CollectiveError(
                f"reduce_scatter over {self.comm.size} ranks of {x.numel():,} elements leaves each "
                f"{x.numel() / self.comm.size:,.6g}, and rank {self.comm.rank} receives "
                f"{out.numel():,}"
            )
        whole = x.detach().clone(memory_format=torch.contiguous_format).view(-1)
        return self._reduce_and_keep(out, whole, self.comm.rank * out.numel(), opts)

    def _reduce_and_keep(
        self, out: torch.Tensor, whole: torch.Tensor, start: int, opts: Any
    ) -> Any:
        """What Gloo does for reduce-scatter too; but its own handle of that says nothing until
        waited for.
        """
        inner = AllreduceOptions()
        inner.reduceOp = opts.reduceOp
        kept = whole[start : start + out.numel()].view(out.shape)
        return self._delegate(
            "reduce_scatter", lambda: self.inner.allreduce([whole], inner), out, opts, same=whole,
            then=in_mode_of(out, lambda: out.data.copy_(kept)),
        )  # fmt: skip

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self, outs: list[torch.Tensor], xs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        return AllWork(
            [self._reduce_scatter_base(out, x, opts) for out, x in zip(outs, xs, strict=True)], outs
        )

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self, out: torch.Tensor, x: torch.Tensor, out_splits: Any, in_splits: Any, opts: Any
    ) -> Any:
        return self._delegate(
            "all_to_all",
            lambda: self.inner.alltoall_base(out, x, out_splits, in_splits, opts),
            out,
            opts,
        )

    all_to_all_single = alltoall_base

    def alltoall(self, out: list[torch.Tensor], x: list[torch.Tensor], opts: Any) -> Any:
        return self._delegate("all_to_all", lambda: self.inner.alltoall(out, x, opts), out, opts)

    def barrier(self, opts: Any) -> Any:
        return self._delegate("barrier", lambda: self.inner.barrier(opts), None, opts)


def flatten(result: Any) -> list[torch.Tensor]:
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flatten(part)]
