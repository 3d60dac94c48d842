"""The experiment's update rule, one of torch's, at its learning rate, which may rise at first.

An optimizer of torch's imports torch's compiler, a second's work in each rank that nothing was
imported for, and asks it to leave the optimizer alone. These are the same optimizers without that.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import unwrap
from typing import Any

import torch

from workbench.experiment.spec import Experiment


class _Uncompiled(torch.optim.Optimizer):
    """Methods of every optimizer, without the wrapper that keeps the compiler out of them."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class SGD(_Uncompiled, torch.optim.SGD):
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(_Uncompiled, torch.optim.Adam):
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(_Uncompiled, torch.optim.AdamW):
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class Adagrad(_Uncompiled, torch.optim.Adagrad):
    step = torch.no_grad()(unwrap(torch.optim.Adagrad.step))


def optimizer_of(
    exp: Experiment, parameters: Iterable[torch.Tensor], scale: float = 1.0
) -> torch.optim.Optimizer:
    """Return the experiment's optimizer for these parameters. ``scale``: the size of minibatches as
    a multiple of ``batch_size``, with which the learning rate grows.
    """
    rate = exp.rate_at(0) * scale
    result: torch.optim.Optimizer
    match exp.optimizer:
        case "sgd":
            result = SGD(parameters, lr=rate, momentum=exp.momentum)
        case "adam":
            result = Adam(parameters, lr=rate)
        case "adamw":
            result = AdamW(parameters, lr=rate)
        case "adagrad":
            result = Adagrad(parameters, lr=rate)
    if exp.warmup or exp.scale_batch:
        _set_rate(result, exp, scale)
    return result


def _set_rate(optimizer: torch.optim.Optimizer, exp: Experiment, scale: float) -> None:
    """Set the learning rate before each update; how many there were is kept with the optimizer."""

    def before(_: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] = exp.rate_at(group["updates"]) * scale
            group["updates"] += 1

    for group in optimizer.param_groups:
        group["updates"] = 0
    optimizer.register_step_pre_hook(before)
