"""Models that are split in tests, each with arguments for a microbatch of any size."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from workbench.tasks import char_transformer, lenet_digits


class Skips(nn.Module):
    """Skip connections over one layer and over all; sizes read; functions and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.last = nn.Linear(14, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        rows, columns = x.shape
        assert columns == 6, "six columns"
        first = torch.tanh(self.first(x))
        middle = self.middle(first) * self.scale
        if mask is not None:
            middle = middle * mask
        again = F.gelu(self.middle[0](middle + first))
        return self.last(torch.cat([again, x], dim=1).view(rows, -1))


class Pair(nn.Module):
    """Two arguments, one of them whole numbers that the last layers need; tuples come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.names = nn.Embedding(5, 4)
        self.mix = nn.Linear(4, 8)
        self.memory = nn.GRU(4, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, names: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = self.mix(x).chunk(2, dim=-1)
        states, _ = self.memory(left * right.sigmoid())
        order = torch.arange(x.size(1), device=x.device)
        out = self.out(states + self.names(names) + order[None, :, None])
        return out, states


class Written(nn.Module):
    """As GPTs are often written: sizes read everywhere, a mask in a buffer, torch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.both = nn.Linear(8, 24)
        self.register_buffer("seen", torch.tril(torch.ones(6, 6)).bool())
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 11)

    def forward(self, text: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        rows, time = text.size()
        assert time <= 6, f"{time} is too long"
        x = self.words(text) + self.places(torch.arange(time, device=text.device))
        query, key, value = self.both(x).split(8, dim=2)
        scores = query @ key.transpose(1, 2) * (1.0 / math.sqrt(key.size(-1)))
        scores = scores.masked_fill(~self.seen[:time, :time], -math.inf)
        x = x + (F.softmax(scores, dim=-1) @ value).contiguous().view(rows, time, 8)
        logits = self.head(self.encoder(x))
        return logits if targets is None else F.cross_entropy(logits, targets)


Arguments = Callable[[int], tuple[torch.Tensor, ...]]

MODELS: dict[str, tuple[Callable[[], nn.Module], Arguments]] = {
    "lenet": (lenet_digits.Task().model, lambda n: (torch.randn(n, 1, 28, 28),)),
    "transformer": (
        char_transformer.Task(layers=2, width=16, heads=2, context=12).model,
        lambda n: (torch.randint(97, (n, 12)),),
    ),
    "skips": (Skips, lambda n: (torch.randn(n, 6),)),
    "written": (Written, lambda n: (torch.randint(11, (n, 5)),)),
    "pair": (Pair, lambda n: (torch.randn(n, 5, 4), torch.randint(5, (n, 5)))),
}


def example(name: str, samples: int = 4) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and arguments, the same every time; float64 throughout."""
    make, arguments = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().double()
        args = tuple(a.double() if a.is_floating_point() else a for a in arguments(samples))
    return model, args
