"""Looks at collectives, without a second run: whose gradients they carry, what comes back.

A backend is asked once per kind of call with a vector that is known: is a sum the sum? A result
that no one can read is named, and a sampler that gives the same order twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from workbench.auditing.messages import Carried, LossSeen
from workbench.auditing.ranks.leaves import Leaves

_PROMISED = ("all_reduce", "reduce_scatter_tensor")
_FOLLOWED = (*_PROMISED, "broadcast", "reduce", "all_gather_into_tensor", "all_to_all_single")
_IN_PLACE = {"all_reduce", "broadcast", "reduce"}
_OURS = ("/torch/", "/workbench/auditing/", "/workbench/process_group/")


def inside(part: np.ndarray, whole: np.ndarray, ranks: int) -> bool:
    """Return whether ``part`` is, up to a factor, a run of ``whole``: all of it, or what is left of
    it for one of so many ranks.
    """
    pieces = [part, *np.array_split(part, ranks)] if len(part) >= 2 * ranks else [part]
    return any(_is_run(piece, whole, ranks) for piece in pieces)


def _is_run(part: np.ndarray, whole: np.ndarray, ranks: int) -> bool:
    if len(part) > len(whole) or not part.any():
        return False
    order = np.argsort(-np.abs(part))
    first, second = order[0], order[min(1, len(part) - 1)]
    starts = np.arange(len(whole) - len(part) + 1)
    factor = whole[starts + first] / part[first]
    tolerance = 1e-9 * np.abs(factor * part[first])
    near = np.abs(whole[starts + second] - factor * part[second]) <= tolerance
    near &= factor != 0
    if len(part) == 1:  # any number is a multiple of another: only those that are likely
        near &= np.isclose(factor[:, None], [1, 1 / ranks], rtol=1e-12).any(1)
    return any(
        np.abs(whole[at : at + len(part)] - factor[at] * part).max() <= tolerance[at]
        for at in starts[near]
    )


def caller() -> tuple[Any, str]:
    """Return the frame of the script's code that called, and its line."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and any(one in frame.f_code.co_filename for one in _OURS):
        frame = frame.f_back
    return frame, f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


class Watched(Protocol):
    """The run that is looked at (probe.py)."""

    leaves: Leaves
    losses: list[LossSeen]
    steps: int
    inside: bool
    hints: list[str]
    carried: list[Carried]


