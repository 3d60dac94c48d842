"""A look at how a task's model would be split, in the driver and before any rank starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate

from workbench.common.errors import SpecError
from workbench.rank.placement import need_samples
from workbench.tasks._blueprint import look_at_model
from workbench.training.tensor_parallel import planning
from workbench.training.tensor_parallel.tokens import by_tokens as by_sequence
from workbench.user_code import source

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

FEW = 16  # samples that the driver makes to look at


def look_ahead(exp: Experiment, ranks: int, *, by_tokens: bool, equally: bool = False) -> None:
    """Raise SpecError if no layer can be split over ``ranks``.

    A user's own task does not run here: its ranks raise before they train.
    """
    if not isinstance(exp.task, str) or source.split_path(exp.task):
        return

    def look(model: torch.nn.Module) -> None:
        device = next((one.device for one in model.parameters()), torch.device("cpu"))
        there = pytree.tree_map_only(torch.Tensor, lambda one: one.to(device), batch)
        args = planning.arguments(task, model, there)
        plan = planning.plan(model, args, ranks, equally=equally)
        if by_tokens:
            by_sequence(plan)

    with torch.random.fork_rng(devices=[]):
        try:
            task = source.load("tasks", exp.task, "Task")(**_few_samples(exp.task_options))
        except (TypeError, ValueError) as error:
            raise SpecError.at("task_options", str(error), dict(exp.task_options)) from None
        data = need_samples(task.dataset("train"), "train", task)
        batch = default_collate([data[i] for i in range(min(2, exp.batch_size, len(data)))])
        look_at_model(task, look)


def _few_samples(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's options with FEW of its made-up samples: two of them tell their shapes."""
    count = options.get("samples")
    few = {"samples": FEW} if isinstance(count, int) and count > FEW else {}
    return {**options, **few}
