"""A replica's parameters as eight numbers, from which distances between replicas are estimated.

Each number is the product of the parameters with a random vector r_j that is the same on every
rank, over √8. Such projections keep distances: the sum over j of (a_j - b_j)² is |a - b|² in the
mean, give or take a factor of 1 ± ½. They need no message, and so disturb no worker that runs on
its own time; they are linear, so the mean of the replicas' numbers is the number of their mean.

Paper   Johnson & Lindenstrauss, "Extensions of Lipschitz mappings into a Hilbert space",
        Contemporary Mathematics 26, 1984. That parameters may be folded first, with random signs:
        Charikar, Chen & Farach-Colton, "Finding frequent items in data streams", ICALP 2002.
Cost    one pass over the parameters; 1 byte a parameter is kept, and 8 · 8,192 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

NUMBERS = 8
_FOLDED = 8192  # parameters so far apart share a number of r_j, each under a sign of its own
_BLOCK = 16 * _FOLDED  # what is worked on at a time stays in a core's cache
_SEED = 20_260_101


class Sketch:
    """The eight numbers of parameters in a certain number and order."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameters = [*parameters]
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        draw = torch.Generator().manual_seed(_SEED)
        r = torch.randn(NUMBERS, _FOLDED, generator=draw, dtype=torch.float64)
        self._r = (r / math.sqrt(NUMBERS)).to(device)
        self._signs = [
            torch.randint(0, 2, (one.numel(),), generator=draw, dtype=torch.int8)
            .mul_(2)
            .sub_(1)
            .to(device)
            for one in self._parameters
        ]

    @torch.no_grad()
    def numbers(self) -> list[float]:
        """Compute the sketch of the parameters as they are now."""
        folded = torch.zeros(_FOLDED, dtype=torch.float64, device=self._r.device)
        for parameter, signs in zip(self._parameters, self._signs, strict=True):
            flat = parameter.detach().reshape(-1)
            for at in range(0, len(flat), _BLOCK):
                block = flat[at : at + _BLOCK].double() * signs[at : at + _BLOCK]
                whole = len(block) // _FOLDED * _FOLDED
                if whole:
                    folded += block[:whole].view(-1, _FOLDED).sum(0)
                folded[: len(block) - whole] += block[whole:]
        numbers: list[float] = (self._r @ folded).tolist()
        return numbers
