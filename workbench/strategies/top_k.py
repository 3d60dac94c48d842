"""Top-k with error feedback: a rank sends only the largest entries of its gradient; what it did not
send is kept, and added to the next.

Every rank gathers all ranks' (index, value) pairs and adds them in the order of ranks, so that all
get the same bits. Without the memory small entries would be lost for good; with it they are late.

Papers  Stich, Cordonnier & Jaggi, "Sparsified SGD with Memory", NeurIPS 2018;
        Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
Cost    a rank sends (p-1)·2k numbers: it is gathered, not added on the way. Against a ring's
        2(p-1)/p·n that is fewer only if k < n/p.
Law     ratio = 1 is data parallel within rounding. At every iteration what was kept is what there
        was minus what was sent, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    import torch

    from workbench.rank.job import Job

TRAITS = Traits(
    title="Top-k", replicas="equal", update="compressed", skips="together", scene="timeline"
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="top_k"``."""

    ratio: float = 0.01  # share of the gradient's entries that a rank sends: smaller sends less
    feedback: bool = True  # keep what was not sent and add it to the next gradient; else it is lost

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise SpecError.at("ratio", "must be more than 0, and at most 1", self.ratio)


def train(job: Job, config: Config) -> None:
    import torch
    from torch.nn.utils import parameters_to_vector

    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.recording.events import OPTIMIZER
    from workbench.training.communication_efficient.gradients import flatten, write_back

    model = job.model()
    optimizer = job.optimizer(model)
    parameters = [*model.parameters()]
    kept = torch.zeros_like(parameters_to_vector(parameters).detach())  # what was not sent yet
    job.keep("unsent gradient", kept, "per rank")
    k = max(1, round(config.ratio * len(kept)))
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            job.backward(loss, weight=len(mine) / len(minibatch.ids))
        if attempt.skipped:
            continue
        with job.computing(OPTIMIZER, "compress"):
            kept += flatten(parameters)
            values, indices = largest(kept, k)
            kept[indices] = 0
            if not config.feedback:
                kept.zero_()
        with job.label(f"largest {k:,} of {len(kept):,}"):
            everybodys = gather(values, indices, job.ranks)
        with job.computing(OPTIMIZER, "decompress"):
            total = torch.zeros_like(kept)
            for values, indices in everybodys:
                total.index_add_(0, indices, values)  # indices of one rank differ: nothing races
            write_back(total, parameters)
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


def largest(x_N: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k entries of largest magnitude: (values, indices)."""
    indices = x_N.abs().topk(k, sorted=False).indices
    return x_N[indices], indices


def gather(
    values_K: torch.Tensor, indices_K: torch.Tensor, ranks: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gather every rank's (values, indices), in the order of ranks, in one message each."""
    import torch

    from workbench.common.torch_names import all_gather_single

    whole = torch.int32 if values_K.element_size() == 4 else torch.int64  # as wide as a value
    mine = torch.cat([values_K.view(whole), indices_K.to(whole)])
    everybodys = mine.new_empty(ranks * len(mine))
    all_gather_single(everybodys, mine)
    return [
        (values.view(values_K.dtype), indices.long())
        for values, indices in everybodys.view(ranks, 2, -1)
    ]
