"""The subjects of a drift report: a strategy, an experiment, a loop, or a known bug."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

from workbench.common import syntax
from workbench.common.arguments import Check, Unfit
from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.spec import Experiment, Network
from workbench.studies.drift.resuming import Lost, may_lose
from workbench.user_code.source import Source, capture

HERE = Path(__file__).parent
LOOP_FILE = f"{HERE / 'loop.py'}:train"
ALONE: dict[str, Any] = {
    "all_reduce": "ring",
    "memory_limit": None,
    "backend": "workbench",
    "record": False,
}
MUTANTS = ("no_division", "mean_of_means", "wrong_seeds", "same_shard", "no_sync")
RESUMING: dict[str, Lost] = {
    "no_optimizer_state": "optimizer",
    "no_sampler_position": "sampler",
    "no_generators": "generators",
}
LOOP = {  # the arguments that studies/drift/loop.py has for a loop, by name
    "rank": "which rank this is, from 0",
    "size": "number of ranks",
    "model": "the task's model, with the same parameters on every rank",
    "minibatches": "the samples of every iteration's minibatch, collated; as many as iterations",
    "optimizer": "the experiment's update rule for the model",
    "loss": "loss(batch): the task's, the mean over the samples of a batch",
}

Given = str | Experiment | Source | Callable[..., Any]


def _one(value: Any) -> Any:
    known = isinstance(value, Experiment | Source | FunctionType) or (
        isinstance(value, str) and value
    )
    if not known:
        raise Unfit(
            "a strategy's name, a function train(job, config), a loop, or an Experiment; or "
            "name -> one of these"
        )
    return value


def _subject(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _one(one) for name, one in value.items()}
    return _one(value)


Training = Annotated[Given | Mapping[str, Given], Check(_subject)]


@dataclass(frozen=True)
class Subject:
    """A training under its name; ``words`` on what is done in it."""

    name: str
    experiment: Experiment
    words: str = ""
    mutant: bool = False
    draws: bool = False  # it shows only where the task draws random numbers

    @property
    def alone(self) -> Experiment | None:
        """The same loop on one rank; None of a strategy, whose reference is sequential training."""
        exp = self.experiment
        if exp.strategy != LOOP_FILE:
            return None
        return exp.replace(ranks=1, **ALONE, **_undisturbed())


def subjects_of(
    subject: Given | Mapping[str, Given] | None,
    mutants: bool,
    fields: Mapping[str, Any],
    resumes_at: int | None = None,
) -> list[Subject]:
    """Return the subjects, and the mutants of the first one's experiment, with those of resuming at
    an iteration if there is one. Raises SpecError.
    """
    subject = "data_parallel" if subject is None else subject
    several = subject if isinstance(subject, Mapping) else {"": subject}
    if not several:
        raise SpecError("drift was given no subject: leave it out, or name at least one")
    result = [
        Subject(name or _named(one), experiment_of(one, fields)) for name, one in several.items()
    ]
    ground = result[0].experiment
    for other in result[1:]:
        if reference(other.experiment) != reference(ground):
            raise SpecError(
                f"{other.name} and {result[0].name} are different trainings: one sequential run is "
                "compared with all subjects, so they share task, batch_size, seed, iterations and "
                "optimizer"
            )
    if mutants and ground.ranks > 1:
        known = [mutant(name, ground) for name in MUTANTS]
        if resumes_at is not None:
            lost = may_lose(ground)
            names = [name for name, what in RESUMING.items() if what in lost]
            known += [mutant(name, ground, {"at": resumes_at}) for name in names]
        mutant_names = {one.name for one in known}
        if clash := [one.name for one in result if one.name in mutant_names]:
            raise SpecError(f"{clash[0]!r} is a mutant's name: call it something else")
        result += known
    return result


def experiment_of(subject: Given, fields: Mapping[str, Any]) -> Experiment:
    """Return the subject's experiment with ``fields``; by default 2 ranks, 100 iterations."""
    if isinstance(subject, Experiment):
        return subject.replace(**fields)
    ranks = fields.get("ranks", 2)
    options = {"ranks": ranks, "iterations": 100, "batch_size": uneven(ranks), **fields}
    if not callable(subject):
        return Experiment(**{"strategy": subject, **options})
    names = [*inspect.signature(subject).parameters]
    if names[:1] == ["job"]:
        return Experiment(**{"strategy": subject, **options})
    if not names or not set(names) <= {*LOOP}:
        raise SpecError(
            f"{subject.__name__}({', '.join(names)}): a strategy is train(job, config), and a loop "
            f"of your own names what it wants of {listed(LOOP)}"
        )
    return Experiment(**{"strategy": LOOP_FILE, "options": {"loop": capture(subject)}, **options})


def uneven(ranks: int) -> int:
    """Return the least number of samples from 10 on that ``ranks`` cannot share evenly.

    11 for 2, 10 for 4. Equal shares would hide what is wrong with uneven ones.
    """
    return next(m for m in count(10) if ranks == 1 or m % ranks)


def mutant(name: str, ground: Experiment, options: Mapping[str, Any] | None = None) -> Subject:
    """Return the experiment with this bug in it."""
    file = HERE / "mutants" / f"{name}.py"
    words = (
        (ast.get_docstring(syntax.parse(file.read_text(encoding="utf-8"))) or "")
        .splitlines()[0]
        .rstrip(".")
    )
    plain: dict[str, Any] = {"all_reduce": "ring", "memory_limit": None}
    exp = ground.replace(**_path(file), options={**(options or {})}, **plain, **_undisturbed())
    draws = RESUMING.get(name) == "generators"
    return Subject(name.replace("_", " "), exp, words, mutant=True, draws=draws)


def reference(exp: Experiment) -> Experiment:
    """Return the same training in one process."""
    return exp.replace(strategy="sequential", ranks=1, options={}, **ALONE, **_undisturbed())


def resumed(exp: Experiment, lost: Lost, at: int) -> Experiment:
    """Return the same training in one process, which resumes at an iteration without some state."""
    options = {"at": at, "lost": lost}
    return reference(exp).replace(**_path(HERE / "resuming.py"), options=options)


def _undisturbed() -> dict[str, Any]:
    return {"network": Network(), "faults": (), "pad_compute": None}


def _path(file: Path) -> dict[str, str]:
    return {"strategy": f"{file}:train"}


def _named(subject: Given | None) -> str:
    what = subject.strategy if isinstance(subject, Experiment) else subject
    if isinstance(what, Source):
        return what.name
    return "data_parallel" if what is None else what if isinstance(what, str) else what.__name__
