"""A scenario: what goes wrong in a run, as a file of its own, listed or drawn from a seed.

    faults:                                              rates:   # of each kind, in each iteration
    - {fault: kill, rank: 2, at_iteration: 10}             kill: 0.01
    - {fault: cut, source: 0, target: 1, after: 2 s}       freeze: 0.05
    - {fault: freeze, rank: 1, seconds: 0.5,             seed: 1
       when: {rank: 2, step: 3}}

``Scenario.from_yaml("scenario.yaml").on(exp)`` is the experiment with these faults among its own:
the draw is over when the run begins, so that the experiment says all that is to happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import Field

from workbench.common.arguments import Place, checked
from workbench.common.errors import SpecError, short
from workbench.common.output_files import write_text
from workbench.experiment.faults import (
    Corrupt,
    Cut,
    FailToStart,
    Fault,
    Freeze,
    Join,
    Kill,
    NetworkPartition,
    Preempt,
    Slow,
    SourceDown,
)
from workbench.experiment.frozen_model import Float, FrozenModel, Int
from workbench.experiment.yaml_text import as_fields, dump, parse, read

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

Kind = Literal[
    "kill",
    "freeze",
    "slow",
    "cut",
    "partition",
    "corrupt",
    "preempt",
    "fail_to_start",
    "join",
    "source_down",
]
Rate = Annotated[Float, Ge(0), Le(1)]
SHORTEST, LONGEST = 0.05, 0.5  # seconds that drawn faults last
FIRST = 1  # iteration that may be struck by a drawn fault


class Scenario(FrozenModel):
    """Faults that are listed, and faults that are drawn."""

    faults: tuple[Fault, ...] = Field(default=(), description="what goes wrong, and when")
    rates: dict[Kind, Rate] = Field(
        default={},
        description="probability of each kind of fault in each iteration, such as {'kill': 0.01}; "
        "fail_to_start: of the run; join: that a rank which was lost joins again",
    )
    seed: Int = Field(default=0, ge=0, lt=2**63, description="fixes what is drawn")

    def on(self, exp: Experiment) -> Experiment:
        """Return the experiment ``exp`` with these faults among its own. Raises SpecError for a
        rank that there is none of, or a moment that never comes.
        """
        _check(exp, "on")
        return exp.replace(faults=(*exp.faults, *self.faults, *self.drawn(exp)))

    def drawn(self, exp: Experiment) -> tuple[Fault, ...]:
        """Return the faults that are drawn for ``exp``: the same for the same seed, ranks and
        iterations. One rank is never lost; where no recovery follows, one loss is all. Raises
        SpecError for what is not an experiment.
        """
        _check(exp, "drawn")
        draw = random.Random(f"scenario {self.seed}")
        spared = draw.randrange(exp.ranks)
        faults: list[Fault] = []
        lost = set[int]()
        starts = self.rates.get("fail_to_start", 0)
        if starts and exp.ranks > 1 and draw.random() < starts:
            faults.append(FailToStart(rank=_another(draw, exp, spared)))
            lost.add(faults[0].rank)  # type: ignore[union-attr]
        for iteration in range(FIRST, exp.iterations):
            for kind in sorted(self.rates.keys() - {"fail_to_start"}):
                if draw.random() >= self.rates[kind]:
                    continue
                ends = kind in ("kill", "preempt")
                if exp.ranks == 1 and kind in ("cut", "partition", "kill", "preempt"):
                    continue
                if ends and lost and not exp.recovers:
                    continue
                if kind == "join":
                    if lost:
                        again = draw.choice(sorted(lost))
                        faults.append(Join(rank=again, at_iteration=iteration))
                        lost.discard(again)
                    continue
                faults.append(_DRAWS[kind](draw, exp, iteration, spared))
                if ends:
                    lost.add(faults[-1].rank)  # type: ignore[union-attr]
        unique = {
            (one.fault, getattr(one, "rank", -1), getattr(one, "at_iteration", -1)): one
            for one in faults
        }
        return tuple(unique.values())

    @checked
    def to_yaml(self, path: Place | None = None) -> str:
        """Return the YAML text; also write it to ``path``."""
        whole = self.model_dump(mode="json", exclude_defaults=False)
        data = {name: value for name, value in whole.items() if value}
        text = dump(data)
        if path is not None:
            write_text(path, "the scenario", text)
        return text

    @classmethod
    @checked
    def from_yaml(cls, path_or_text: Place) -> Scenario:
        """Return a Scenario from a YAML file, or from its text (``path_or_text``).

        Raises SpecError.
        """
        origin = path_or_text if isinstance(path_or_text, str) else Path(path_or_text)
        text, _ = read(origin)
        return cls(**as_fields(parse(text), str(origin), "a scenario", "rates: {kill: 0.01}"))


def _check(exp: object, method: str) -> None:
    from workbench.experiment.spec import Experiment

    if not isinstance(exp, Experiment):
        raise SpecError(f"Scenario.{method}: exp = {short(exp)}: must be a wb.Experiment")


Draw = Callable[[random.Random, Any, int, int], Any]


def _another(draw: random.Random, exp: Experiment, than: int) -> int:
    return draw.choice([rank for rank in range(exp.ranks) if rank != than])


def _seconds(draw: random.Random) -> float:
    return round(draw.uniform(SHORTEST, LONGEST), 3)


def _kill(draw: random.Random, exp: Experiment, at: int, spared: int) -> Kill:
    return Kill(rank=_another(draw, exp, spared), at_iteration=at)


def _preempt(draw: random.Random, exp: Experiment, at: int, spared: int) -> Preempt:
    return Preempt(rank=_another(draw, exp, spared), at_iteration=at)


def _freeze(draw: random.Random, exp: Experiment, at: int, spared: int) -> Freeze:
    return Freeze(rank=draw.randrange(exp.ranks), at_iteration=at, seconds=_seconds(draw))


def _slow(draw: random.Random, exp: Experiment, at: int, spared: int) -> Slow:
    factor = round(draw.uniform(2, 6), 1)
    rank, seconds = draw.randrange(exp.ranks), _seconds(draw)
    return Slow(rank=rank, at_iteration=at, factor=factor, seconds=seconds)


def _cut(draw: random.Random, exp: Experiment, at: int, spared: int) -> Cut:
    source, target = draw.sample(range(exp.ranks), 2)
    return Cut(source=source, target=target, at_iteration=at, seconds=_seconds(draw))


def _partition(draw: random.Random, exp: Experiment, at: int, spared: int) -> NetworkPartition:
    side = sorted(draw.sample(range(exp.ranks), draw.randint(1, exp.ranks - 1)))
    return NetworkPartition(ranks=tuple(side), at_iteration=at, seconds=_seconds(draw))


def _corrupt(draw: random.Random, exp: Experiment, at: int, spared: int) -> Corrupt:
    kind: Any = draw.choice(["nan", "raises", "shape"])
    if exp.bad_minibatch != "skip":
        kind = "nan"
    return Corrupt(rank=draw.randrange(exp.ranks), at_iteration=at, kind=kind)


def _source_down(draw: random.Random, exp: Experiment, at: int, spared: int) -> SourceDown:
    return SourceDown(at_iteration=at, seconds=_seconds(draw), slow_iterations=draw.randrange(3))


_DRAWS: dict[str, Draw] = {
    "kill": _kill,
    "preempt": _preempt,
    "freeze": _freeze,
    "slow": _slow,
    "cut": _cut,
    "partition": _partition,
    "corrupt": _corrupt,
    "source_down": _source_down,
}
