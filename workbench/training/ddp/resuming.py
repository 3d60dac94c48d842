"""The state with which DDP resumes from a checkpoint as if it had never been interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

from workbench.rank.job import Job


def rebuild_buckets(job: Job, parallel: DistributedDataParallel) -> None:
    """Have DDP put its parameters into the buckets that it had before.

    It orders them by its first backward, and the order decides in which order ranks' gradients are
    added up: so one backward is made, of one sample, before the parameters are put back.
    """
    for _ in range(2):  # the second forward rebuilds
        with job.label("buckets of before"):
            loss = job.task.loss(parallel, job.batch(job.train, np.arange(1)))
            loss.backward()
    parallel.zero_grad(set_to_none=True)


class Compression:
    """PowerSGD's state in a checkpoint: errors that were not sent yet, and its factors."""

    def __init__(self, state: PowerSGDState) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        kind, keys, position, has_gauss, gauss = self._state.rng.get_state(legacy=True)
        return {
            "iter": self._state.iter,
            "errors": dict(self._state.error_dict),
            "p": dict(self._state.p_memory_dict),
            "q": dict(self._state.q_memory_dict),
            "rng": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device = next((one.device for one in self._state.error_dict.values()), None)
        self._state.iter = state["iter"]
        for name, current in (
            ("errors", self._state.error_dict),
            ("p", self._state.p_memory_dict),
            ("q", self._state.q_memory_dict),
        ):
            current.clear()
            current.update({key: one.to(device or one.device) for key, one in state[name].items()})
        self._state.rng.set_state(tuple(state["rng"]))
