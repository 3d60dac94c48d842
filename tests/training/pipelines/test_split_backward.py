"""A backward in two halves gives what one in a piece gives, whatever the graph.

Weights used once, twice, one behind the other and side by side, weights that no input leads to,
nodes with several outputs. Against it: torch's own backward.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

import workbench as wb
from tests.digits import Digits
from workbench.training.pipelines.split_backward import input_gradients, weight_gradients

Graph = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | tuple[Tensor, ...]]


def repeated(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """A block of two layers, passed three times: uses of a and b alternate."""
    for _ in range(3):
        x = linear(linear(x, a, c).tanh(), b)
    return x


GRAPHS: dict[str, Graph] = {
    "each once": lambda x, a, b, c: linear(linear(x, a, c).tanh(), b),
    "one twice in line": lambda x, a, b, c: (x @ a).tanh() @ a + c,
    "directly": lambda x, a, b, c: x @ a @ a @ b,
    "through one view": lambda x, a, b, c: (lambda t: (x @ t).tanh() @ t)(a.t()),
    "side by side": lambda x, a, b, c: (x @ a).tanh() * (x.sin() @ a) + x @ b,
    "repeated block": repeated,
    "nested": lambda x, a, b, c: (((x @ a).tanh() @ b).tanh() @ b).tanh() @ a,
    "mixed before use": lambda x, a, b, c: (x @ (a + b)).tanh() @ (a * b),
    "several outputs of a node": lambda x, a, b, c: (
        (lambda u, v: u @ a[:3] + v.sin() @ a[3:])(*(x @ b).split(3, -1)) + c
    ),
    "norm": lambda x, a, b, c: layer_norm(layer_norm(x @ a, (6,), c, c) @ a, (6,), c),
    "two ends": lambda x, a, b, c: ((x @ a).tanh(), (x @ a).tanh() @ a),
    "an end without an input": lambda x, a, b, c: ((x @ a).tanh(), (b * b).sum(0) + c),
    "an end twice": lambda x, a, b, c: (lambda y: (y, y * 2))((x @ a).tanh()),
    "a weight that is not used": lambda x, a, b, c: x @ a,
    "no weight": lambda x, a, b, c: x.sin(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_halves_are_the_whole(name: str) -> None:
    draw = torch.Generator().manual_seed(3)
    shapes = ((4, 6), (6, 6), (6, 6), (6,))
    values = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]

    def of_leaves() -> tuple[list[Tensor], list[Tensor]]:
        leaves = [one.clone().requires_grad_() for one in values]
        result = GRAPHS[name](*leaves)
        ends = [*result] if isinstance(result, tuple) else [result]
        return leaves, ends

    leaves, ends = of_leaves()
    grads = [torch.randn(e.shape, generator=draw, dtype=torch.float64) for e in ends]
    torch.autograd.backward(ends, grads)
    split, ends = of_leaves()
    branches = input_gradients(ends, grads, split[:1], split[1:])
    assert split[0].grad is not None and leaves[0].grad is not None
    assert torch.equal(split[0].grad, leaves[0].grad)
    assert all(one.grad is None for one in split[1:]), "I leaves weights to W"
    weight_gradients(branches)
    for mine, whole in zip(split, leaves, strict=True):
        assert (mine.grad is None) == (whole.grad is None)
        if mine.grad is not None:
            assert torch.allclose(mine.grad, whole.grad, rtol=1e-13, atol=1e-13)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.second(self.first(x).tanh()).tanh()
        return x


class Repeated(Digits):
    def model(self) -> torch.nn.Module:
        layers = [torch.nn.Flatten(), torch.nn.Linear(64, 64), Block(), torch.nn.Linear(64, 10)]
        return torch.nn.Sequential(*layers)

    def loss(self, model: torch.nn.Module, batch: list[Tensor]) -> Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def test_a_pipeline_whose_stage_uses_weights_twice_is_sequential_training() -> None:
    fields = {"task": Repeated, "iterations": 8, "dtype": "float64", "lr": 0.1, "batch_size": 48}
    options = {"schedule": "zb_h1", "microbatches": 4, "split": ["2"]}
    alone = wb.run(wb.Experiment(strategy="sequential", ranks=1, **fields)).wait(timeout=90)
    piped = wb.run(wb.Experiment(strategy="pipeline", ranks=2, options=options, **fields))
    assert piped.wait(timeout=90).losses == pytest.approx(alone.losses, rel=1e-12)
