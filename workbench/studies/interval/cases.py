"""The experiments of a study of the checkpoint interval: every interval under the same failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment, Kill
from workbench.recovery.restart import MOST

ENOUGH = 30  # iterations without failures, after which training's speed is known


@dataclass(frozen=True)
class Case:
    """One experiment of a study: an interval under the failures of one seed."""

    every: int  # iterations between two checkpoints
    experiment: Experiment

    @property
    def name(self) -> str:
        return f"every {self.every}, seed {self.experiment.seed}"


def check(exp: Experiment, every: Sequence[int]) -> None:
    """Raise SpecError for an experiment, or intervals, that cannot be studied."""
    if not isinstance(exp, Experiment):
        raise SpecError(f"interval takes an Experiment, not {type(exp).__name__}")
    if exp.checkpoint is None:
        raise SpecError(
            "interval sweeps how often checkpoints are written, and this experiment writes none: "
            'add checkpoint=wb.Checkpoint(folder="checkpoints")'
        )
    if not exp.record:
        raise SpecError("a study reads what the ranks recorded: leave out record=False")
    if exp.resume:
        raise SpecError("each run of a study begins at its beginning: leave out resume")
    if any(isinstance(fault, Kill) for fault in exp.faults):
        raise SpecError("interval draws its own kills: leave out those in faults")
    if len({*every}) < len(every):
        raise SpecError(f"every = {every!r}: each interval once")
    if max(every) >= exp.iterations:
        raise SpecError(
            f"every = {every!r}: a run of {exp.iterations} iterations would write no checkpoint "
            f"with an interval of {max(every)}; take shorter intervals or more iterations"
        )
    exp.replace(recovery="restart")  # which might not fit it


def undisturbed(exp: Experiment, every: Sequence[int], folder: Path) -> Experiment:
    """Return the experiment without failures, and with few checkpoints, if any: as long as it takes
    to know the speed of training.
    """
    case = _one(exp, max(every), folder / "interval-undisturbed")
    return case.replace(iterations=min(exp.iterations, ENOUGH))


def cases(
    exp: Experiment,
    every: Sequence[int],
    seeds: Sequence[int],
    folder: Path,
    seconds: float,
    mtbf: float,
) -> list[Case]:
    """Return the cases, all intervals with the first seed first. ``seconds``: of an iteration.

    Raises WorkbenchError for failures that come too fast.
    """
    if mtbf <= seconds:
        raise WorkbenchError(
            f"mtbf = {mtbf:g} s: an iteration alone takes {seconds:.3g} s, so nothing would get "
            "done; take a longer mtbf"
        )
    result = []
    for seed in seeds:
        drawn = kills(exp.iterations, exp.ranks, mtbf / seconds, seed)
        if len(drawn) >= MOST:
            raise WorkbenchError(
                f"mtbf = {mtbf:g} s: {len(drawn)} failures in {exp.iterations} iterations of "
                f"{seconds:.3g} s, and recovery='restart' ends a run after {MOST}; take a longer "
                "mtbf or fewer iterations"
            )
        for one in every:
            case = _one(exp, one, folder / f"interval-{one}-seed-{seed}")
            case = case.replace(seed=seed, faults=(*exp.faults, *drawn))
            result.append(Case(one, case))
    return result


def kills(iterations: int, ranks: int, mtbf: float, seed: int) -> list[Kill]:
    """Draw failures: exponential times between them, in iterations that count, of a mean ``mtbf``.

    A seed's failures are the same for every interval. None is drawn while lost work is done again,
    as in Young's model, and two in one iteration are one.
    """
    draw = np.random.default_rng([seed, 0x1974])
    struck = dict[int, int]()
    for at in _arrivals(draw, mtbf, iterations):
        struck.setdefault(at, int(draw.integers(ranks)))
    return [Kill(rank=rank, at_iteration=at) for at, rank in struck.items()]


def _arrivals(draw: np.random.Generator, mtbf: float, iterations: int) -> Iterator[int]:
    """Yield the iterations in which failures come."""
    at = draw.exponential(mtbf)
    while at < iterations:
        yield int(at)
        at += draw.exponential(mtbf)


def _one(exp: Experiment, every: int, folder: Path) -> Experiment:
    assert exp.checkpoint is not None
    plan = exp.checkpoint.model_copy(update={"every": every, "folder": str(folder)})
    return exp.replace(recovery="restart", checkpoint=plan)
