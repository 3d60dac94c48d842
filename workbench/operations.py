"""The collectives of a process group that move tensors and add nothing, chunk by chunk.

FSDP2, tensor parallelism and object collectives call these. What our algorithms do not take (sparse
tensors, devices that are no host's and no GPU's) is left to the Gloo group inside, and so is
everything in a group that is there for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import AllgatherOptions

from workbench.arrays import moved, together
from workbench.calls import Calls, Tensors
from workbench.errors import CollectiveError
from workbench.staging import values_ready
from workbench.work import AllWork

NOTHING = torch.empty(0)


class Operations(Calls):
    """The part of ``WorkbenchGroup`` in which nothing is added."""

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        if not self._ours("broadcast", tensors):
            return super().broadcast(tensors, opts)
        x, root, ready = tensors[0], opts.rootRank, values_ready(tensors)
        mine = root == self.comm.rank

        def work(function: Callable[..., Any]) -> None:
            flats = self._staging.take([x], ready, into=not mine)
            function(self.comm, together(flats, moved), root)
            if not mine:
                self._staging.give([x], flats, ready)

        return self._call("broadcast", x, x.numel(), tensors, opts, work, root=root)

    def allgather(self, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any) -> Any:
        if not self._ours("all_gather", [*x, *out[0]]):
            return super().allgather(out, x, opts)
        self._equal_parts("all_gather", out[0], x[0])
        return self._gather_all(out[0], x[0], opts)

    def _allgather_base(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None) -> Any:
        if not self._ours("all_gather", [x, out]):
            return super()._allgather_base(out, x, opts)
        return self._gather_all([out], x, opts)

    def allgather_coalesced(self, out: Any, x: list[torch.Tensor], opts: Any = None) -> Any:
        everything = [*x, *(one for part in out for one in part)]
        if self.session.native or any(one.layout != torch.strided for one in everything):
            return super().allgather_coalesced(out, x, opts)
        calls = [self.allgather([[p[i] for p in out]], [one], opts) for i, one in enumerate(x)]
        return AllWork(calls, [one for part in out for one in part])

    def _gather_all(self, outs: Tensors, x: torch.Tensor, opts: Any) -> Any:
        whole = sum(out.numel() for out in outs)
        if whole != x.numel() * self.comm.size:
            raise CollectiveError(
                f"all_gather of {x.numel():,} elements over {self.comm.size} ranks gives "
                f"{x.numel() * self.comm.size:,}, and rank {self._me} has room for {whole:,}"
            )
        ready = values_ready([x])

        def work(function: Callable[..., Any]) -> None:
            flats = self._staging.take(outs, ready, into=True)
            mine = together(self._staging.take([x], ready), moved)
            function(self.comm, mine, together(flats, moved))
            self._staging.give(outs, flats, ready)

        opts = opts or AllgatherOptions()
        shape = tuple(outs[0].shape) if len(outs) == 1 else (len(outs), *x.shape)
        return self._call("all_gather", x, x.numel(), [*outs], opts, work, shape=shape)

    def gather(self, out: list[list[torch.Tensor]], x: list[torch.Tensor], opts: Any) -> Any:
        outs, one = (out[0] if out else []), x[0]
        if not self._ours("gather", [one, *outs]):
            return super().gather(out, x, opts)
        root, ready = opts.rootRank, values_ready(x)
        mine = root == self.comm.rank
        if mine:
            self._equal_parts("gather", outs, one)

        def work(function: Callable[..., Any]) -> None:
            flats = self._staging.take(outs, ready, into=True) if mine else []
            into = together(flats, moved) if mine else None
            function(self.comm, together(self._staging.take(x, ready), moved), into, root)
            if mine:
                self._staging.give(outs, flats, ready)

        return self._call("gather", one, one.numel(), outs, opts, work, root=root)

    def scatter(self, out: list[torch.Tensor], x: list[list[torch.Tensor]], opts: Any) -> Any:
        xs, one = (x[0] if x else []), out[0]
        if not self._ours("scatter", [one, *xs]):
            return super().scatter(out, x, opts)
        root, ready = opts.rootRank, values_ready(out)
        mine = root == self.comm.rank
        if mine:
            self._equal_parts("scatter", xs, one)

        def work(function: Callable[..., Any]) -> None:
            flats = self._staging.take(out, ready, into=True)
            whole = together(self._staging.take(xs, ready), moved) if mine else None
            function(self.comm, whole, together(flats, moved), root)
            self._staging.give(out, flats, ready)

        return self._call("scatter", one, one.numel(), out, opts, work, root=root)

    def alltoall_base(
        self, out: torch.Tensor, x: torch.Tensor, out_splits: Any, in_splits: Any, opts: Any
    ) -> Any:
        if not self._ours("all_to_all", [x, out]):
            return super().alltoall_base(out, x, out_splits, in_splits, opts)
        sends = self._cut(x, in_splits, "sends")
        receives = self._cut(out, out_splits, "receives")
        return self._exchange_all([out], [x], receives, sends, opts)

    def alltoall(self, out: list[torch.Tensor], x: list[torch.Tensor], opts: Any) -> Any:
        if not self._ours("all_to_all", [*x, *out]):
            return super().alltoall(out, x, opts)
        if len(x) != self.comm.size or len(out) != self.comm.size:
            raise CollectiveError(
                f"all_to_all over {self.comm.size} ranks takes as many tensors, and rank "
                f"{self._me} sends {len(x)} and receives {len(out)}"
            )
        sends, receives = [one.numel() for one in x], [one.numel() for one in out]
        return self._exchange_all(out, x, receives, sends, opts)

    def _exchange_all(
        self, outs: Tensors, xs: Tensors, receives: list[int], sends: list[int], opts: Any
    ) -> Any:
        me = self.comm.rank
        if sends[me] != receives[me]:
            raise CollectiveError(
                f"all_to_all: rank {self._me} keeps {sends[me]:,} elements of its own and has room "
                f"for {receives[me]:,}"
            )
        ready = values_ready(xs)

        def work(function: Callable[..., Any]) -> None:
            flats = self._staging.take(outs, ready, into=True)
            mine, into = together(self._staging.take(xs, ready), moved), together(flats, moved)
            per = flats[0].itemsize // into.itemsize  # some dtypes travel as bytes
            function(
                self.comm, mine, into, [per * one for one in sends], [per * one for one in receives]
            )
            self._staging.give(outs, flats, ready)

        x = xs[0]
        # Ranks may differ in their sizes: whether they fit is seen by every message.
        even = len({*sends, *receives}) == 1
        return self._call(
            "all_to_all", x, sum(sends), [*outs], opts, work, agreed=0, judged=even,
            shape=tuple(x.shape) if len(xs) == 1 else (sum(sends),), always=True,
        )  # fmt: skip

    def barrier(self, opts: Any) -> Any:
        if self.session.native:
            return super().barrier(opts)
        return self._call(
            "barrier", NOTHING, 0, [], opts,
            lambda function: function(self.comm), always=True,
        )  # fmt: skip

    def _cut(self, x: torch.Tensor, splits: Any, verb: str) -> list[int]:
        """How many elements of ``x`` belong to each rank; ``splits`` counts rows."""
        size, rows = self.comm.size, x.shape[0] if x.dim() else x.numel()
        if not splits:
            if rows % size:
                raise CollectiveError(
                    f"all_to_all: rank {self._me} {verb} {rows:,} rows, which {size} ranks cannot "
                    "share evenly: say how many for each (split sizes)"
                )
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows or min(splits) < 0:
            raise CollectiveError(
                f"all_to_all over {size} ranks: rank {self._me} {verb} {rows:,} rows, and its "
                f"split sizes are {[*splits]}"
            )
        return [rows_for * (x.numel() // rows if rows else 0) for rows_for in splits]

    # torch calls these names too
    all_gather_single = _allgather_base
    all_to_all_single = alltoall_base
