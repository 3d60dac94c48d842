"""torch's own DistributedDataParallel: gradients travel in buckets while backward still runs.

Papers  Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
        2020; compression: Vogels et al., "PowerSGD", NeurIPS 2019.
Law     equal to sequential training within rounding, unless gradients are compressed; replicas
        bit-identical.
"""

# No postponed annotations here: DDP compares those of its hook with the types themselves.
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.formulas.memory import Rule
from workbench.rank.attempts import Attempt
from workbench.rank.bands import BUFFERS
from workbench.rank.batches import Minibatch, partition, portion
from workbench.rank.job import Job
from workbench.recording.events import CODE
from workbench.training.ddp.bucket_log import BucketLog, unused_named
from workbench.training.ddp.resuming import Compression, rebuild_buckets
from workbench.training.ddp.shadow import Shadow

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

TRAITS = Traits(
    title="DDP",
    replicas="equal",
    update="whole",
    update_by=(("compression", ("fp16", "bf16", "powersgd"), "compressed"),),
    recovers="any",
    skips="together",
    scene="timeline",
    together="Each takes {share} of every batch; gradients are averaged bucket by bucket while "
    "backward still runs, so {all} stay identical.",
    idle=(
        ("powersgd_rank", "compression", ("none", "fp16", "bf16")),
        ("powersgd_start", "compression", ("none", "fp16", "bf16")),
    ),
)

