"""Feature vectors of made videos with 400 tags, a long tail of them; and scores for such tags.

As with YouTube-8M, features are computed once and beforehand: a video is a vector, and training
reads vectors only. Tag k is in a share of COMMON / (k + 1) ** FALL of all videos; the first COARSE
tags are coarse, and each fine tag brings its coarse one along.
"""

from __future__ import annotations

from functools import lru_cache

import torch

TAGS, COARSE, FEATURES = 400, 20, 128
COMMON, FALL = 0.25, 0.9
MOST = 20  # tags of a video that count for GAP


def coarse_of(tag: int) -> int:
    """Return the coarse tag that a fine one brings along; a coarse tag is its own."""
    return tag if tag < COARSE else tag * 7 % COARSE


@lru_cache(4)
def videos(split: str, samples: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and tags (0.0 or 1.0 each), computed once in a process."""
    chance = torch.Generator().manual_seed(0)
    looks = torch.randn(TAGS, FEATURES, generator=chance)
    if split != "train":
        chance.manual_seed(1)
    shares = COMMON / torch.arange(1, TAGS + 1) ** FALL
    tags = (torch.rand(samples, TAGS, generator=chance) < shares).float()
    for tag in range(COARSE, TAGS):
        tags[:, coarse_of(tag)] = torch.maximum(tags[:, coarse_of(tag)], tags[:, tag])
    features = tags @ looks / FEATURES**0.5
    return features + noise * torch.randn(samples, FEATURES, generator=chance), tags


def gap(scores: torch.Tensor, tags: torch.Tensor, most: int = MOST) -> float:
    """Return the global average precision: of the ``most`` likeliest tags of all videos together,
    sorted by their scores (Abu-El-Haija et al., 2016).
    """
    top, places = scores.topk(min(most, scores.shape[1]), dim=1)
    right = tags.gather(1, places).flatten()[top.flatten().argsort(descending=True)]
    precision = right.cumsum(0) / torch.arange(1, len(right) + 1)
    return float((precision * right).sum() / tags.sum().clamp(min=1))


def precision_by_tag(scores: torch.Tensor, tags: torch.Tensor) -> list[float]:
    """Return the average precision of each tag over the videos; NaN for a tag that none has."""
    result = []
    for tag in range(tags.shape[1]):
        right = tags[scores[:, tag].argsort(descending=True), tag]
        precision = right.cumsum(0) / torch.arange(1, len(right) + 1)
        result.append(float((precision * right).sum() / right.sum()))
    return result
