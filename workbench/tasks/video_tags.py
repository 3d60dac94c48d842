"""Tags of pictures: ten that overlap, each rarer than the one before. LeNet-5 on 28x28 pixels.

Source  The example of data parallel training in books of patterns: label videos with YouTube-8M's
        3,862 entities (Abu-El-Haija et al., 2016, arXiv 1609.08675), of which ten are taken. Some
        are coarse ("vehicle") and some fine ("car"), so a video has several, and most are rare.
Here    Pictures are made, nothing is downloaded. Tag k's mark, a texture of its own, lies in a
        picture with probability COMMON / (k + 1), up to six pixels from its corner. A fine tag
        brings its coarse one along (tag k the tag k - 8), and what is left is noise.
Model   that of lenet_digits, 61,706 parameters, with a yes or no for each tag.
400     With ``tags=400`` a video is a feature vector that was computed before, and the model two
        dense layers: the long tail, from a fifth of all videos to a handful (_tag_features.py).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from workbench.tasks import _tag_features as features
from workbench.tasks.lenet_digits import Task as LeNet

TAGS, COARSE = 10, 2  # the first two are coarse: the last two are fine ones of theirs
COMMON = 0.6  # the share of pictures that have the most common tag for its own sake
SIDE, MARK, GRAIN, MOVES = 28, 10, 2, 6  # pixels
HIDDEN = 256  # of the model of 400 tags


class Task:
    """Metrics: how often the likeliest tag is one of the picture's (hit), and the share of all
    yes and no that are right (accuracy), which a model that says no to everything has, too. And
    GAP@20 of the batch (gap), which such a model has not.
    """

    def __init__(self, *, samples: int = 2_000, noise: float = 0.3, tags: int = TAGS) -> None:
        """Configure the task. ``tags``: 10, of pictures, or 400, of feature vectors."""
        if samples < 10 or noise < 0:
            raise ValueError(f"samples={samples}, noise={noise}: at least 10, and at least 0")
        if tags not in (TAGS, features.TAGS):
            raise ValueError(f"tags={tags}: 10 of pictures, or {features.TAGS} of features")
        self.samples, self.noise, self.tags = samples, noise, tags

    def model(self) -> nn.Module:
        if self.tags == TAGS:
            return LeNet().model()
        return nn.Sequential(
            nn.Linear(features.FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, self.tags)
        )

    def dataset(self, split: str) -> Dataset[tuple[torch.Tensor, ...]]:
        """Return pictures and their tags (0.0 or 1.0 each); a fifth as many for validation."""
        count = self.samples if split == "train" else max(1, self.samples // 5)
        if self.tags != TAGS:
            return TensorDataset(*features.videos(split, count, self.noise))
        chance = torch.Generator().manual_seed(0)
        grains = torch.randn(TAGS, MARK // GRAIN, MARK // GRAIN, generator=chance).sign()
        marks = grains.repeat_interleave(GRAIN, 1).repeat_interleave(GRAIN, 2)
        free = SIDE - MARK - MOVES + 1
        home = torch.tensor([[7 * tag % free, 5 * tag % free] for tag in range(TAGS)])
        if split != "train":
            chance.manual_seed(1)
        shares = COMMON / torch.arange(1, TAGS + 1)
        tags = torch.rand(count, TAGS, generator=chance) < shares
        tags[:, :COARSE] |= tags[:, TAGS - COARSE :]
        corners = home + torch.randint(0, MOVES + 1, (count, TAGS, 2), generator=chance)
        pictures = self.noise * torch.randn(count, 1, SIDE, SIDE, generator=chance)
        for at, tag in tags.nonzero().tolist():
            top, left = corners[at, tag].tolist()
            pictures[at, 0, top : top + MARK, left : left + MARK] += marks[tag]
        return TensorDataset(pictures, tags.float())

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        pictures, tags = batch
        return F.binary_cross_entropy_with_logits(model(pictures), tags)

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        pictures, tags = batch
        scores = model(pictures)
        hits = tags.gather(1, scores.argmax(1, keepdim=True)).count_nonzero().item()
        right = ((scores > 0) == (tags > 0.5)).count_nonzero().item()
        gap = features.gap(scores, tags)
        return {"hit": hits / len(tags), "accuracy": right / tags.numel(), "gap": gap}


def size(*, samples: int = 2_000, noise: float = 0.3, tags: int = TAGS) -> int:
    """Return how many values the samples hold, without making them."""
    return samples * (SIDE * SIDE + TAGS if tags == TAGS else features.FEATURES + tags)
