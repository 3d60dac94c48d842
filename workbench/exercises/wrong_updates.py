"""A training step on four ranks, and ten ways to get its update wrong: chapter 22.

Ranks 0 and 1 are a pair that holds one model, ranks 2 and 3 hold its copy. In a pair the tokens are
split where they are normalized, and the hidden units where they are multiplied (sequence and tensor
parallelism); the two pairs take different samples. ``BUG`` in the environment is a letter of
``BUGS``, or "" for the right step.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

BUGS = "abcdefghij"
bug = os.environ.get("BUG", "")


class Gather(torch.autograd.Function):
    """The tokens of both ranks of a pair; backward adds the gradients that both have for them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pair: Any) -> torch.Tensor:
        ctx.pair = pair
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x, group=pair)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grads[0].contiguous()
        if bug != "g":
            dist.all_reduce(grad, group=ctx.pair)
        return grad.chunk(2)[dist.get_rank(ctx.pair)], None


class Sum(torch.autograd.Function):
    """The sum of both ranks' parts of a product; backward hands its gradient to both."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pair: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=pair)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


class Half(nn.Module):
    """A rank's half of a normalization and an MLP with 12 hidden units: 6 units."""

    def __init__(self, part: int, pair: Any) -> None:
        super().__init__()
        self.part, self.pair = part, pair
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 6, bias=False)
        self.down = nn.Linear(6, 5, bias=False)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of all tokens, [tokens, 5], the same on both ranks of the pair."""
        mine = self.norm(tokens.chunk(2)[self.part])
        hidden = torch.tanh(self.up(Gather.apply(mine, self.pair)))  # type: ignore[no-untyped-call]
        if bug == "d":
            return Sum.apply(self.down(hidden) + self.bias, self.pair)  # type: ignore[no-any-return, no-untyped-call]
        return Sum.apply(self.down(hidden), self.pair) + self.bias  # type: ignore[no-any-return, no-untyped-call]


def average(name: str, grad: torch.Tensor, pair: Any, same: Any) -> None:
    """Make a parameter's gradient that of the mean over the samples of both pairs, in place."""
    if name.startswith("norm") and bug != "b":
        dist.all_reduce(grad, group=pair)  # each rank of a pair has normalized half of the tokens
    if (name, bug) == ("up.weight", "c"):
        grad = grad.clone()
    dist.all_reduce(grad, group=pair if (name, bug) == ("down.weight", "f") else same)
    grad /= {"a": 1, "h": dist.get_world_size()}.get(bug, 2)


def train(rank: int, size: int, updates: int = 1) -> list[float]:
    """Return the loss of this rank's pair before each update."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # they split the model
    copies = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # they split the samples
    pair, same = pairs[rank // 2], copies[rank % 2]

    torch.manual_seed(7)
    up, down = torch.randn(12, 6) / 3, torch.randn(5, 12) / 3
    model = Half(rank % 2, pair)
    with torch.no_grad():
        model.up.weight.copy_(up.chunk(2)[rank % 2])
        model.down.weight.copy_(down.chunk(2, 1)[rank % 2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank // 2)  # each pair has samples of its own
    tokens, classes = torch.randn(8, 6), torch.randint(5, (8,))

    losses = []
    passes = 2 if bug in ("e", "i") else 1
    for _ in range(updates):
        optimizer.zero_grad()
        losses.append(0.0)
        for few, right in zip(tokens.chunk(passes), classes.chunk(passes), strict=True):
            if bug == "i":
                optimizer.zero_grad()
            loss = functional.cross_entropy(model(few), right)
            (loss / 2 if bug == "i" else loss).backward()  # type: ignore[no-untyped-call]
            losses[-1] += loss.item() / passes
        if bug == "j":
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                average(name, parameter.grad, pair, same)
        optimizer.step()
    return losses
