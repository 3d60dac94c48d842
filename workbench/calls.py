"""One collective of a process group over our communicator: what the ranks must agree on, which
algorithm, the caller's tensors as flat arrays, and one row around it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from workbench.errors import CollectiveError
from workbench.events import now
from workbench.gloo_operations import GlooOperations
from workbench.signature import signature
from workbench.staging import Staging, in_mode_of

Tensors = Sequence[torch.Tensor]
OF_PARTS = ("all_gather", "gather", "scatter")  # a rank passes a part of what is told as the whole


class Plan(NamedTuple):
    """What is worked out once for calls that are alike."""

    number: int  # the signature
    algorithm: str
    nbytes: int  # of the whole
    itemsize: int
    dtype: str
    root: int  # world rank; -1: there is none


class Calls(GlooOperations):
    """The part of ``WorkbenchGroup`` that every collective goes through."""

    _staging: Staging
    _plans: dict[tuple[Any, ...], Plan]

    @property
    def _me(self) -> int:
        world: list[int] = self.members.world
        return world[self.comm.rank]

    def _ours(self, operation: str, tensors: Tensors) -> bool:
        """Do our algorithms take these? Raises CollectiveError if they do not go together."""
        if self.session.native:
            return False
        first = tensors[0]
        if first.layout is not torch.strided or first.is_quantized:
            return False
        device, dtype = first.device, first.dtype
        for x in tensors[1:]:
            if x.layout is not torch.strided or x.is_quantized:
                return False
            if x.device != device:
                raise CollectiveError(
                    f"{operation}: rank {self._me} passes tensors on {device} and on {x.device}; "
                    "all tensors of a call must be on one device"
                )
            if x.dtype != dtype:
                raise CollectiveError(
                    f"{operation}: rank {self._me} passes tensors of {dtype} and of {x.dtype}"
                )
        return first.is_cpu or first.is_cuda

    def _equal_parts(self, operation: str, parts: Tensors, own: torch.Tensor) -> None:
        sizes = [part.numel() for part in parts]
        if sizes != [own.numel()] * self.comm.size:
            raise CollectiveError(
                f"{operation} over {self.comm.size} ranks takes as many parts of {own.numel():,} "
                f"elements each, as rank {self._me}'s own part has, and its list holds parts of "
                f"{', '.join(f'{size:,}' for size in sizes) or 'nothing'}"
            )

    def _call(
        self, operation: str, like: torch.Tensor, elements: int, result: list[torch.Tensor],
        opts: Any, work: Callable[[Callable[..., Any]], None], *, reduction: str = "",
        root: int = -1, shape: tuple[int, ...] | None = None, agreed: int | None = None,
        judged: bool = True, always: bool = False,
    ) -> Any:  # fmt: skip
        """Run one collective: its rows, and ``work`` with the algorithm's function inside.

        ``elements``: what this rank passes; ``agreed``: what every rank passes alike, if that is
        something else. ``judged``: its steps and bytes follow from the whole's size alone.
        ``always``: of nothing too.
        """
        plan = self._plan(operation, like.dtype, elements, reduction, root, agreed)
        shape = tuple(like.shape) if shape is None else shape
        work = in_mode_of(like, work)
        where, label = self.session.recorder.where, self.session.current_label()
        value = float(plan.itemsize) if judged else float("nan")

        def job(op: int) -> None:
            comm, start = self.comm, now()
            comm.begin(operation, plan.algorithm, op, plan.number, where, shape, plan.dtype)
            try:
                if plan.nbytes or always:
                    work(self.session.algorithm(operation, plan.algorithm))
            finally:
                comm.end(start, plan.nbytes, label, value, plan.root)

        return self._run(operation, job, [like], result, opts)

    def _plan(
        self, operation: str, dtype: torch.dtype, elements: int, reduction: str = "",
        root: int = -1, agreed: int | None = None,
    ) -> Plan:  # fmt: skip
        chosen = self.session.chosen(operation)
        key = operation, dtype, elements, reduction, root, agreed, chosen
        plan = self._plans.get(key)
        if plan is None:
            itemsize = dtype.itemsize
            nbytes = elements * itemsize * (self.comm.size if operation in OF_PARTS else 1)
            named = "" if operation == "barrier" else str(dtype).removeprefix("torch.")
            world = self.members.world[root] if root >= 0 else -1
            number = signature(
                operation, dtype if named else None, elements if agreed is None else agreed,
                reduction, world,
            )  # fmt: skip
            if chosen == "auto":
                chosen = self._choose(operation, nbytes)
            elif refusal := self.session.refusal(operation, chosen, self.comm.size):
                raise CollectiveError(refusal)
            plan = self._plans[key] = Plan(number, chosen, nbytes, itemsize, named, world)
        return plan

    def _choose(self, operation: str, nbytes: int) -> str:
        raise NotImplementedError  # WorkbenchGroup's
