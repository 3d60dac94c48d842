"""A model's forward pass as a list of operations, and what each keeps for the backward pass.

The pass runs on tensors that have shapes and no memory (torch's FakeTensorMode), so that a model
too large for this machine can be looked at. What an operation keeps is read off its derivative:
y = x W needs x for the gradient of W and W for that of x, y = tanh(x) needs y, and so on.

Source  https://github.com/pytorch/pytorch/blob/main/tools/autograd/derivatives.yaml
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.formulas.memory import Step
from workbench.rank.layers import layers
from workbench.rank.placement import collate, move_batch, need_samples
from workbench.tasks._environments import plays

Kept = Callable[[Sequence[Any], Any], Sequence[Any]]


def _product(args: Sequence[Any], _: Any) -> list[Any]:
    x, w = args[-2:]
    return [*_if_needed(x, w), *_if_needed(w, x)]


def _scaled(args: Sequence[Any], _: Any) -> list[Any]:
    x, y = args[:2]
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    return [*_if_needed(x, y), *_if_needed(y, x)] if tensors else []


def _if_needed(kept: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor]:
    """Return what is kept for the gradient of the other factor, if that has one."""
    return [kept] if other.requires_grad else []


def _result(_: Sequence[Any], out: Any) -> list[Any]:
    return [out]


def _input(args: Sequence[Any], _: Any) -> list[Any]:
    return [args[0]]


def _all_inputs(args: Sequence[Any], _: Any) -> list[Any]:
    return [*args]


KEPT: dict[str, Kept] = {
    **dict.fromkeys(("addmm", "mm", "bmm", "baddbmm"), lambda args, out: _product(args[:3], out)),
    **dict.fromkeys(("mul", "div"), _scaled),
    **dict.fromkeys(
        "tanh sigmoid relu exp sqrt rsqrt _softmax _log_softmax hardtanh".split(), _result
    ),
    **dict.fromkeys("gelu silu log pow abs leaky_relu avg_pool2d elu softplus".split(), _input),
    **dict.fromkeys(("mse_loss", "binary_cross_entropy_with_logits"), _all_inputs),
    "convolution": lambda args, out: args[:2],
    "max_pool2d_with_indices": lambda args, out: [args[0], out[1]],
    "native_layer_norm": lambda args, out: [args[0], args[2], *out[1:]],
    "native_dropout": lambda args, out: [out[1]],
    "nll_loss_forward": lambda args, out: [*args[:2], out[1]],
    "embedding": lambda args, out: [args[1]],
    "gather": lambda args, out: [args[2]],
    "_scaled_dot_product_flash_attention_for_cpu": lambda args, out: [*args[:3], *out[:2]],
}
# They need shapes only.
NOTHING = set(
    "add sub rsub neg sum mean view _unsafe_view reshape t transpose permute expand unsqueeze "
    "squeeze select slice split cat stack clone detach _to_copy constant_pad_nd alias unbind "
    "copy_ add_ flatten _reshape_alias contiguous lift_fresh as_strided".split()
)


@dataclass(frozen=True)
class Forward:
    """A forward pass, operation by operation."""

    steps: tuple[Step, ...]
    unknown: tuple[str, ...]  # operations of which no formula says what they keep


class Model:
    """A task's model without its memory. ``trace`` runs it forward."""

    def __init__(self, task: Any, exp: Experiment) -> None:
        """Build the model that the experiment trains. Raises SpecError where it cannot be built
        without memory, or learns by playing.
        """
        if plays(task):
            why = "plays, and wb.fits has no formula of what it learns from"
            raise SpecError.at("task", why, getattr(exp.task, "name", exp.task))
        self.task, self._dtype = task, getattr(torch, exp.dtype)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        with self._without_memory():
            self.module: nn.Module = _converted(task.model(), self._dtype)
        self._samples = need_samples(task.dataset("train"), "train", task)

    @property
    def frozen_bytes(self) -> int:
        """The bytes of the parameters that are not trained."""
        return sum(one.nbytes for one in self.module.parameters() if not one.requires_grad)

    def trace(self, samples: int) -> Forward:
        """Run forward on so many samples: the first one, again and again."""
        batch = collate(self._samples, np.zeros(samples, int))
        batch = move_batch(batch, torch.device("cpu"), self._dtype)
        parameters = dict(self.module.named_parameters())
        with self._without_memory():
            fake = tree_map_only(torch.Tensor, self._mode.from_tensor, batch)
            seen = _Seen({_storage(one): name for name, one in parameters.items()})
            hooks = [*seen.follow(self.module)]
            with seen:
                self.task.loss(self.module, fake)
            for hook in hooks:
                hook.remove()
        return Forward(tuple(seen.steps()), tuple(sorted(seen.unknown)))

    def _without_memory(self) -> _Within:
        return _Within(self._mode, self.task)


