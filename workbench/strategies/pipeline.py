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

from workbench.common.errors import SpecError
from workbench.experiment.option_ranges import (
    check_buddies,
    check_counts,
    check_memory_weight,
)
from workbench.experiment.traits import Traits
from workbench.user_code.source import Source, is_code

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.pipelines.schedule import Schedule


TRAITS = Traits(
    replicas="divided",
    update="whole",
    update_by=(("schedule", ("pipedream",), "asynchronous"),),
    recovers="replaced",
    whole_minibatch=True,
    skips="together",
    messages="stages",
    way=("schedule",),
    scene="pipeline",
    together="Each holds a part of the layers: activations go on from stage to stage, and "
    "gradients come back.",
    idle=(
        ("buddy_every", "recovery", ("abort", "restart")),
        ("memory_weight", "split", ("layers",)),
    ),
)
ENOUGH = 2  # iterations of a named schedule without flush that tell whether it can be
MOST_CHECKED = 100_000  # actions that the constructor looks at: a second's work


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="pipeline"``."""

    schedule: str | Source | tuple[tuple[str, ...], ...] = "1f1b"  # a name, a grid, or your own
    microbatches: int = 8  # parts of a replica's minibatch, one after the other through the stages
    split: str | tuple[str, ...] = "auto"  # by costs; "layers", or layers that begin stages
    memory_weight: float = 0.0  # of split="auto": 0 balances computing, 1 memory, or between them
    stages_per_rank: int = 1  # more: smaller stages, a shorter bubble, more messages
    replicas: int = 1  # of the whole pipeline, each with its part of the minibatch (data parallel)
    buddy_every: int = 1  # iterations between copies on the next rank, for recovery="replace"

    def __post_init__(self) -> None:
        check_counts(self, "microbatches", "stages_per_rank", "replicas")
        check_memory_weight(self.memory_weight)
        check_buddies(self.buddy_every)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for impossible options. A schedule that is code does not run here."""
    if exp.ranks % config.replicas:
        raise SpecError.at(
            "ranks",
            f"each of options.replicas = {config.replicas} replicas needs the same number of "
            f"ranks, such as {config.replicas} x {max(1, exp.ranks // config.replicas)}",
            exp.ranks,
        )
    if exp.backend != "workbench":
        raise SpecError.at(
            "backend", "strategy 'pipeline' runs over backend='workbench'", exp.backend
        )
    if not is_code(config.schedule):
        _schedule(exp, config, min(exp.iterations, ENOUGH), MOST_CHECKED)


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Return the checked schedule's facts for the page; this runs a user's schedule code."""
    from workbench.training.pipelines.facts import facts

    schedule = _schedule(exp, config, exp.iterations)
    if exp.bad_minibatch != "keep" and not schedule.flush:
        raise SpecError.at(
            "bad_minibatch",
            f"schedule {schedule.name!r} has no flush: stages update while other microbatches of "
            "the minibatch are under way, so that it cannot be left out whole. Take 'keep', or a "
            "schedule with a flush",
            exp.bad_minibatch,
        )
    for name, none in (("checkpoint", None), ("resume", None), ("recovery", "abort")):
        if getattr(exp, name) != none and not schedule.flush:
            raise SpecError.at(
                name,
                f"schedule {schedule.name!r} has no flush: microbatches are under way at every "
                "iteration's boundary, and no copy holds them. Take a schedule with one",
            )
    return {"pipeline": facts(exp, config, schedule)}


def _schedule(
    exp: Experiment, config: Config, iterations: int, most: int | None = None
) -> Schedule:
    from workbench.training.pipelines.schedule import MOST_ACTIONS, build

    schedule = build(
        config.schedule,
        ranks=exp.ranks // config.replicas,
        microbatches=config.microbatches,
        stages_per_rank=config.stages_per_rank,
        iterations=iterations,
        most=MOST_ACTIONS if most is None else most,
    )
    if not schedule.flush and config.replicas > 1:
        raise SpecError.at(
            "options.replicas",
            f"schedule {schedule.name!r} has no flush at which replicas could add their gradients; "
            "take replicas = 1",
            config.replicas,
        )
    return schedule


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept any option: a lost rank's part comes from the next rank's copy."""


def train(job: Job, config: Config) -> None:
    from workbench.training.pipelines.pipeline import Pipeline

    Pipeline(job, config, _schedule(job.exp, config, job.exp.iterations)).run()
