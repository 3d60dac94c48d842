"""Replicas that begin at different parameters, so that their agreement can be seen."""

from __future__ import annotations

import torch

from workbench.training.parameter_servers.flat import Flat


def spread_out(flat: Flat, deviation: float, seed: int, rank: int) -> None:
    """Add normal noise of this standard deviation to each parameter, of this rank's own draw."""
    if deviation:
        draw = torch.Generator().manual_seed(seed * 65_537 + rank + 1)
        noise = torch.randn(len(flat.values_N), generator=draw, dtype=torch.float64)
        flat.values_N.add_((noise * deviation).to(flat.values_N))
