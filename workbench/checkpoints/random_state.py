"""The state of a rank's random number generators: torch's, numpy's and Python's own."""

from __future__ import annotations

import random
from typing import Any, Protocol

import numpy as np
import torch

NAME = "random"
_TORCH, _GPU = f"{NAME}/torch", f"{NAME}/cuda"


class Kept(Protocol):
    """The methods of a checkpoint, or of a copy in memory, that are needed here."""

    def own(self, name: str) -> Any: ...
    def own_tensor(self, key: str) -> torch.Tensor | None: ...


def capture(device: torch.device) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the generators' states: tensors, and what JSON can hold."""
    tensors = {_TORCH: torch.get_rng_state()}
    if device.type == "cuda":
        tensors[_GPU] = torch.cuda.get_rng_state(device)
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return tensors, {
        "python": random.getstate(),
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
    }


def put_back(saved: Kept, device: torch.device, seed: int) -> None:
    """Set the generators to the states that this rank kept. A new rank draws from ``seed``."""
    kept = saved.own(NAME)
    if kept is None:
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        return
    version, state, gauss = kept["python"]
    random.setstate((version, tuple(state), gauss))
    np.random.set_state(tuple(kept["numpy"]))
    for key, take in ((_TORCH, torch.set_rng_state), (_GPU, _set_gpu(device))):
        if (state_of := saved.own_tensor(key)) is not None:
            take(state_of)


def _set_gpu(device: torch.device) -> Any:
    """Return what sets the generator of this device, if it is a GPU."""
    if device.type != "cuda":
        return lambda _: None
    return lambda state: torch.cuda.set_rng_state(state, device)
