"""The probe of one run: watches one update of a script, then ends the process.

A run may nudge leaves at their first use, and scale the seeds (the 1 with which the backward pass
of a loss begins). Optimizers are replaced by SGD with a learning rate of 1, so that the difference
of parameters is the gradient that was used; ``Ask.real`` leaves them alone.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode

from workbench.auditing.folder import wait_for, write
from workbench.auditing.messages import Ask, Carried, Leaf, LossSeen, Seen, message_of
from workbench.auditing.ranks.leaves import Entry, Leaves, is_flat, is_here, local, names
from workbench.auditing.ranks.losses import is_loss, parameters_below, value_of, vectors_of

# Calls that do not use a tensor in a computation.
_NOT_A_USE = set(
    "__get__ __set__ __delete__ requires_grad_ register_hook size dim numel detach stride backward "
    "data_ptr is_floating_point __repr__ __hash__ __len__ register_post_accumulate_grad_hook "
    "element_size is_contiguous untyped_storage storage_offset type __format__ requires_grad "
    "is_complex is_sparse".split()
)
_TRANSPOSED = {"T", "mT", "H", "mH"}
_OTHERS = 20.0  # seconds for the other ranks to end their update


class Probe(TorchFunctionMode):
    """Watches this process."""

    def __init__(
        self, folder: Path, number: int, rank: int, size: int, ask: Ask, settings: dict[str, Any]
    ) -> None:
        super().__init__()
        self.folder, self.number, self.rank, self.size, self.ask = folder, number, rank, size, ask
        self.update: int = settings["update"]
        self.left = self.update - 1  # updates before the one that is judged
        self.leaves = Leaves(rank, ask.nudge)
        self.leaves.nudging = not self.left
        self.losses: list[LossSeen] = []
        self.hints: list[str] = []
        self.carried: list[Carried] = []
        self.steps, self.error, self.is_over = 0, "", False
        self.inside = False  # a backward pass
        self._known = {*sys.modules} if number == 0 else None
        self._past: dict[str, np.ndarray] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._lost: list[str] = []
        self._stepping: list[tuple[list[tuple[torch.Tensor, torch.Tensor]], int]] = []
        self._watch()
        enter: Any = self.__enter__
        enter()

    def _watch(self) -> None:
        """Stand in front of all that a training step calls."""
        torch.nn.modules.module.register_module_forward_pre_hook(self._module_called)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        autograd: Any = torch.autograd
        autograd.backward = self._seeded(autograd.backward, 1, "grad_tensors")
        autograd.grad = self._seeded(autograd.grad, 2, "grad_outputs")
        apply = autograd.Function.apply.__func__  # no mode sees it

        def applied(cls: Any, *args: Any, **options: Any) -> Any:
            self._look(args)
            return apply(cls, *args, **options)

        autograd.Function.apply = classmethod(applied)
        destroy = dist.destroy_process_group

        def destroy_process_group(group: Any = None) -> None:
            if group is not None and group is not dist.group.WORLD:
                destroy(group)
            else:
                self.end()

        dist.destroy_process_group = destroy_process_group
        sys.excepthook = self.failed
        atexit.register(self.end)
        if self.ask.lens:
            from workbench.auditing.ranks.lenses import watch

            watch(self)

    # -- leaves --

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        read = name == "__get__" and getattr(func.__self__, "__name__", "") in _TRANSPOSED
        draws = getattr(func, "__module__", "") == "torch.nn.init"  # a module is not whole yet
        if not draws and (name not in _NOT_A_USE or read):
            self._look((*args, *(kwargs or {}).values()))
        return func(*args, **(kwargs or {}))

    def _look(self, args: tuple[Any, ...]) -> None:
        self.leaves.look(args, self._turn_with)

    def _turn_with(self, tensor: int) -> None:
        if self.steps and self.left and tensor in self.leaves.by_id:
            self._turn()

    def _module_called(self, module: torch.nn.Module, _: Any) -> None:
        if self.steps:
            self._turn()
        if not torch.is_grad_enabled() or id(module) in self._modules:
            return
        self._modules[id(module)] = module
        if not self.losses:
            self.leaves.begin_again()
        self.leaves.see_module(module)

    def _turn(self) -> None:
        """End an update: the one that is judged, or one before it."""
        if not self.left:
            self.end()
        self.left -= 1
        self.leaves.nudging = not self.left
        self.leaves.begin()
        self.losses, self.steps, self._modules, self._lost = [], 0, {}, []
        self.carried = []

    # -- losses --

    def _seeded(self, call: Callable[..., Any], at: int, name: str) -> Callable[..., Any]:
        """Wrap a function that runs backward passes. ``at``, ``name``: its argument for seeds."""

        def ours(*args: Any, **options: Any) -> Any:
            if self.inside:  # torch calls itself once more where a mode is on
                return call(*args, **options)
            self.inside = True
            try:
                outputs = args[0] if args else options.get("tensors", options.get("outputs"))
                seeds = args[at] if len(args) > at else options.get(name)
                if not options.get("create_graph"):  # a derivative within a loss is not a loss
                    seeds = self._root(outputs, seeds)
                if len(args) > at:
                    return call(*args[:at], seeds, *args[at + 1 :], **options)
                return call(*args, **options | {name: seeds})
            finally:
                self.inside = False

        return ours

    def _root(self, outputs: Any, seeds: Any) -> Any:
        """Note a loss; return its seeds as this run has them."""
        many = isinstance(outputs, list | tuple)
        outs = outputs if many else (outputs,)
        if not is_loss(outs, seeds if isinstance(seeds, list | tuple) else (seeds,)):
            return seeds
        if self.steps:
            self._turn()
        if self.left:
            self.losses.append(LossSeen(0.0))
            return seeds
        if not self.losses:
            self._lost = [one.name for one in self.leaves if _is_overwritten(one)]
        vectors = None
        if self.ask.first:
            for tensor in parameters_below(outs[0].grad_fn):
                if id(tensor) not in self.leaves.by_id:
                    called = names().get(id(tensor), (self.leaves.called(tensor), ""))[0]
                    self.error = f"{called} gets a gradient, and was not seen before it was used"
            vectors = vectors_of(outs[0])
        number = len(self.losses)
        self.losses.append(LossSeen(value_of(outs), vectors))
        if number + 1 == self.ask.until.get(self.rank):
            self.end()
        scale = self.ask.scale.get((self.rank, number), self.ask.rest)
        scaled = [torch.full_like(one, scale) for one in outs]
        return scaled if many else scaled[0]

    # -- updates --

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        tensors = [one for group in optimizer.param_groups for one in group["params"]]
        for one in tensors:
            if id(one) in self.leaves.by_id:
                self.leaves.by_id[id(one)].optimized = True
        self._stepping.append(([(one, local(one).clone()) for one in tensors], self.steps))

    def _after_step(self, *_: Any) -> None:
        saved, steps = self._stepping.pop()
        if self.left:
            for tensor, _before in saved:
                if tensor.grad is not None and id(tensor) in self.leaves.by_id:
                    past = _plain(local(tensor.grad))
                    if past is not None:
                        self._past[self.leaves.by_id[id(tensor)].name] = past
            self.steps += 1
            return
        if steps == self.steps and not self.ask.real:  # not the outer one of two, as ZeRO's is
            with torch.no_grad():
                for tensor, before in saved:
                    if tensor.grad is not None:  # only now: a closure makes it
                        gradient = local(tensor.grad).to(before.dtype).view_as(before)
                        local(tensor).copy_(before - gradient)
        self.steps += 1
        (self.folder / f"step{self.number}.{self.rank}").touch()

    # -- the end --

    def failed(self, kind: Any, error: BaseException, trace: Any) -> None:
        """Keep the error with which the script ends."""
        self.error = "".join(traceback.format_exception(kind, error, trace)[-4:])
        print(self.error, file=sys.stderr)

    def end(self) -> None:
        """Write what this rank saw, wait for the others, and end the process."""
        if self.is_over:
            return
        self.is_over = True
        if self.left:
            self.losses = []
            self.error = self.error or f"the script ends before update {self.update}"
        groups = dist.distributed_c10d._world.pg_map
        keeps_error = not self.steps or self.left or "not seen" in self.error
        seen = Seen(
            leaves={} if self.ask.until else self._leaves(),
            losses=self.losses,
            error=self.error if keeps_error else "",
            steps=self.steps,
            groups=[(one.group_desc, dist.get_process_group_ranks(one)) for one in groups],
            lost=self._lost,
            hints=self.hints,
            carried=self.carried,
            modules=self._late_modules(),
        )
        write(self.folder / f"run{self.number}.{self.rank}", message_of(seen))
        mark = "run" if self.ask.until or not self.steps else "step"
        for other in self.ask.until or range(self.size):  # they may still need this rank
            wait_for(self.folder / f"{mark}{self.number}.{other}", _OTHERS)
        time.sleep(0.03)
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(0)

    def _leaves(self) -> dict[str, Leaf]:
        if not all(one.parts is not None or one.optimized for one in self.leaves):
            gc.collect()  # a model that was cut into stages is part of a cycle, and trains nothing
        known, result = names(), dict[str, Leaf]()
        for entry in self.leaves:
            tensor = entry.tensor
            counts = entry.parts is not None or entry.optimized or id(tensor) in known
            grad = tensor.grad if tensor.is_leaf else None
            if not is_here(tensor) or not (counts or grad is not None):
                continue
            before, after = _plain(entry.before), _plain(local(tensor))
            assert before is not None and after is not None
            result[entry.name] = Leaf(
                before=before,
                after=after,
                grad=None if grad is None else _plain(local(grad)),
                parts=_plain(entry.parts),
                past=self._past.get(entry.name),
                place=entry.place,
                dtype=str(entry.before.dtype),
                owner=entry.owner,
                shards=entry.shards,
                optimized=entry.optimized,
                parameter=isinstance(tensor, torch.nn.Parameter),
            )
        return result

    def _late_modules(self) -> list[str]:
        if self._known is None:
            return []
        late = [one for one in [*sys.modules] if one not in self._known]
        return [one for one in late if one.startswith(("torch.", "numpy.")) and "_ind" not in one]


def _is_overwritten(entry: Entry) -> bool:
    return is_here(entry.tensor) and not is_flat(entry.tensor) and entry.has_changed


def _plain(tensor: torch.Tensor | None) -> np.ndarray | None:
    """Return the numbers of a tensor, copied."""
    if tensor is None:
        return None
    dense = tensor.detach()
    dense = dense.to_dense() if dense.is_sparse else dense
    result: np.ndarray = dense.double().cpu().numpy().copy()
    return result
