"""The choice of where a run's model is cut: rank 0 measures the layers, decides, and broadcasts.

Before training the whole model exists briefly on every rank; ``memory_limit`` applies to what a
rank holds afterwards.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.common.errors import MemoryLimit
from workbench.experiment.optimizers import states
from workbench.rank.memory import megabytes
from workbench.training.pipelines.loss_stub import answering
from workbench.training.splitting.cut import Costs, Cut, choose, memories
from workbench.training.splitting.facts import model_facts
from workbench.training.splitting.measuring import measure
from workbench.training.splitting.profiled import Profile
from workbench.training.splitting.traced import Traced

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.pipelines.options import Options
    from workbench.training.pipelines.schedule import Schedule

ROOM = 1.02  # margin for memory that the plan leaves out


def agree(
    job: Job, config: Options, schedule: Schedule, traced: Traced, args: tuple[Any, ...], batch: Any
) -> Cut:
    """Return the cut, equal on all ranks. ``args``: the model's arguments for ``batch``, a
    microbatch. Layers are measured only where something depends on it: the cut, a limit, a page.
    """
    fixed = schedule.stages == 1 or config.split != "auto"
    if fixed and job.exp.memory_limit_bytes is None and not job.recorder.active:
        return choose(traced, schedule.stages, "layers" if schedule.stages == 1 else config.split)
    text = ""
    if job.rank == 0:
        traced.model.to(job.device)  # its layers are measured where they will train
        profile = measure(traced, args, loss=lambda output: job.task.loss(answering(output), batch))
        traced.model.cpu()  # room for this rank's own stages
        cut = _chosen(job, config, schedule, profile)
        planned = memories(_costs(job, profile), cut.starts, schedule.peaks)
        job.tell({"model": json.dumps({**model_facts(profile, cut), "memory": planned})})
        text = json.dumps(cut.to_json())
    return Cut.from_json(json.loads(_from_rank_0(job, text)))


def _chosen(job: Job, config: Options, schedule: Schedule, profile: Profile) -> Cut:
    limit, costs = job.exp.memory_limit_bytes, _costs(job, profile)
    room = None if limit is None else int(limit / ROOM)
    cut = choose(
        profile,
        schedule.stages,
        config.split,
        peaks=schedule.peaks,
        limit_bytes=room,
        state_factor=costs.state_factor,
        rank_of=schedule.rank_of,
        memory_weight=config.memory_weight,
        **_link(job),
    )
    if limit is not None:
        needs = dict.fromkeys(schedule.rank_of, 0.0)
        each = memories(costs, cut.starts, schedule.peaks)
        for rank, nbytes in zip(schedule.rank_of, each, strict=True):
            needs[rank] += nbytes
        rank = max(needs, key=lambda one: needs[one])
        if needs[rank] > limit:
            raise MemoryLimit(
                f"rank {rank} would hold {megabytes(int(needs[rank]))} under schedule "
                f"{schedule.name} with this split, more than memory_limit = {megabytes(limit)}. "
                "Take split='auto', more ranks, smaller microbatches, or a schedule with fewer of "
                "them in flight"
            )
    return cut


def _costs(job: Job, profile: Profile) -> Costs:
    exp = job.exp
    return Costs(profile, state_factor=states(exp.optimizer, exp.momentum))


def _link(job: Job) -> dict[str, float]:
    """Return the cost of a byte and of a message between neighbors, where links are emulated."""
    link = job.exp.network.link(0, min(1, job.ranks - 1)) if job.ranks > 1 else None
    if link is None or (not link.latency_ns and link.bytes_per_second == float("inf")):
        return {}
    return {"latency_s": link.latency_ns * 1e-9, "seconds_per_byte": 1 / link.bytes_per_second}


def _from_rank_0(job: Job, text: str) -> str:
    """Broadcast rank 0's text, as bytes of a tensor, and return it."""
    group, data = job.metrics_group(), text.encode()
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0, group=group)
    body = torch.zeros(int(size), dtype=torch.uint8)
    if job.rank == 0:
        body = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    dist.broadcast(body, 0, group=group)
    return bytes(body.numpy()).decode()
