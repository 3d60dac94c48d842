"""Pipeline parallel: each rank holds a stage of the model, microbatches pass through them.

A schedule says in which order a rank does forwards and backwards; see ``schedules/``. The model is
cut between layers, by measured time and memory or by hand; what crosses a cut is sent on, its
gradient back.

Papers  Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019, and
        "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021;
        Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024.
Law     with a flush: gradients, and so the trajectory, equal the unsplit model's within rounding;
        without: the backward of a microbatch uses the version of the weights its forward used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import SpecError
from workbench.source import Source, split_path

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.pipelines.schedule import Schedule
    from workbench.spec import Experiment


WHOLE_MINIBATCH = True  # every rank takes all of it: there is nothing to share out
ENOUGH = 2  # iterations of a named schedule without flush that tell whether it can be


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="pipeline"``."""

    schedule: str | Source | tuple[tuple[str, ...], ...] = "1f1b"  # a name, a grid, or your own
    microbatches: int = 8  # parts of a replica's minibatch, one after the other through the stages
    split: str | tuple[str, ...] = "auto"  # by costs; "layers", or layers that begin stages
    stages_per_rank: int = 1  # more: smaller stages, a shorter bubble, more messages
    replicas: int = 1  # of the whole pipeline, each with its part of the minibatch (data parallel)

    def __post_init__(self) -> None:
        for name in ("microbatches", "stages_per_rank", "replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: it is 1 or more")


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for what cannot be. A schedule that is code is not run here."""
    if exp.ranks % config.replicas:
        raise SpecError(
            f"Experiment.ranks = {exp.ranks} with options.replicas = {config.replicas}: each "
            f"replica needs the same number of ranks, such as {config.replicas} x "
            f"{max(1, exp.ranks // config.replicas)}"
        )
    if exp.backend != "workbench":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'pipeline' runs over "
            "backend='workbench'"
        )
    if not isinstance(config.schedule, Source) and not (
        isinstance(config.schedule, str) and split_path(config.schedule)
    ):
        _schedule(exp, config, iterations=min(exp.iterations, ENOUGH))


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """The schedule, checked, as the page is told it; code of the user's is run for it."""
    from workbench.pipelines.facts import facts

    return {"pipeline": facts(exp, config, _schedule(exp, config, exp.iterations))}


def _schedule(exp: Experiment, config: Config, iterations: int) -> Schedule:
    from workbench.pipelines.schedule import build

    made = build(
        config.schedule,
        ranks=exp.ranks // config.replicas,
        microbatches=config.microbatches,
        stages_per_rank=config.stages_per_rank,
        iterations=iterations,
    )
    if not made.flush and config.replicas > 1:
        raise SpecError(
            f"Experiment.options.replicas = {config.replicas}: schedule {made.name!r} has no flush "
            "at which replicas could add up their gradients; take replicas = 1"
        )
    return made


def train(job: Job, config: Config) -> None:
    from workbench.pipelines.pipeline import Pipeline

    Pipeline(job, config, _schedule(job.exp, config, job.exp.iterations)).run()