class Lens:
    """Looks at the collectives of one rank."""

    def __init__(self, probe: Watched) -> None:
        self.probe = probe
        self._tried: set[tuple[str, str, int]] = set()

    def hint(self, text: str) -> None:
        self.probe.hints.append(text)

    def promise(
        self, name: str, call: Callable[..., Any], op: Any, group: Any, like: torch.Tensor
    ) -> None:
        """Send a known vector through the same call, and look at what comes back."""
        key = (name, str(op), id(group))
        known = str(op) in ("RedOpType.SUM", "RedOpType.AVG")
        if key in self._tried or not known or not like.is_floating_point():
            return
        self._tried.add(key)
        count, rank = dist.get_world_size(group), dist.get_rank(group)
        if rank < 0:
            return
        due = (count + 1) / 2 * (1 if "AVG" in str(op) else count)
        sent = torch.full((count,), rank + 1.0, dtype=like.dtype, device=like.device)
        result = sent if name == "all_reduce" else torch.empty_like(sent[:1])
        call(*([sent] if name == "all_reduce" else [result, sent]), op=op, group=group)
        if abs(float(result[0]) - due) > 1e-3:
            self.hint(
                f"!{name}({str(op)[10:]}) over {dist.get_backend(group)} gives {float(result[0]):g}"
                f" where {due:g} is due, for rank + 1 of {count} ranks"
            )

    def carries(self, name: str, tensor: Any, group: Any, line: str) -> None:
        """Note whose own gradients a buffer holds, by value."""
        probe = self.probe
        if not probe.losses or not isinstance(tensor, torch.Tensor):
            return
        if not tensor.is_floating_point():
            return
        whole = tensor.detach().double().cpu().numpy().ravel()
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        names = [
            one.name
            for one in probe.leaves
            if one.parts is not None
            and inside(one.parts.double().cpu().numpy().ravel(), whole, len(ranks))
        ]
        if probe.steps:
            when = "after the update"
        else:
            when = f"in backward {len(probe.losses)}" if probe.inside else "after backward"
        probe.carried.append(Carried(name, line, [*ranks], when, names))

    def look_at_result(self, name: str, tensor: torch.Tensor, frame: Any, line: str) -> None:
        """Note a result that no one can read, or one that overwrites a tensor of two names."""
        # Held by the arguments' container, the wrapper, this function, getrefcount's argument.
        holders = sys.getrefcount(tensor) - 4
        storage: Any = tensor.untyped_storage()
        shared = torch._C._storage_Use_Count(storage._cdata)
        if holders <= 0 and shared <= 2 and tensor.numel() > 1:
            self.hint(f"{name} at {line} reduces a temporary: nothing can read the result")
        twice = sorted(one for one, value in frame.f_locals.items() if value is tensor)
        if len(twice) > 1:
            self.hint(
                f"{name} at {line} overwrites in place what the code also calls "
                f"{' and '.join(twice)}"
            )

    def wrap(self, name: str) -> None:
        """Stand in front of a function of torch.distributed."""
        call = getattr(dist, name)

        @wraps(call)
        def ours(*args: Any, **options: Any) -> Any:
            tensor = args[0] if args else options.get("tensor", options.get("output"))
            sent = tensor
            if name not in _IN_PLACE:
                given = options.get("input", options.get("input_tensor"))
                sent = args[1] if len(args) > 1 else given
            frame, line = caller()
            group = options.get("group")
            self.carries(name, sent, group, line)
            if name in _PROMISED and not self.probe.steps and isinstance(tensor, torch.Tensor):
                kinds = [one for one in args[1:] if "RedOp" in str(type(one))]
                op = options.get("op") or (kinds[0] if kinds else dist.ReduceOp.SUM)
                self.promise(name, call, op, group, tensor)
                if name == "all_reduce":
                    del sent
                    self.look_at_result(name, tensor, frame, line)
            return call(*args, **options)

        setattr(dist, name, ours)

    def hear_ddp(self) -> None:
        """Note whose gradients torch's DDP carries: a hook that does what it does without one."""
        from torch.nn.parallel import DistributedDataParallel

        ddp: Any = DistributedDataParallel
        forward, probe = ddp.forward, self.probe

        def average(group: Any, bucket: Any) -> Any:
            known = probe.leaves.by_id
            names = [known[id(one)].name for one in bucket.parameters() if id(one) in known]
            ranks = dist.get_process_group_ranks(group)
            when = f"in backward {len(probe.losses)}"
            probe.carried.append(Carried("DDP's all_reduce", caller()[1], [*ranks], when, names))
            buffer = bucket.buffer().div_(dist.get_world_size(group))
            return group.allreduce([buffer]).get_future().then(lambda done: done.value()[0])

        @wraps(forward)
        def first(module: Any, *args: Any, **options: Any) -> Any:
            # A hook of the script's own stays.
            if not module.__dict__.setdefault("_heard", bool(module._comm_hooks)):
                module._heard = True
                with suppress(Exception):
                    module.register_comm_hook(module.process_group, average)
            return forward(module, *args, **options)

        ddp.forward = first

    def look_at_samplers(self) -> None:
        """Note a sampler that gives the same order in two epochs."""
        from torch.utils.data import DistributedSampler

        kind: Any = DistributedSampler
        iterate = kind.__iter__

        @wraps(iterate)
        def ours(sampler: Any) -> Any:
            epochs = sampler.__dict__.setdefault("_epochs_seen", [])
            if sampler.shuffle and sampler.epoch in epochs:
                self.hint(
                    "!a DistributedSampler is iterated twice at one epoch: every epoch has the "
                    "same order. Call set_epoch"
                )
            epochs.append(sampler.epoch)
            return iterate(sampler)

        kind.__iter__ = ours


def watch(probe: Watched) -> None:
    """Look at all collectives of this process from now on."""
    lens = Lens(probe)
    for name in _FOLLOWED:
        lens.wrap(name)
    lens.hear_ddp()
    lens.look_at_samplers()