DEFAULT_MB = 25.0  # torch's own; only with it the first bucket is smaller: 1 MiB
Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="ddp"``."""

    bucket_cap_mb: float = 25.0  # MiB a bucket: smaller starts earlier, larger sends fewer messages
    accumulate: int = 1  # backward passes per update, a part of the samples each; the last sends
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"  # of gradients that are sent
    powersgd_rank: int = 1  # columns of PowerSGD's factors: more is more exact, and more bytes
    powersgd_start: int = 10  # iterations, from 2 on, before PowerSGD begins to compress
    find_unused: bool = False  # look for parameters without a gradient, which DDP else waits for
    static_graph: bool = False  # promise that all iterations use the same parameters
    gradient_as_bucket_view: bool = False  # gradients live in their buckets: less memory, no copies
    shares: tuple[float, ...] | None = None  # of a minibatch for each rank, such as 2, 1, 1
    runs_out: tuple[int, ...] | None = None  # iteration from which each rank has no samples (Join)

    def __post_init__(self) -> None:
        for name, least in (("accumulate", 1), ("powersgd_rank", 1), ("powersgd_start", 2)):
            if getattr(self, name) < least:
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))
        if self.bucket_cap_mb <= 0:
            raise SpecError.at("bucket_cap_mb", "must be above 0", self.bucket_cap_mb)
        if self.shares is not None and (min(self.shares) < 0 or not sum(self.shares)):
            raise SpecError.at("shares", "none may be below 0, nor all of them 0", self.shares)
        if self.runs_out is not None:
            if self.accumulate > 1 or self.shares is not None or self.compression == "powersgd":
                raise SpecError.at(
                    "runs_out",
                    "goes with neither accumulate, nor shares, nor compression='powersgd'",
                )
            if min(self.runs_out) < 1:
                raise SpecError.at("runs_out", "each rank has samples at first", self.runs_out)


def check(exp: "Experiment", config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks or iterations."""
    for name in ("shares", "runs_out"):
        numbers = getattr(config, name)
        if numbers is not None and len(numbers) != exp.ranks:
            raise SpecError.at(
                f"options.{name}", f"must be one number for each of ranks={exp.ranks}", numbers
            )
    if config.runs_out is not None and exp.bad_minibatch != "keep":
        raise SpecError.at(
            "options.runs_out",
            f"ends ranks one by one, and bad_minibatch={exp.bad_minibatch!r} asks all: leave it "
            "out, or take bad_minibatch='keep'",
            config.runs_out,
        )
    if config.runs_out is not None and max(config.runs_out) < exp.iterations:
        raise SpecError.at(
            "options.runs_out",
            f"at least one rank must have samples for all iterations={exp.iterations}: give it "
            f"{exp.iterations}",
            config.runs_out,
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Raise SpecError where the others cannot do without a lost rank: it has state that they lack,
    or an option counts it.
    """
    if config.compression == "powersgd":
        raise SpecError.at(
            "compression",
            "keeps on each rank the part of its gradients that it has not sent yet. A lost rank "
            "takes that part along: take 'fp16', 'bf16' or 'none', or recovery='restart'",
            config.compression,
        )
    for name in ("runs_out",) if same_ranks else ("runs_out", "shares"):
        if getattr(config, name) is not None:
            raise SpecError.at(
                name,
                "is given by rank: leave it out, or take recovery='restart'",
                getattr(config, name),
            )


def _start_alike(model: torch.nn.Module, job: Job) -> None:
    """Give every rank rank 0's parameters and buffers.

    DDP itself would, in the group that its gradients go through, and be counted with them.
    """
    with torch.no_grad(), job.label("initial parameters"):
        parameters = [*model.parameters()]
        flat = parameters_to_vector(parameters)
        dist.broadcast(flat, 0, group=job.metrics_group())
        parts = torch.split(flat, [one.numel() for one in parameters])
        for own, part in zip(parameters, parts, strict=True):
            own.copy_(part.view_as(own))
        for buffer in model.buffers():
            dist.broadcast(buffer, 0, group=job.metrics_group())


def holds(config: Config) -> Rule:
    """Return that every rank holds all, and the gradients once more in buckets. Raises SpecError
    for ranks that take unequal shares.
    """
    for name in ("shares", "runs_out"):
        if getattr(config, name) is not None:
            why = "wb.fits has no formula for ranks that take unequal shares"
            raise SpecError.at(f"options.{name}", why, getattr(config, name))
    return Rule(accumulate=config.accumulate, buckets=not config.gradient_as_bucket_view)


def train(job: Job, config: Config) -> None:
    model = job.model()
    if job.team.state != "memory":  # else survivors have it, and fresh ranks receive it
        _start_alike(model, job)
    parallel = DistributedDataParallel(
        model,
        bucket_cap_mb=None if config.bucket_cap_mb == DEFAULT_MB else config.bucket_cap_mb,
        find_unused_parameters=config.find_unused,
        static_graph=config.static_graph,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        init_sync=False,
    )
    log = BucketLog(
        parallel,
        config.bucket_cap_mb,
        job.tell if job.rank == 0 else lambda _: None,
        lambda: job.recorder.mark(CODE["metric"], "buckets rebuilt"),
    )
    state, hook = _hook(config)
    parallel.register_comm_hook(*_labeled_hook(job, log, state, hook))
    optimizer = job.optimizer(model)
    _count_buckets(job, model, config)
    if config.compression == "powersgd":
        job.keep("compression", Compression(state), "per rank")
    if job.checkpoints.resumed and not config.find_unused:
        rebuild_buckets(job, parallel)
        log.forget()
    steps = job.iterations()
    with Join([parallel, Shadow(job, steps, log)], enable=config.runs_out is not None):
        for step in steps:
            if config.runs_out is not None and step.iteration >= config.runs_out[job.rank]:
                break  # from here on, Join takes part in our name
            optimizer.zero_grad()
            mine = samples(step, job.rank, job.ranks, config)
            total = torch.zeros((), dtype=job.dtype, device=job.device)
            for number in range(config.accumulate):
                part = partition(mine, number, config.accumulate)
                waits = number < config.accumulate - 1  # its gradient stays here, for the next one
                with parallel.no_sync() if waits else nullcontext():
                    with Attempt(job, step, parallel, part) as loading:
                        batch = job.load(part if len(part) else step.ids[:1])
                    if loading.skipped:
                        break
                    attempt = Attempt(job, step, parallel, part)
                    with attempt, job.label("buckets and buffers"), unused_named(model):
                        loss = job.forward(parallel, batch)
                        attempt.look(loss)  # buckets leave while backward computes others
                    if attempt.skipped:
                        break
                    total += loss.detach() * len(part)
                    if not waits:  # before others learn of the gradient: see check_survivors
                        job.report(total / max(1, len(mine)), len(mine))
                    # DDP divides by p; this weight makes it the mean over the minibatch's samples.
                    with job.label("used parameters"):
                        job.backward(loss, weight=len(part) * job.ranks / len(step.ids))
            else:
                job.update(optimizer)
                log.close(step.iteration)
    job.finish(model)


def _count_buckets(job: Job, model: torch.nn.Module, config: Config) -> None:
    """Count the buckets, into which gradients are copied, among what the rank holds."""
    if job.memory is not None and not config.gradient_as_bucket_view:
        job.memory.set(BUFFERS, sum(one.nbytes for one in model.parameters() if one.requires_grad))


def samples(minibatch: Minibatch, rank: int, ranks: int, config: Config) -> Any:
    """Return the ids that a rank takes; ranks without samples leave theirs to others."""
    if config.runs_out is None:
        return portion(minibatch.ids, rank, ranks, config.shares)
    left = [one for one in range(ranks) if minibatch.iteration < config.runs_out[one]]
    return partition(minibatch.ids, left.index(rank), len(left))


# -- what happens to a bucket --


def _hook(config: Config) -> tuple[Any, Hook]:
    """Return torch's own hook for this compression, and its state."""
    if config.compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, config.powersgd_rank, config.powersgd_start, warm_start=True
        )
        return state, powerSGD_hook.powerSGD_hook
    named = {
        "none": default_hooks.allreduce_hook,
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
    }
    return dist.group.WORLD, named[config.compression]


def _labeled_hook(job: Job, log: BucketLog, state: Any, hook: Hook) -> tuple[Any, Hook]:
    """Return the same hook, with the bucket's name on its collectives."""

    def labeled_hook(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
        log.saw(bucket)
        job.recorder.mark(CODE["metric"], "bucket full", value=bucket.index())
        with job.label(f"bucket {bucket.index()}"):
            return hook(state, bucket)

    return state, labeled_hook
