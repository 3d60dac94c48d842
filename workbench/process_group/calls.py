"""A collective call as a value: which plan it follows, and how its tensors move.

A call goes one way. torch asks the group (group.py) in any of its forms; operations.py and
reductions.py check what is passed and make the call; ``group.run(call)`` has it performed, here or
on the group's thread: rows around it, and the algorithm inside, which moves flat arrays. What our
algorithms do not take is a call too, of Gloo (gloo_operations.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from workbench.common.errors import CollectiveError
from workbench.process_group.context import GroupContext
from workbench.process_group.plans import Plan
from workbench.process_group.staging import in_mode_of
from workbench.recording.events import Where, now

Tensors = Sequence[torch.Tensor]
Algorithm = Callable[..., Any]
_UNKNOWN = float("nan")


class CollectiveCall(NamedTuple):
    """One collective over our communicator."""

    operation: str
    like: torch.Tensor  # dtype, and inference mode, are its own
    shape: tuple[int, ...]  # of what this rank passes, for its row
    result: list[torch.Tensor]
    plan: Plan
    move: Callable[[Algorithm], None]  # from the tensors through the algorithm, and back
    judged: bool = True  # steps and bytes follow from the whole's size alone
    always: bool = False  # of nothing too

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [self.like]

    def perform(self, group: GroupContext, number: int, where: Where, label: str) -> None:
        """Move the tensors, as the group's ``number``-th collective, within one row."""
        operation, plan, comm = self.operation, self.plan, group.comm
        group.at_line(number, label)
        start = now()
        comm.begin(operation, plan.algorithm, number, plan.number, where, self.shape, plan.dtype)
        try:
            if plan.nbytes or self.always:
                move = in_mode_of(self.like, self.move)
                move(group.session.algorithm(operation, plan.algorithm))
        except BaseException:
            comm.failed = True
            raise
        finally:
            itemsize = float(plan.itemsize) if self.judged else _UNKNOWN
            comm.end(start, plan.nbytes, label, itemsize, plan.root)


class SeveralCalls(NamedTuple):
    """Calls that torch asks for in one; any of them may be Gloo's."""

    calls: Sequence[Any]
    result: Any


def ours(group: GroupContext, operation: str, tensors: Tensors) -> bool:
    """Return whether our algorithms take these tensors. Raises CollectiveError if they do not go
    together.
    """
    if group.session.native:
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
                f"{operation}: rank {group.me} passes tensors on {device} and on {x.device}; "
                "all tensors of a call must be on one device"
            )
        if x.dtype != dtype:
            raise CollectiveError(
                f"{operation}: rank {group.me} passes tensors of {dtype} and of {x.dtype}"
            )
    return first.is_cpu or first.is_cuda


def check_equal_parts(
    group: GroupContext, operation: str, parts: Tensors, sample: torch.Tensor
) -> None:
    """Raise CollectiveError unless there is a part for each rank, as large as ``sample``."""
    sizes = [part.numel() for part in parts]
    if sizes != [sample.numel()] * group.comm.size:
        raise CollectiveError(
            f"{operation} over {group.comm.size} ranks takes as many parts of {sample.numel():,} "
            f"elements each, as rank {group.me}'s own part has, and its list holds parts of "
            f"{', '.join(f'{size:,}' for size in sizes) or 'nothing'}"
        )


def shape_of(tensors: Tensors, part: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of one tensor, or of a list of parts."""
    return tuple(tensors[0].shape) if len(tensors) == 1 else (len(tensors), *part.shape)
