"""The gradient that the first update was made of.

After one step of plain SGD, parameters are θ - lr·g to the last bits; so (θ_before - θ_after) / lr
is the gradient that a training used, however it computed it. This module computes in float64, in
one process, the gradients that a bug may have used instead, and names the one that matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.experiment.spec import Experiment
from workbench.rank.batches import Minibatches, partition
from workbench.rank.placement import collate, move_batch
from workbench.studies.drift.resuming import generators, same_generators, set_generators
from workbench.user_code.source import load

Vector = npt.NDArray[np.float64]
NAMED = 1e-2  # a candidate that leaves more than this part of the update unexplained is none
WHOLE, MEANS = "whole", "mean of means"
EQUAL = 1e-9  # a part of an update that float64 alone explains


@dataclass(frozen=True)
class Match:
    """``update = scale · lr · gradient of what``, but for ``left``, a part of its length."""

    what: str  # "whole" minibatch, "mean of means" of the parts, "part 1"; "" if nothing fits
    scale: float
    left: float
    cosine: float  # between the update and the right one


@dataclass(frozen=True)
class Start:
    """The start of training: parameters by name, and the gradients there by their kind."""

    parameters: Mapping[str, Vector]
    uneven: int | None  # the first iteration whose minibatch the ranks cannot share evenly
    gradients: Mapping[str, Vector]
    draws: bool = False  # the task draws random numbers as it computes a loss
    couples: bool = False  # the gradient of a minibatch is not the mean of its parts'

    def match(self, after: Mapping[str, Any], lr: float) -> Match:
        """Return the gradient that a training with plain SGD used, from its parameters after one
        update.

        ``lr`` is the learning rate of that update.
        """
        steps = [
            before.ravel() - np.asarray(after[name], np.float64).ravel()
            for name, before in self.parameters.items()
        ]
        update = np.concatenate(steps) / lr
        return best_match(update, self.gradients)


def best_match(update: Vector, gradients: Mapping[str, Vector]) -> Match:
    """Return which of the gradients an update is a multiple of; the first is the right one."""
    length = float(np.linalg.norm(update))
    right = next(iter(gradients.values()))
    if not length:
        return Match("", 0.0, 1.0, float("nan"))
    cosine = float(update @ right) / (length * float(np.linalg.norm(right)) or 1.0)
    best = Match("", float("nan"), NAMED, cosine)
    for what, gradient in gradients.items():
        scale = float(update @ gradient) / (float(gradient @ gradient) or 1.0)
        left = float(np.linalg.norm(update - scale * gradient)) / length
        # Of candidates that fit alike (parts of equal size) the first is meant.
        if left < best.left * 0.5 and best.left > EQUAL:
            best = Match(what, scale, left, cosine)
    return best


def start_of(exp: Experiment) -> Start:
    """Return parameters and gradients before the first update. Runs the task's code in this
    process.
    """
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(exp.seed)
        model = task.model().to(torch.float64)
        dataset = task.dataset("train")
        ids = _minibatches(exp, len(dataset)).ids(0)
        parameters = {
            name: value.detach().numpy().copy() for name, value in model.named_parameters()
        }
        before = generators()
        gradients, sizes = dict[str, Vector](), dict[str, int]()
        for what, part in _parts(ids, exp.ranks):
            sizes[what] = len(part)
            set_generators(before)  # each rank draws what one process would
            gradients[what] = _gradient(task, model, dataset, part)
        draws = not same_generators(before, generators())
        set_generators(before)
    each = [gradients[f"part {rank}"] for rank in range(exp.ranks) if f"part {rank}" in gradients]
    whole = gradients.pop(WHOLE)
    means = sum(each, np.zeros_like(whole)) / exp.ranks
    weighed = (gradients[what] * sizes[what] for what in gradients if what.startswith("part"))
    apart = whole - sum(weighed, np.zeros_like(whole)) / len(ids)
    couples = float(np.linalg.norm(apart)) > EQUAL * float(np.linalg.norm(whole))
    uneven = first_uneven(exp, len(dataset))
    return Start(parameters, uneven, {WHOLE: whole, MEANS: means, **gradients}, draws, couples)


def first_uneven(exp: Experiment, samples: int) -> int | None:
    """Return the first iteration whose minibatch the ranks cannot share evenly."""
    minibatches = _minibatches(exp, samples)
    sizes = (minibatches.size(one) for one in range(exp.iterations))
    return next((number for number, size in enumerate(sizes) if size % exp.ranks), None)


def _minibatches(exp: Experiment, samples: int) -> Minibatches:
    return Minibatches(samples, exp.batch_size, exp.seed, buffer=exp.shuffle_buffer)


def _parts(ids: npt.NDArray[np.int64], ranks: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the minibatch and each rank's possible share: every p-th sample, or a block."""
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
    batch = move_batch(collate(dataset, ids), torch.device("cpu"), torch.float64)
    task.loss(model, batch).backward()
    each = (torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters())
    result: Vector = torch.cat([one.detach().flatten() for one in each]).numpy().copy()
    return result
