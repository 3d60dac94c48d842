"""The runs of a report: every training, for several numbers of updates, in both dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.experiment.spec import Experiment
from workbench.studies.drift.resuming import Lost
from workbench.studies.drift.subjects import Subject, reference, resumed

AT = (1, 2, 5, 10, 20, 50, 100)  # updates
DTYPES = ("float32", "float64")
SEQUENTIAL = "(sequential)"  # no subject is called that


@dataclass(frozen=True)
class Planned:
    """A run to do: of which training, in which dtype, ending after how many updates."""

    name: str
    experiment: Experiment
    probe: bool = False  # with plain SGD, whose first update shows the gradient

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.experiment.dtype, self.experiment.iterations


def plan_of(subjects: Sequence[Subject], at: Sequence[int]) -> list[Planned]:
    """Return the runs: the subjects first, then the mutants, for which fewer lengths are enough."""
    quiet = {"record": False}
    ground = reference(subjects[0].experiment)
    originals = [one for one in subjects if not one.mutant]
    mutants = [one for one in subjects if one.mutant]
    few = sorted({at[0], at[len(at) // 2], at[-1]})
    plan: list[Planned] = []
    for k in at:
        for dtype in DTYPES:
            fields = {"dtype": dtype, "iterations": k, **quiet}
            plan.append(Planned(SEQUENTIAL, _threaded(ground).replace(**fields)))
            plan += (Planned(s.name, _threaded(s.experiment).replace(**fields)) for s in originals)
    for k in few:
        for one in mutants:
            for dtype in DTYPES:
                fields = {"dtype": dtype, "iterations": k, **quiet}
                plan.append(Planned(one.name, _threaded(one.experiment).replace(**fields)))
    if ground.optimizer != "sgd":  # whose first update is not the gradient
        probe = {"dtype": "float64", "iterations": 1, "optimizer": "sgd", "lr": None, **quiet}
        plan += (Planned(s.name, _threaded(s.experiment).replace(**probe), True) for s in subjects)
    return plan


def plan_alone(one: Subject, at: Sequence[int]) -> list[Planned]:
    """Return the runs of a loop on one rank: after the first and after the last update; with its
    probe, and the probe on all ranks.
    """
    assert one.alone is not None
    alone, quiet = _threaded(one.alone), {"record": False}
    fields = [
        {"dtype": d, "iterations": k, **quiet} for k in sorted({at[0], at[-1]}) for d in DTYPES
    ]
    plan = [Planned(alone_name(one.name), alone.replace(**each)) for each in fields]
    first = {"dtype": "float64", "iterations": 1, **quiet}
    for exp in (alone, _threaded(one.experiment)):
        probing = exp.replace(**first, options={**exp.options, "probe": True})
        plan.append(Planned(alone_name(one.name), probing, True))
    return plan


def alone_name(name: str) -> str:
    """Return the name of a loop's runs on one rank."""
    return f"({name}, on one rank)"


def plan_resumed(ground: Experiment, lost: Lost, at: int) -> Planned:
    """Return the run of one process that resumes at an iteration without some state."""
    exp = resumed(ground, lost, at).replace(dtype="float64")
    return Planned(f"(without the {lost} from {at})", _threaded(exp))


def _threaded(exp: Experiment) -> Experiment:
    """Return the experiment with one thread per rank by default: sums have the same order."""
    return exp if exp.threads is not None else exp.replace(threads=1)
