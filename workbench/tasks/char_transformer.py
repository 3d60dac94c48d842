"""A small GPT that learns to write Python's manual: the next character after up to 64.

Paper  Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2): blocks
       x + attention(norm(x)), x + feed_forward(norm(x)), learned positions, a last norm. Here
       without dropout, and the head's weights are its own, so that stages share nothing.
Text   the topics of pydoc, ``help("LAMBDA")``, about 465,000 characters; they come with every
       CPython, each version with its own. ASCII's 95 printable characters and the line's end are
       the alphabet, whatever else there is counts as one more.
Sizes  97 characters; layers x 12 width^2 parameters in blocks, and (194 + context) x width.
"""

from __future__ import annotations

import math
from functools import cache
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
OTHER = len(ALPHABET)  # of all other characters
VALIDATION_EVERY = 30  # each thirtieth window of text is for validation


class Attention(nn.Module):
    """Causal attention; ``head_width`` alone fixes the heads, so their number may be parted."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # batch, time, width
        context = F.scaled_dot_product_attention(
            self.by_head(self.query(x)),
            self.by_head(self.key(x)),
            self.by_head(self.value(x)),
            is_causal=True,
        )
        return self.output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` (batch, time, width) as batch, head, time, head_width."""
        return torch.unflatten(x, 2, (-1, self.head_width)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class CharTransformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(OTHER + 1, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, OTHER + 1)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character (batch, time, character).

        text: batch, time
        """
        x = self.characters(text) + self.positions[: text.size(1)]
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


class Task:
    """Metrics: the share of characters foretold right, and bits a character (2.0: 1 of 4)."""

    def __init__(
        self, *, layers: int = 4, width: int = 64, heads: int = 4, context: int = 64
    ) -> None:
        if min(layers, width, heads, context) < 1 or width % heads:
            raise ValueError(
                f"layers={layers}, width={width}, heads={heads}, context={context}: all at least "
                "1, and heads divide width"
            )
        self.layers, self.width, self.heads, self.context = layers, width, heads, context

    def model(self) -> nn.Module:
        return CharTransformer(self.layers, self.width, self.heads, self.context)

    def dataset(self, split: str) -> Dataset[tuple[torch.Tensor, ...]]:
        """Return windows of ``context`` characters, and the same windows one character later."""
        text = manual()
        windows = (len(text) - 1) // self.context
        now = text[: windows * self.context].view(windows, self.context)
        following = text[1 : windows * self.context + 1].view(windows, self.context)
        chosen = torch.arange(windows) % VALIDATION_EVERY == 0
        if split == "train":
            chosen = ~chosen
        return TensorDataset(now[chosen], following[chosen])

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        text, following = batch
        return F.cross_entropy(model(text).flatten(0, 1), following.flatten())

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        text, following = batch
        logits = model(text)
        nats = F.cross_entropy(logits.flatten(0, 1), following.flatten()).item()
        right = (logits.argmax(2) == following).count_nonzero().item() / following.numel()
        return {"accuracy": right, "bits": nats / math.log(2)}

    def write(self, model: nn.Module, start: str, characters: int, *, seed: int = 0) -> str:
        """Return ``start`` and the model's continuation, sampled from its probabilities."""
        chance = torch.Generator().manual_seed(seed)
        text = encode(start)
        with torch.no_grad():
            for _ in range(characters):
                likely = model(text[None, -self.context :])[0, -1].softmax(0)
                text = torch.cat([text, torch.multinomial(likely.cpu(), 1, generator=chance)])
        return "".join((*ALPHABET, "\N{REPLACEMENT CHARACTER}")[i] for i in text.tolist())


@cache
def manual() -> torch.Tensor:
    """Return the whole text, encoded; each batch of a validation needs it."""
    return encode("\n\n".join(topics.topics[name] for name in sorted(topics.topics)))


def encode(text: str) -> torch.Tensor:
    """Return positions in the alphabet (int64)."""
    places = {character: i for i, character in enumerate(ALPHABET)}
    return torch.tensor([places.get(character, OTHER) for character in text])


def size(*, layers: int = 4, width: int = 64, heads: int = 4, context: int = 64) -> int:
    """Return the least number of values that the model holds, without making it."""
    return layers * 12 * width * width + (2 * len(ALPHABET) + context) * width
