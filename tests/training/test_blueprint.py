"""The driver knows a model by its shapes, and holds none of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from workbench.common.errors import SpecError
from workbench.tasks import (
    catch,
    char_transformer,
    gymnasium_game,
    lenet_digits,
    mlp_layers,
    video_tags,
)
from workbench.tasks._blueprint import MOST_TENSORS, blueprint, blueprints_only, look_at_model

OURS = (catch, char_transformer, gymnasium_game, lenet_digits, mlp_layers, video_tags)


@pytest.mark.parametrize("module", OURS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_blueprint_has_the_shapes_of_the_model(module: Any) -> None:
    task = module.Task()
    shapes, known = (
        {name: (one.shape, one.dtype) for name, one in model.state_dict().items()}
        for model in (task.model(), blueprint(task))
    )
    assert shapes == known
    assert all(one.is_meta for one in blueprint(task).state_dict().values())


def test_what_no_blueprint_has_is_refused_in_a_sentence() -> None:
    for task, reason in (
        (mlp_layers.Task(layers=10**9, width=16), f"more than {MOST_TENSORS:,} tensors"),
        (char_transformer.Task(layers=10**9), f"more than {MOST_TENSORS:,} tensors"),
        (mlp_layers.Task(width=10**12), "cannot be made of these"),
    ):
        with pytest.raises(SpecError, match=reason):
            blueprint(task)
    torch.nn.Linear(1, 1)  # what counted is gone, or this would be one too many


def test_blueprints_are_for_the_numbers_of_strangers_and_tasks_of_ours() -> None:
    ours, own = lenet_digits.Task(), SimpleNamespace(model=lambda: torch.nn.Linear(2, 2))

    def is_meta(model: torch.nn.Module) -> bool:
        return next(model.parameters()).is_meta

    assert not look_at_model(ours, is_meta)
    with blueprints_only():
        assert look_at_model(ours, is_meta) and not look_at_model(own, is_meta)
    assert not look_at_model(ours, is_meta)
