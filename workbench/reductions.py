"""The collectives of a process group that add: all-reduce, reduce, reduce-scatter.

What numpy and torch do not add for us (complex numbers, bits, sparse tensors) is left to the Gloo
group inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, ReduceScatterOptions

from workbench.arrays import LEFT_TO_TORCH, PLAIN, SUM, fast_array, together
from workbench.errors import CollectiveError
from workbench.operations import Operations
from workbench.signature import REDUCTIONS
from workbench.staging import values_ready
from workbench.work import AllWork

OURS = {"SUM": SUM, "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "AVG": SUM}
# By number: torch's own members take ten times as long to look up.
REDUCE_NAMES = {
    getattr(dist.ReduceOp, name).value: name for name in REDUCTIONS if hasattr(dist.ReduceOp, name)
}
DENSE = PLAIN | LEFT_TO_TORCH


class Reductions(Operations):
    """The part of ``WorkbenchGroup`` that adds."""

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        x, reduction = tensors[0], _reduction(opts)
        if not self._adds("all_reduce", [x], reduction):
            return self._delegate(
                "all_reduce", lambda: self.inner.allreduce(tensors, opts), tensors, opts, reduction
            )
        if len(tensors) > 1:
            works = [self.allreduce([one], opts) for one in tensors]
            return AllWork(works, tensors) if opts.asyncOp else None
        ready = values_ready(tensors)

        def work(function: Callable[..., Any]) -> None:
            if self.comm.size == 1:
                return
            (flat,) = self._staging.take([x], ready)
            result = function(self.comm, fast_array(flat), OURS[reduction])
            if isinstance(result, torch.Tensor) and result.data_ptr() != flat.data_ptr():
                flat.copy_(result.view(-1))
            if reduction == "AVG":
                flat.div_(self.comm.size)
            self._staging.give([x], [flat], ready)

        return self._call("all_reduce", x, x.numel(), tensors, opts, work, reduction=reduction)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        each = AllreduceOptions()  # which torch's own of this call are not
        if opts is not None:
            each.reduceOp, each.timeout, each.asyncOp = opts.reduceOp, opts.timeout, opts.asyncOp
        return AllWork([self.allreduce([one], each) for one in tensors], tensors)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        x, reduction = tensors[0], _reduction(opts)
        if not self._adds("reduce", [x], reduction):
            return super().reduce(tensors, opts)
        root, ready = opts.rootRank, values_ready(tensors)

        def work(function: Callable[..., Any]) -> None:
            (flat,) = self._staging.take([x], ready)
            function(self.comm, fast_array(flat), root, OURS[reduction])
            if root == self.comm.rank:
                if reduction == "AVG":
                    flat.div_(self.comm.size)
                self._staging.give([x], [flat], ready)

        return self._call(
            "reduce", x, x.numel(), tensors, opts, work, reduction=reduction, root=root
        )

    def reduce_scatter(
        self, out: list[torch.Tensor], x: list[list[torch.Tensor]], opts: Any
    ) -> Any:
        parts = x[0]
        uneven = len({part.numel() for part in parts}) > 1  # ranks keep what is theirs of it all
        if uneven or not self._adds("reduce_scatter", [*parts, *out], _reduction(opts)):
            return super().reduce_scatter(out, x, opts)
        self._equal_parts("reduce_scatter", parts, out[0])
        return self._reduce_parts(out[0], parts, opts)

    def _reduce_scatter_base(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        if not self._adds("reduce_scatter", [x, out], _reduction(opts)):
            return super()._reduce_scatter_base(out, x, opts)
        if x.numel() != out.numel() * self.comm.size:
            raise CollectiveError(
                f"reduce_scatter over {self.comm.size} ranks of {x.numel():,} elements leaves each "
                f"{x.numel() / self.comm.size:,.6g}, and rank {self._me} receives {out.numel():,}"
            )
        return self._reduce_parts(out, [x], opts)

    reduce_scatter_single = _reduce_scatter_base  # torch calls this name too

    def _reduce_parts(self, out: torch.Tensor, xs: Sequence[torch.Tensor], opts: Any) -> Any:
        reduction, ready = _reduction(opts), values_ready(xs)

        def work(function: Callable[..., Any]) -> None:
            whole = self._staging.take(xs, ready)
            (into,) = self._staging.take([out], ready, into=True)
            # What is there is needed until the end.
            whole = [x.clone() if _overlap(x, into) else x for x in whole]
            function(self.comm, together(whole, fast_array), fast_array(into), OURS[reduction])
            if reduction == "AVG":
                into.div_(self.comm.size)
            self._staging.give([out], [into], ready)

        elements = sum(x.numel() for x in xs)
        shape = tuple(xs[0].shape) if len(xs) == 1 else (len(xs), *out.shape)
        return self._call(
            "reduce_scatter", out, elements, [out], opts, work, reduction=reduction, shape=shape
        )

    def _adds(self, operation: str, tensors: Sequence[torch.Tensor], reduction: str) -> bool:
        """Do our algorithms add these?"""
        if not self._ours(operation, tensors):
            return False
        x = tensors[0]
        if x.dtype not in DENSE or reduction not in OURS:
            return False
        if reduction == "AVG" and not x.is_floating_point():
            raise CollectiveError(
                f"AVG takes floating and complex types, not {x.dtype}: use SUM and divide"
            )
        return True


def _reduction(opts: Any) -> str:
    return REDUCE_NAMES.get(opts.reduceOp.op.value, "")


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do these flat tensors share memory?"""
    return a.data_ptr() < b.data_ptr() + b.nbytes and b.data_ptr() < a.data_ptr() + a.nbytes
