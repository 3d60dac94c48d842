"""A rank whose samples have run out, while others still train: torch's Join takes part for it.

At each iteration of the others, DDP's own part of Join adds zeros to their all-reduces; ours goes
on through the iterations of this rank, so that it reports no samples in them and can be stopped.
In the end all ranks get the parameters of one that went on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable, JoinHook

from workbench.rank.batches import Minibatch
from workbench.rank.job import Job
from workbench.training.ddp.bucket_log import BucketLog


class Shadow(Joinable):
    """The part of Join that is the job's. ``steps``: the iterator that its loop goes through."""

    def __init__(self, job: Job, steps: Iterator[Minibatch], log: BucketLog) -> None:
        super().__init__()
        self.job, self.steps, self.log = job, steps, log

    def join_hook(self, **_: Any) -> JoinHook:
        return _Follow(self)

    @property
    def join_device(self) -> torch.device:
        return self.job.device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        assert dist.group.WORLD is not None
        return dist.group.WORLD


class _Follow(JoinHook):
    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow

    def main_hook(self) -> None:
        """Follow another iteration of the other ranks."""
        job = self._shadow.job
        self._shadow.log.close(job.recorder.where.iteration)
        job.report(torch.zeros(()), 0)
        next(self._shadow.steps, None)
