"""Layers of a model: what they are called, where it may be cut, what cannot be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.models import example
from workbench.common.errors import SpecError
from workbench.training.splitting.traced import trace


def test_layers_are_modules_and_functions_in_the_order_of_execution() -> None:
    model, _ = example("skips")
    traced = trace(model)
    assert [(layer.name, layer.op) for layer in traced.layers] == [
        ("first", "Linear"),
        ("tanh", "tanh"),
        ("middle.0", "Linear"),
        ("middle.1", "BatchNorm1d"),
        ("middle.2", "ReLU"),
        ("mul", "mul"),
        ("add", "add"),
        ("middle.0:2", "Linear"),
        ("gelu", "gelu"),
        ("cat", "cat"),
        ("last", "Linear"),
    ]
    assert traced.layers[5].parameters == ("scale",)
    assert traced.layers[2].parameters == ("middle.0.weight", "middle.0.bias")


def test_a_module_that_is_used_twice_stays_in_one_stage() -> None:
    model, _ = example("skips")
    traced = trace(model)
    refusals = dict(zip(traced.names, traced.refusals(), strict=False))
    allowed = {name for name, refusal in refusals.items() if refusal is None}
    assert allowed == {"first", "tanh", "middle.0:2", "gelu", "cat"}
    assert "'middle.0.weight' would be on both sides: 'middle.0' and 'middle.0:2'" in str(
        refusals["middle.2"]
    )


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.words(x)))


def test_tied_weights_are_refused_by_name_at_every_boundary_between_them() -> None:
    for refusal in trace(Tied()).refusals():
        assert "the parameter 'words.weight' would be on both sides: 'words' and 'head'" in str(
            refusal
        )


def _of_its_own(text: str) -> Callable[..., torch.Tensor]:
    """``forward`` as Python compiles it: pytest rewrites those of this file."""
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace["forward"]


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        rows = hidden.size(0)
        more = self.two(hidden) + rows
        return self.three(more).view(rows, 2, 2)


def test_a_size_crosses_no_boundary() -> None:
    traced = trace(Sizes())
    assert traced.names == ("one", "two", "add", "three")
    assert traced.crossing(1) == ("one", "two")  # the size is read behind it, where it is needed
    *before, after = traced.refusals()
    assert before == [None, None]
    assert "between 'add' and 'three' the value 'size' would have to pass" in str(after)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        return self.two(self.act(hidden)).add_(hidden)


def test_what_changes_in_place_belongs_to_what_it_changes() -> None:
    traced = trace(InPlace())
    assert [layer.nodes for layer in traced.layers] == [("one", "act"), ("two", "add_")]
    assert traced.refusals() == (None,)


class Late(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        two = self.two(hidden)
        return two + hidden.mul_(2)


def test_what_crosses_is_not_changed_afterwards() -> None:
    assert "'two' then changes it in place" in str(trace(Late()).refusals()[0])


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


def test_a_module_that_branches_stays_one_layer() -> None:
    traced = trace(nn.Sequential(nn.Linear(4, 4), nn.Sequential(Branches(), nn.Tanh())))
    assert traced.names == ("0", "1.0", "1.1")
    assert list(traced.whole) == ["1.0"]
    assert "control flow" in traced.whole["1.0"]
    assert traced.layers[1].parameters == ("1.0.linear.weight", "1.0.linear.bias")


def test_a_model_that_branches_is_refused() -> None:
    with pytest.raises(SpecError, match=r"the model Branches cannot be traced.*control flow"):
        trace(Branches())


ASSERTING = """
def forward(self, x):
    rows, columns = x.shape
    assert columns == 4 and rows > 0, f"{columns} columns"
    assert rows
    if self.training:
        assert columns != rows, "no square"
    return self.one(x)
"""


class Rewritten(Sizes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        assert columns == 4, f"{columns} columns"  # as pytest writes it again here
        assert rows
        return self.one(x)


class Plain(Sizes):
    forward = _of_its_own(ASSERTING)


class Branching(Sizes):
    forward = _of_its_own(ASSERTING.replace("self.training", "rows"))


class Alternative(Sizes):
    forward = _of_its_own(ASSERTING.replace("if self.training", "if not rows"))


@pytest.mark.parametrize("model", [Rewritten, Plain])
def test_asserts_are_passed_over(model: type[nn.Module]) -> None:
    assert trace(model()).names == ("one",)


@pytest.mark.parametrize("model", [Branching, Alternative])
def test_a_branch_to_an_assert_is_none(model: type[nn.Module]) -> None:
    with pytest.raises(SpecError, match="must not branch"):
        trace(model())


def test_more_arguments_than_the_model_takes_are_refused() -> None:
    with pytest.raises(SpecError, match="called with 2 positional arguments; its forward takes x"):
        trace(Sizes(), 2)


def test_an_argument_with_a_default_is_traced_where_it_is_given() -> None:
    model, _ = example("skips")
    assert trace(model).inputs == ("x",)
    both = trace(model, 2)
    assert both.inputs == ("x", "mask")
    assert len(both.layers) == len(trace(model).layers) + 1


def test_makers_of_tensors_are_as_they_were() -> None:
    before = torch.arange
    trace(example("pair")[0], 2)
    with pytest.raises(SpecError):
        trace(Branches())
    assert torch.arange is before
