"""Models of many shapes, to be cut over ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from workbench.tasks.lenet_digits import Task as LeNet

WIDTH, HEADS = 24, 4


class Attention(nn.Module):
    """Queries, keys and values of one layer, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (y.view(batch, time, HEADS, width // HEADS).transpose(1, 2) for y in (q, k, v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(context.transpose(1, 2).reshape(batch, time, width))


class SplitAttention(Attention):
    """The same with sizes in ``split``, and its own softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(5, 5).tril() == 0)
        self.warmth = nn.Parameter(torch.tensor(0.4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).split([WIDTH] * 3, dim=2)
        q, k, v = (y.unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3) for y in (q, k, v))
        weights = (q @ k.transpose(-2, -1) * self.warmth).masked_fill(self.mask, -1e9)
        return self.out((torch.softmax(weights, -1) @ v).transpose(1, 2).flatten(2))


class ViewedAttention(Attention):
    """Taken apart by a dimension of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time = x.size(0), x.size(1)
        q, k, v = self.qkv(x).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).contiguous().view(batch, time, WIDTH))


class IndexedAttention(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(x).reshape(x.shape[0], -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.out(context.transpose(1, 2).flatten(-2))


class InterleavedAttention(Attention):
    """Each head's query, key and value side by side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
        q, k, v = heads.chunk(3, dim=-1)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ThreeLayers(nn.Module):
    """A layer each for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(context.transpose(1, 2).flatten(2))


class SharedLayer(ThreeLayers):
    """One layer for queries and keys."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v, q, k = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.v, self.q, self.q)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(context.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """Two layers side by side, one after both; a scale that is learned in between."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 40, bias=False), nn.Linear(WIDTH, 40)
        self.down, self.scale = nn.Linear(40, WIDTH, bias=False), nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.scale * self.up(x))


class Block(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x))


class Tied(nn.Module):
    """What it reads with is what it writes with."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.hidden(self.embedding(x))))


def transformer(inner: type[nn.Module]) -> nn.Module:
    feed = nn.Sequential(nn.Linear(WIDTH, 50), nn.GELU(), nn.Linear(50, WIDTH))
    blocks = [Block(inner()), Block(feed)]
    return nn.Sequential(
        nn.Embedding(30, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 30)
    )


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 9, 20),
        nn.BatchNorm1d(20),
        nn.Linear(20, 4, bias=False),
    )


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 1),
        nn.Conv2d(6, 6, 3, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(6, 2),
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 12), nn.Dropout(0.3), nn.Linear(12, 6), nn.Softmax(dim=1))


TEXT, PICTURES = torch.arange(10).view(2, 5), torch.linspace(-1, 1, 2 * 3 * 144).view(2, 3, 12, 12)
DIGITS, TABLE = torch.linspace(-1, 1, 3 * 784).view(3, 1, 28, 28), torch.ones(4, 10)
# The model, its input, and how its layers with parameters are split over 2 ranks: by outputs
# (column), by inputs (row), by outputs and then gathered (Column), not (.).
MODELS: dict[str, tuple[Any, torch.Tensor, str]] = {
    "lenet": (lambda: LeNet().model(), DIGITS, "crcrC"),
    "chunk": (lambda: transformer(Attention), TEXT, "..cr.cr.C"),
    "split": (lambda: transformer(SplitAttention), TEXT, "..c.r.cr.C"),
    "view": (lambda: transformer(ViewedAttention), TEXT, "..cr.cr.C"),
    "index": (lambda: transformer(IndexedAttention), TEXT, "..cr.cr.C"),
    "interleaved": (lambda: transformer(InterleavedAttention), TEXT, "..cr.cr.C"),
    "three layers": (lambda: transformer(ThreeLayers), TEXT, "..cccr.cr.C"),
    "shared layer": (lambda: transformer(SharedLayer), TEXT, "..C.C.cr.C"),
    "gated": (lambda: transformer(Gated), TEXT, "..c.cr.cr.C"),
    "tied": (Tied, TEXT, ".C."),
    "images": (images, PICTURES, "cr.C"),
    "grouped": (grouped, PICTURES, "C.C"),
    "dropping": (dropping, TABLE, "CC"),
}
