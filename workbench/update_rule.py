"""The experiment's update rule: SGD or Adam at its learning rate, which may rise at first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from workbench.spec import Experiment


def optimizer_of(exp: Experiment, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """For these parameters."""
    rate = exp.rate_at(0)
    made: torch.optim.Optimizer = (
        torch.optim.Adam(parameters, lr=rate)
        if exp.optimizer == "adam"
        else torch.optim.SGD(parameters, lr=rate, momentum=exp.momentum)
    )
    if exp.warmup:
        _warm_up(made, exp)
    return made


def _warm_up(optimizer: torch.optim.Optimizer, exp: Experiment) -> None:
    """Set the learning rate before each update; how many there were is kept with the optimizer."""

    def before(_: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] = exp.rate_at(group["updates"])
            group["updates"] += 1

    for group in optimizer.param_groups:
        group["updates"] = 0
    optimizer.register_step_pre_hook(before)
