"""What is held against sequential training: a strategy, an experiment, a loop, or a known bug."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.source import Source, capture, listed
from workbench.spec import Experiment, Network

HERE = Path(__file__).parent
MUTANTS = ("no_division", "mean_of_means", "wrong_seeds", "same_shard", "no_sync")
LOOP = {  # what rounding/loop.py gives to a loop that names it
    "rank": "which rank this is, from 0",
    "size": "number of ranks",
    "model": "the task's model, with the same parameters on every rank",
    "minibatches": "the samples of every iteration's minibatch, collated; as many as iterations",
    "optimizer": "the experiment's update rule for the model",
    "loss": "loss(batch): the task's, the mean over the samples of a batch",
}

Given = str | Experiment | Source | Callable[..., Any]


@dataclass(frozen=True)
class Subject:
    """A training under its name; ``words`` on what is done in it."""

    name: str
    experiment: Experiment
    words: str = ""
    mutant: bool = False


def subjects_of(
    given: Given | Mapping[str, Given] | None, mutants: bool, fields: Mapping[str, Any]
) -> list[Subject]:
    """Those given, and the mutants of the first one's experiment. Raises SpecError."""
    several = given if isinstance(given, Mapping) else {"": given or "data_parallel"}
    if not several:
        raise SpecError("drift was given no subject: leave it out, or name at least one")
    found = [
        Subject(name or _named(one), experiment_of(one, fields)) for name, one in several.items()
    ]
    ground = found[0].experiment
    for other in found[1:]:
        if reference(other.experiment) != reference(ground):
            raise SpecError(
                f"{other.name} is not the training that {found[0].name} is: subjects share task, "
                "batch_size, seed, iterations and optimizer, so that one sequential run serves all"
            )
    if mutants and ground.ranks > 1:
        known = [mutant(name, ground) for name in MUTANTS]
        taken = {one.name for one in known}
        if clash := [one.name for one in found if one.name in taken]:
            raise SpecError(f"{clash[0]!r} is a mutant's name: call it something else")
        found += known
    return found


def experiment_of(given: Given, fields: Mapping[str, Any]) -> Experiment:
    """With ``fields`` in place of its own, and 2 ranks, 100 iterations where none are named."""
    if isinstance(given, Experiment):
        return given.replace(**fields)
    ranks = fields.get("ranks", 2)
    wanted = {"ranks": ranks, "iterations": 100, "batch_size": uneven(ranks), **fields}
    if not callable(given):
        return Experiment(**{"strategy": given, **wanted})
    names = [*inspect.signature(given).parameters]
    if names[:1] == ["job"]:
        return Experiment(**{"strategy": given, **wanted})
    if not names or not set(names) <= {*LOOP}:
        raise SpecError(
            f"{given.__name__}({', '.join(names)}): a strategy is train(job, config), and a loop "
            f"of your own names what it wants of {listed(LOOP)}"
        )
    return Experiment(**{**_path(HERE / "loop.py"), "options": {"loop": capture(given)}, **wanted})


def uneven(ranks: int) -> int:
    """The least number of samples from 10 on that ``ranks`` cannot share evenly: 11 for 2, 10 for
    4. Equal parts would hide what is wrong with uneven ones.
    """
    return next(m for m in count(10) if ranks == 1 or m % ranks)


def mutant(name: str, ground: Experiment) -> Subject:
    """The experiment with this bug in it."""
    file = HERE / "mutants" / f"{name}.py"
    words = (ast.get_docstring(ast.parse(file.read_text())) or "").splitlines()[0].rstrip(".")
    plain: dict[str, Any] = {"options": {}, "all_reduce": "ring", "memory_limit": None}
    exp = ground.replace(**_path(file), **plain, **_undisturbed())
    return Subject(name.replace("_", " "), exp, words, mutant=True)


def reference(exp: Experiment) -> Experiment:
    """The same training in one process."""
    return exp.replace(
        strategy="sequential", ranks=1, options={}, all_reduce="ring", memory_limit=None,
        backend="workbench", record=False, **_undisturbed(),
    )  # fmt: skip


def _undisturbed() -> dict[str, Any]:
    return {"network": Network(), "faults": (), "pad_compute": None}


def _path(file: Path) -> dict[str, str]:
    return {"strategy": f"{file}:train"}


def _named(given: Given | None) -> str:
    what = given.strategy if isinstance(given, Experiment) else given
    if isinstance(what, Source):
        return what.name
    return "data_parallel" if what is None else what if isinstance(what, str) else what.__name__
