"""The gradients of a loop's first update: each rank's own, and the ones that the ranks used.

A rank's own gradient lies in ``parameter.grad`` after its last backward pass, before anything is
averaged; the used one lies there as an optimizer takes its step. Hooks of torch read both, so the
loop needs no change. A loop that updates its parameters by hand takes no step of an optimizer: the
update itself then stands for the used gradient, whose size means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

Vector = npt.NDArray[np.float64]
OWN, USED, PASSES = "own", "used", "passes"  # names under which a rank hands them in


@dataclass(frozen=True)
class Gradients:
    """Gradients of a first update by rank, each as one vector over all parameters.

    ``own`` is empty where no backward pass was seen. ``passes``: backward passes of a rank
    before the update.
    """

    used: tuple[Vector, ...]
    own: tuple[Vector, ...]
    passes: int


class Probe:
    """Reads gradients at backward passes and at an optimizer's steps, inside ``with``."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = dict(model.named_parameters())
        self._names = {id(value): name for name, value in self._parameters.items()}
        self._before = {n: value.detach().clone() for n, value in self._parameters.items()}
        self._own, self._used = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
        self._passes = dict[str, int]()
        self._handles = list[Any]()

    def __enter__(self) -> Self:
        self._handles = [
            value.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
            for value in self._parameters.values()
            if value.requires_grad
        ]
        self._handles.append(register_optimizer_step_pre_hook(self._steps))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _accumulated(self, parameter: torch.Tensor) -> None:
        name = self._names[id(parameter)]
        if name not in self._used and parameter.grad is not None:
            self._own[name] = parameter.grad.detach().clone()
            self._passes[name] = self._passes.get(name, 0) + 1

    def _steps(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if name := self._names.get(id(parameter)):
                    grad = parameter.grad
                    value = torch.zeros_like(parameter) if grad is None else grad
                    self._used.setdefault(name, value.detach().clone())

    def gathered(self, group: dist.ProcessGroup) -> dict[str, torch.Tensor]:
        """Return the gradients of all ranks of ``group``, for ``gradients_of`` to read."""
        moved = {
            name: before - self._parameters[name].detach() for name, before in self._before.items()
        }
        used = self._flat(self._used or moved)
        mine = {
            USED: used,
            OWN: self._flat(self._own),
            PASSES: used.new_tensor([max(self._passes.values(), default=0)]),
        }
        result = dict[str, torch.Tensor]()
        for what, values in mine.items():
            each = [torch.empty_like(values) for _ in range(dist.get_world_size(group))]
            dist.all_gather(each, values, group=group)
            result |= {f"{what} {rank}": one for rank, one in enumerate(each)}
        return result

    def _flat(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat(
            [
                values.get(name, torch.zeros_like(before)).to(torch.float64).flatten()
                for name, before in self._before.items()
            ]
        )


def gradients_of(handed_in: Mapping[str, Any]) -> Gradients:
    """Return the gradients that the ranks of a probe handed in instead of parameters."""

    def each(what: str) -> tuple[Vector, ...]:
        ranks = sum(1 for name in handed_in if name.startswith(f"{what} "))
        return tuple(np.asarray(handed_in[f"{what} {rank}"], np.float64) for rank in range(ranks))

    own, passes = each(OWN), each(PASSES)
    heard = all(len(one) and one[0] for one in passes)
    return Gradients(each(USED), own if heard else (), int(passes[0][0]) if heard else 0)
