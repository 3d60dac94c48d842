"""What the first update was made of.

After one step of plain SGD, parameters are θ - lr·g to the last bits; so (θ_before - θ_after) / lr
is the gradient that a training used, whatever it did to get it. Here the gradients that it may have
used by mistake are computed in float64, in one process, and the one that fits is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.batches import Minibatches, partition
from workbench.placing import collated, moved
from workbench.source import load
from workbench.spec import Experiment

Vector = npt.NDArray[np.float64]
NAMED = 1e-2  # a candidate that leaves more than this part of the update unexplained is none
WHOLE, MEANS = "whole", "mean of means"


@dataclass(frozen=True)
class Match:
    """``update = scale · lr · gradient of what``, but for ``left``, a part of its length."""

    what: str  # "whole" minibatch, "mean of means" of the parts, "part 1"; "" if nothing fits
    scale: float
    left: float
    cosine: float  # between the update and the right one


@dataclass(frozen=True)
class Start:
    """Where training begins: parameters by name, and gradients there by what they are of."""

    parameters: Mapping[str, Vector]
    uneven: int | None  # the first iteration whose minibatch the ranks cannot share evenly
    gradients: Mapping[str, Vector]

    def match(self, after: Mapping[str, Any], lr: float) -> Match:
        """What a training with plain SGD took for its gradient, by its parameters after one update
        at this learning rate.
        """
        steps = [
            before.ravel() - np.asarray(after[name], np.float64).ravel()
            for name, before in self.parameters.items()
        ]
        update = np.concatenate(steps) / lr
        length = float(np.linalg.norm(update))
        right = self.gradients[WHOLE]
        if not length:
            return Match("", 0.0, 1.0, float("nan"))
        cosine = float(update @ right) / (length * float(np.linalg.norm(right)) or 1.0)
        best = Match("", float("nan"), NAMED, cosine)
        for what, gradient in self.gradients.items():
            scale = float(update @ gradient) / (float(gradient @ gradient) or 1.0)
            left = float(np.linalg.norm(update - scale * gradient)) / length
            # Of candidates that fit alike (parts of equal size) the first is meant.
            if left < best.left * 0.5:
                best = Match(what, scale, left, cosine)
        return best


def start_of(exp: Experiment) -> Start:
    """Parameters and gradients before the first update, in this process. Runs the task's code."""
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(exp.seed)
        model = task.model().to(torch.float64)
        dataset = task.dataset("train")
        ids = Minibatches(len(dataset), exp.batch_size, exp.seed).ids(0)
        parameters = {
            name: value.detach().numpy().copy() for name, value in model.named_parameters()
        }
        gradients = {
            what: _gradient(task, model, dataset, part) for what, part in _parts(ids, exp.ranks)
        }
    each = [gradients[f"part {rank}"] for rank in range(exp.ranks) if f"part {rank}" in gradients]
    means = sum(each, np.zeros_like(gradients[WHOLE])) / exp.ranks
    uneven = first_uneven(exp, len(dataset))
    return Start(parameters, uneven, {WHOLE: gradients[WHOLE], MEANS: means, **gradients})


def first_uneven(exp: Experiment, samples: int) -> int | None:
    """The first iteration whose minibatch the ranks cannot share evenly."""
    minibatches = Minibatches(samples, exp.batch_size, exp.seed)
    sizes = (minibatches.size(one) for one in range(exp.iterations))
    return next((number for number, size in enumerate(sizes) if size % exp.ranks), None)


def _parts(ids: npt.NDArray[np.int64], ranks: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """The minibatch, and what is a rank's: every p-th sample, or that many next to each other."""
    yield WHOLE, ids
    for rank in range(ranks):
        if len(mine := partition(ids, rank, ranks)):
            yield f"part {rank}", mine
    for rank, mine in enumerate(np.array_split(ids, ranks)):
        if len(mine) and ranks > 1:
            yield f"block {rank}", mine


def _gradient(
    task: Any, model: torch.nn.Module, dataset: Any, ids: npt.NDArray[np.int64]
) -> Vector:
    model.zero_grad()
    batch = moved(collated(dataset, ids), torch.device("cpu"), torch.float64)
    task.loss(model, batch).backward()
    each = (torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters())
    found: Vector = torch.cat([one.detach().flatten() for one in each]).numpy().copy()
    return found
