"""DQN's loss: the network's values are moved to what was seen plus what a target network expects.

    y  = R + γⁿ Q'(s', argmax Q'(s', ·))           target network Q' alone
    y  = R + γⁿ Q'(s', argmax Q(s', ·))            double Q: the network chooses, the target values
    δ  = y - Q(s, a);   loss = mean of w · huber(δ)

The target network is a copy of the network, renewed every ``every`` updates.

Papers Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015;
       van Hasselt et al., "Deep Reinforcement Learning with Double Q-learning", AAAI 2016.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from workbench.training.reinforcement.replay import PRIORITY

Batch = dict[str, torch.Tensor]


def batch_of(sampled: np.ndarray, dtype: torch.dtype) -> Batch:
    """Return transitions that were drawn as tensors, their weights divided by the largest."""
    transitions = sampled["transition"]
    floating = ("observation", "next_observation", "reward", "discount")
    batch = {
        name: torch.from_numpy(np.ascontiguousarray(transitions[name])).to(dtype)
        for name in floating
    }
    batch["action"] = torch.from_numpy(transitions["action"].astype(np.int64))
    weight = sampled["weight"] / sampled["weight"].max()
    batch["weight"] = torch.from_numpy(weight).to(dtype)
    return batch


class Target:
    """The target network, and the loss against it.

    ``model``: a network of its own, equal to the one that learns. ``every``: updates after which it
    is that again. ``double``: see above.
    """

    def __init__(self, model: torch.nn.Module, every: int, double: bool) -> None:
        self._model = model.requires_grad_(False)
        self._every, self._double = every, double
        self._period = 0
        self.errors: torch.Tensor = torch.zeros(0)  # of the latest minibatch: δ of each transition

    def follow(self, model: torch.nn.Module, version: int) -> bool:
        """Copy the network if its version has come to the next multiple of ``every``. Returns
        whether.
        """
        if (period := version // self._every) <= self._period:
            return False
        self._period = period
        with torch.no_grad():
            pairs = zip(self._model.parameters(), model.parameters(), strict=True)
            for ours, theirs in pairs:
                ours.copy_(theirs)
            buffers = zip(self._model.buffers(), model.buffers(), strict=True)
            for own, new in buffers:
                own.copy_(new)
        return True

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the weighted loss; keep the errors for the priorities."""
        values = model(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]
        with torch.no_grad():
            expected = self._model(batch["next_observation"])
            chooser = model(batch["next_observation"]) if self._double else expected
            best = expected.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
            target = batch["reward"] + batch["discount"] * best
        self.errors = (target - values).detach()
        each = F.smooth_l1_loss(values, target, reduction="none")
        return (batch["weight"] * each).mean()

    def priorities(self, sampled: np.ndarray) -> np.ndarray:
        """Return the new priorities of the latest minibatch: |δ|, with the keys."""
        result = np.zeros(len(sampled), PRIORITY)
        result["key"] = sampled["key"]
        result["priority"] = self.errors.abs().double().numpy()
        return result
