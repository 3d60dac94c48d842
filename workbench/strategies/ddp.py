"""torch's own DistributedDataParallel: gradients travel in buckets while backward still runs.

Paper  Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
2020.
Law    equal to sequential training within rounding; replicas bit-identical.
"""

# No postponed annotations here: DDP compares those of its hook with the types themselves.
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from workbench.batches import partition
from workbench.events import CODE
from workbench.job import Job


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="ddp"``."""

    bucket_cap_mb: float = (
        25.0  # MiB of gradients a bucket: smaller starts earlier, larger sends fewer messages
    )


def train(job: Job, config: Config) -> None:
    model = job.model()
    parallel = DistributedDataParallel(model, bucket_cap_mb=config.bucket_cap_mb)
    parallel.register_comm_hook(job, _average_bucket)
    optimizer = job.optimizer(model)
    for step in job.steps():
        mine = partition(step.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(parallel, job.load(mine if len(mine) else step.ids[:1]))
        # DDP divides by p; this weight makes the outcome the mean over the minibatch's samples.
        job.backward(loss, weight=len(mine) * job.ranks / len(step.ids))
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


def _average_bucket(job: Job, bucket: GradBucket) -> Future[torch.Tensor]:
    """DDP's own all-reduce hook, with the bucket's name on the collective."""
    job.recorder.mark(CODE["metric"], "bucket full", value=bucket.index())
    with job.label(f"bucket {bucket.index()}"):
        work = dist.all_reduce(bucket.buffer().div_(job.ranks), async_op=True)
    assert work is not None
    averaged: Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return averaged