class _Within:
    """Runs a block in a mode; what it raises is of the task's model."""

    def __init__(self, mode: FakeTensorMode, task: Any) -> None:
        self._mode, self._task = mode, task

    def __enter__(self) -> None:
        self._mode.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._mode.__exit__(kind, error, trace)
        if isinstance(error, Exception) and not isinstance(error, SpecError):
            why = (str(error).strip() or kind.__name__).splitlines()[0][:200]
            name = type(self._task).__name__
            raise SpecError(
                f"task {name}: its model or loss does not run on shapes alone, without values "
                f"({why}). wb.fits has no formula for it"
            ) from error


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of a forward pass, as they run."""

    def __init__(self, parameters: Mapping[int, str]) -> None:
        """Note operations; ``parameters``: names by storage."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameters = parameters
        self._first: dict[str, int] = {}  # the step that uses a parameter first
        # With the layer, and whether it is of the model.
        self._kept: list[tuple[str, bool, tuple[tuple[int, int], ...]]] = []
        self._alive: list[Any] = []  # so that no storage has the number of another
        self._layer, self._inside = "", False
        self.unknown: set[str] = set()

    def follow(self, model: nn.Module) -> Iterator[Any]:
        """Attribute operations to the model's layers; yield the hooks."""
        yield model.register_forward_pre_hook(partial(self._within, True))
        yield model.register_forward_hook(partial(self._within, False))
        for module, name in layers(model).items():
            yield module.register_forward_pre_hook(partial(self._enter, name))
            yield module.register_forward_hook(partial(self._enter, ""))

    def _within(self, inside: bool, *_: object) -> None:
        self._inside = inside

    def _enter(self, layer: str, *_: object) -> None:
        self._layer = layer
        if layer:
            self._kept.append((layer, True, ()))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        self._alive += [out, *inputs]
        computes = any(isinstance(one, torch.Tensor) for one in tree_leaves(out))
        counts = torch.is_grad_enabled() and any(one.requires_grad for one in inputs)
        if not (computes and counts):
            return out
        name = func.overloadpacket.__name__
        rule = KEPT.get(name.removesuffix("_"))
        if rule is None and name not in NOTHING:
            self.unknown.add(name)
        kept = [one for one in (rule(args, out) if rule else ()) if isinstance(one, torch.Tensor)]
        numbers = {_storage(one): one.untyped_storage().nbytes() for one in kept}
        for one in map(_storage, inputs):
            if one in self._parameters:
                self._first.setdefault(self._parameters[one], len(self._kept))
        others = ((one, n) for one, n in numbers.items() if one not in self._parameters)
        self._kept.append((self._layer, self._inside, tuple(others)))
        return out

    def steps(self) -> Iterator[Step]:
        """Yield the steps: a parameter's gradient is complete once its first use is undone."""
        for at, (layer, inside, kept) in enumerate(self._kept):
            complete = tuple(name for name, first in self._first.items() if first == at)
            yield Step(layer, kept, complete, inside)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _converted(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return the model in ``dtype``, as ``model.to(dtype)`` would, which needs memory."""
    known: dict[int, nn.Parameter] = {}  # what modules share, they share
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None:
                fresh = nn.Parameter(one.detach().to(dtype), one.requires_grad)
                module._parameters[name] = known.setdefault(id(one), fresh)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)
    return model
