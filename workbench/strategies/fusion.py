"""Data parallel with tensor fusion: gradients are copied into a buffer, and that is all-reduced.

A message costs its latency however small it is: two hundred small tensors pay it two hundred times,
a full buffer once. With ``cycle`` a thread shares gradients that often, while backward computes the
rest: each rank reports what is ready, rank 0 answers with what is ready on all of them, in whatever
orders it became so (training/communication_efficient/cycles.py). With "0 ms" all of them are shared
after backward, in one fixed order, without negotiation and without overlap.

Paper  Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv
       1802.05799, 2018, section "Tensor Fusion".
Cost   t tensors of L bytes: t·α becomes ⌈L/threshold⌉·α; two copies of L bytes are added.
Law    equal to sequential training within rounding; threshold 0 is one all-reduce a tensor; every
       tensor is in one answer, after the last rank's report of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.common.units import duration_ns, size_bytes
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    import torch

    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

    Named = tuple[str, torch.Tensor]

TRAITS = Traits(replicas="equal", update="whole", recovers="any", skips="together")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="fusion"``."""

    threshold: str = "64 MB"  # most bytes of gradients in one message: 0 MB sends each for itself
    cycle: str = "0 ms"  # from one negotiation to the next (Horovod: 5 ms); 0 ms: none, no overlap

    def __post_init__(self) -> None:
        for name, read in (("threshold", size_bytes), ("cycle", duration_ns)):
            try:
                read(getattr(self, name))
            except SpecError as error:
                raise error.within("", name) from None


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where gradients are summed before all of them are known to be finite."""
    if exp.bad_minibatch != "keep" and duration_ns(config.cycle):
        raise SpecError.at(
            "options.cycle",
            f"sends gradients while others are still computed, and bad_minibatch="
            f"{exp.bad_minibatch!r} looks at all of them first: take cycle='0 ms'",
            config.cycle,
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Refuse nothing: every rank has all that is trained."""


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.training.communication_efficient.cycles import Cycles

    model = job.model()
    optimizer = job.optimizer(model)
    # Backward reaches the last layer first.
    parameters, threshold = [*model.named_parameters()][::-1], size_bytes(config.threshold)
    cycle_ns = duration_ns(config.cycle)
    cycles: AbstractContextManager[object] = nullcontext()
    if cycle_ns:
        cycles = Cycles(job, parameters, cycle_ns * 1e-9, lambda some: share(job, some, threshold))
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            if cycle_ns:
                job.report(loss, len(mine))
            with cycles:  # leaves when every gradient is shared
                job.backward(loss, weight=len(mine) / len(minibatch.ids))
        if attempt.skipped:
            continue
        if not cycle_ns:
            job.report(loss, len(mine))
        if not cycle_ns:
            share(job, parameters, threshold)
        job.update(optimizer)
    job.finish(model)


def share(job: Job, parameters: Sequence[Named], threshold: int) -> None:
    """Replace every gradient by the sum over ranks."""
    import torch.distributed as dist

    from workbench.training.communication_efficient.gradients import flatten, gradient, write_back

    for fused in fuse(parameters, threshold):
        each, first, last = [one for _, one in fused], fused[0][0], fused[-1][0]
        if len(each) == 1:  # as it lies
            with job.label(first):
                dist.all_reduce(gradient(each[0]))
        else:
            buffer = flatten(each)
            with job.label(f"{first} to {last}, {len(each)} tensors"):
                dist.all_reduce(buffer)
            write_back(buffer, each)


def fuse(parameters: Sequence[Named], threshold: int) -> Iterator[list[Named]]:
    """Yield groups of adjacent tensors of one dtype, at most ``threshold`` bytes together.

    A larger tensor is a group of its own.
    """
    fused: list[Named] = []
    room = 0
    for name, one in parameters:
        if fused and (one.nbytes > room or one.dtype != fused[0][1].dtype):
            yield fused
            fused = []
        room = (room if fused else threshold) - one.nbytes
        fused.append((name, one))
    if fused:
        yield fused
