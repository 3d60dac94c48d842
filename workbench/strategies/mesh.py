"""The mesh: pipeline, data, sharded data and tensor parallelism at once, each on an axis of ranks.

    options={"mesh": "pp 2, dp 2, tp 2"}        slowest first: rank = 4 pp + 2 dp + tp

    pp    stages of the model; activations go on, gradients come back
    dp    replicas; each takes its part of every minibatch, and gradients are added up
    fsdp  the same, and each holds a part only of the optimizer's state (zero 1), of the gradients
          (2), of the parameters (3)
    tp    columns and rows of each layer; sums within forward and backward passes

The fastest axis has neighboring ranks, so it stays within a host. That is the place of tp, which
sends most and waits for it; pp sends least and comes first.

Papers  Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
        Megatron-LM", SC 2021; Liang et al., "TorchTitan: One-stop PyTorch native solution for
        production ready LLM pretraining", ICLR 2025 (arXiv 2410.06511).
Law     gradients, and so the trajectory, equal the undivided model's within rounding.
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
from workbench.formulas.grid import Grid
from workbench.user_code.source import Source, is_code

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.pipelines.schedule import Schedule

TRAITS = Traits(
    replicas="divided",
    update="whole",
    recovers="replaced",
    whole_minibatch=True,
    skips="together",
    messages="collectives",
    plans_tensors=True,
    scene="timeline",
    together="Each holds a part of the model: a stage, a part of its layers, or both, and the "
    "ranks of each axis put together what they have.",
    idle=(
        ("buddy_every", "recovery", ("abort", "restart")),
        ("memory_weight", "split", ("layers",)),
    ),
)
LEVELS = (0, 1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="mesh"``."""

    mesh: str = ""  # axes of pp, dp, fsdp, tp with sizes, slowest first; "": all ranks on fsdp
    zero: int = 3  # what fsdp divides: 1 the optimizer's state, 2 gradients too, 3 parameters too
    # Between the layers that tp splits each rank takes its part of the sequence.
    sequence_parallel: bool = False
    schedule: str | Source | tuple[tuple[str, ...], ...] = "1f1b"  # of pp: a name, a grid, your own
    microbatches: int = 1  # parts of a replica's minibatch, one after the other; pp wants several
    stages_per_rank: int = 1  # of pp; more: smaller stages, a shorter bubble, more messages
    split: str | tuple[str, ...] = "auto"  # by costs; "layers", or layers that begin stages
    memory_weight: float = 0.0  # of split="auto": 0 balances computing, 1 memory, or between them
    buddy_every: int = 1  # iterations between copies on the next rank, for recovery="replace"

    def __post_init__(self) -> None:
        check_counts(self, "microbatches", "stages_per_rank")
        if self.zero not in LEVELS:
            why = "must be 0 (nothing is divided) to 3 (parameters too)"
            raise SpecError.at("zero", why, self.zero, allowed=LEVELS)
        check_memory_weight(self.memory_weight)
        check_buddies(self.buddy_every)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for a mesh that does not fit, or options that its axes do not have."""
    try:
        grid = Grid.read(config.mesh, exp.ranks)
    except SpecError as error:
        raise error.within("options") from None
    if exp.backend != "workbench":
        why = "strategy 'mesh' runs over backend='workbench'"
        raise SpecError.at("backend", why, exp.backend)
    if config.zero in (1, 2) and grid.size("fsdp") == 1:
        why = f"it divides over fsdp, and the mesh {str(grid)!r} has no such axis: leave it out"
        raise SpecError.at("options.zero", why, config.zero)
    if config.sequence_parallel and grid.size("tp") == 1:
        why = f"it divides over tp, and the mesh {str(grid)!r} has no such axis: leave it out"
        raise SpecError.at("options.sequence_parallel", why, config.sequence_parallel)
    stages = grid.size("pp") * config.stages_per_rank
    if config.stages_per_rank > 1 and grid.size("pp") == 1:
        why = f"it is of pp, and the mesh {str(grid)!r} has no such axis: leave it out"
        raise SpecError.at("options.stages_per_rank", why, config.stages_per_rank)
    if config.microbatches < grid.size("pp"):
        why = (
            f"{stages} stages are kept busy by as many microbatches or more: with "
            f"{config.microbatches}, most of them wait. Take {stages} or more"
        )
        raise SpecError.at("options.microbatches", why, config.microbatches)
    if not is_code(config.schedule):
        _refuse(config, grid, schedule_of(exp, config))


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Raise SpecError for what a schedule of the user's, or the task's model, does not allow."""
    from workbench.training.tensor_parallel.ahead import look_ahead

    grid = Grid.read(config.mesh, exp.ranks)
    _refuse(config, grid, schedule_of(exp, config))
    if grid.size("tp") > 1:
        tokens = config.sequence_parallel
        try:
            look_ahead(exp, grid.size("tp"), by_tokens=tokens, equally=True)
        except SpecError as error:
            raise SpecError.at("options.mesh", str(error), str(grid)) from None
    return {}


def schedule_of(exp: Experiment, config: Config) -> Schedule:
    """Return the schedule of the mesh's pipelines."""
    from workbench.training.pipelines.schedule import build

    return build(
        config.schedule,
        ranks=Grid.read(config.mesh, exp.ranks).size("pp"),
        microbatches=config.microbatches,
        stages_per_rank=config.stages_per_rank,
        iterations=1,
    )


def _refuse(config: Config, grid: Grid, schedule: Schedule) -> None:
    """Raise SpecError for a schedule that a mesh cannot follow."""
    if not schedule.flush:
        why = (
            f"schedule {schedule.name!r} has no flush at which lines could add up gradients: take "
            "one with a flush, such as '1f1b'"
        )
        raise SpecError.at("options.schedule", why, schedule.name)
    split = any(one.kind == "W" for row in schedule.rows for one in row)
    if split and config.zero == 3 and grid.size("fsdp") > 1:
        why = (
            f"schedule {schedule.name!r} has the backward pass in two halves, I and W, and with "
            "zero = 3 both would gather a layer: take zero = 1, or a schedule without W"
        )
        raise SpecError.at("options.schedule", why, schedule.name)


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept any option: a lost rank's part comes from the next rank's copy."""


def train(job: Job, config: Config) -> None:
    from workbench.training.mesh.rank import MeshRank

    MeshRank(job, config, schedule_of(job.exp, config)).run()
