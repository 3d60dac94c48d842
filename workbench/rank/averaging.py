"""Replicas that each train for themselves, brought together: what local SGD, DiLoCo and gossip
share.

A worker's gradient counts by its number of samples, so that the mean of the workers' steps is the
step of the whole minibatch, however it divides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import torch
import torch.distributed as dist


def average_(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Replace each tensor by its mean over the ranks, in place: one all-reduce for each dtype."""
    alike: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        alike.setdefault(tensor.dtype, []).append(tensor.detach())
    for each in alike.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in each])
        flat /= dist.get_world_size(group)
        dist.all_reduce(flat, group=group)
        at = 0
        for tensor in each:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()


def average_replicas(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Replace parameters and running means of all replicas by their mean; counters stay as they
    are.
    """
    average_((value for value in model.state_dict().values() if value.is_floating_point()), group)


def all_peers(ranks: int, every: int, words: str, first: int = 0) -> dict[str, str]:
    """Return the page's facts of mixing among all ranks, now and then.

    ``first``: the iteration after which they do so first; then after each ``every`` more.
    """
    edges = [[a, b, 1 / ranks] for a in range(ranks) for b in range(ranks) if a != b]
    facts = {
        "kind": "all",
        "edges": edges,
        "every": every,
        "first": first,
        "synchronous": True,
        "rate": None,
        "words": words,
    }
    return {"peers": json.dumps(facts)}
