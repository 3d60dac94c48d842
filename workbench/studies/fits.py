"""``wb.fits``: what each rank would hold, by formula, before anything runs.

    wb.fits(exp)                                        an experiment, moment by moment
    wb.fits(7.5e9, ranks=64, zero=1, dtype="bfloat16")  so many parameters, at rest

An experiment's iteration is gone through in theory (formulas/memory.py), with the operations of its
model's forward pass (forward_steps.py); nothing is trained, and no number comes from the ledger of
a run, so that each can be compared with the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

import polars as pl

from workbench.common.arguments import Ranks, Size, checked
from workbench.common.arguments.checks import one_of, whole
from workbench.common.errors import SpecError
from workbench.common.names import named_ranks
from workbench.common.units import print_size, size_bytes
from workbench.experiment.configure import config_of
from workbench.experiment.optimizers import RULES, states
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import hook
from workbench.formulas import chunk_sizes
from workbench.formulas.by_rows import ByRows
from workbench.formulas.memory import PRECISIONS, Moment, Rank, Rule, Unit, at_rest
from workbench.formulas.sharded_memory import Layer, ShardedRank
from workbench.user_code.source import load

ALL = "all"  # stands for all kinds together
MOST = 1e15  # parameters
Level = Annotated[int, whole(0, 3)]
FloatType = Annotated[str, one_of(*PRECISIONS)]
Optimizer = Annotated[str, one_of(*RULES)]


@dataclass(frozen=True, repr=False)
class Fit:
    """The bytes that ranks would hold at most, and whether they fit."""

    peaks: Mapping[int, Mapping[str, float]]  # by rank and kind, "all" among them
    limit: int | None  # bytes for each rank; None: nothing limits them
    sentence: str  # the first thing that would not fit; if all does, the most that a rank holds

    @property
    def ok(self) -> bool:
        """Whether every rank stays within the limit; True where there is none."""
        return self.limit is None or all(one[ALL] <= self.limit for one in self.peaks.values())

    @property
    def table(self) -> pl.DataFrame:
        """A row per rank and kind, as ``run.memory()`` has them: rank, kind, peak_bytes."""
        rows = [(rank, kind, n) for rank, held in self.peaks.items() for kind, n in held.items()]
        schema = {"rank": pl.Int32, "kind": pl.String, "peak_bytes": pl.Float64}
        return pl.DataFrame(rows, schema, orient="row").with_columns(
            pl.col("peak_bytes").round().cast(pl.Int64)
        )

    def __str__(self) -> str:
        """Return the sentence, and a line for each group of ranks where they differ."""
        alike: dict[float, list[int]] = {}
        for rank, held in self.peaks.items():
            alike.setdefault(held[ALL], []).append(rank)
        lines = [
            f"{named_ranks(ranks).capitalize()}: {_size(nbytes)} at the most"
            for nbytes, ranks in alike.items()
        ]
        return "\n".join([self.sentence, *(lines if len(alike) > 1 else [])])

    def __repr__(self) -> str:
        return str(self)


@checked
def fits(
    what: Any,
    *,
    ranks: Ranks = 1,
    zero: Level = 0,
    dtype: FloatType = "bfloat16",
    optimizer: Optimizer = "adam",
    memory_limit: Size | None = None,
) -> Fit:
    """Say what each rank would hold, and whether it fits; nothing is trained.

    what          an Experiment, or how many parameters a model has, such as 7.5e9
    memory_limit  of each rank, such as "80 GB"; an Experiment's own, if not given

    Of parameters alone, these say the rest, and activations are left out:

    ranks         over which what is divided divides evenly
    zero          what is divided: 0 nothing, 1 the optimizer's state, 2 gradients too, 3
                  parameters too
    dtype         with "bfloat16" the optimizer keeps a float32 copy of the parameters
    optimizer     "adam", for example: two numbers for each parameter

    ``.table`` has the bytes by rank and kind, ``.ok`` says whether they fit, ``.sentence`` names
    the first thing that would not. Adam's counters of steps and what a single operation needs while
    it runs are left out. Raises SpecError for what has no formula.

    >>> print(wb.fits(7.5e9, ranks=64, zero=1))
    """
    limit = None if memory_limit is None else size_bytes(memory_limit)
    if isinstance(what, Experiment):
        return _of_experiment(what, what.memory_limit_bytes if limit is None else limit)
    if not _is_number_of_parameters(what):
        why = f"must be an Experiment, or how many parameters there are, from 1 to {MOST:.0e}"
        raise SpecError.at("what", why, what)
    number = states(optimizer, 0.0)
    held = at_rest(what, ranks, zero, states=number, precision=PRECISIONS[dtype])
    held[ALL] = sum(held.values())
    return Fit(dict.fromkeys(range(ranks), held), limit, _at_rest_words(held, limit))


def _is_number_of_parameters(what: object) -> bool:
    if isinstance(what, bool) or not isinstance(what, int | float):
        return False
    return 1 <= what <= MOST and what == int(what)


def _of_experiment(exp: Experiment, limit: int | None) -> Fit:
    from workbench.studies.forward_steps import Model  # with torch

    rule = _rule(exp)
    model = Model(load("tasks", exp.task, "Task")(**exp.task_options), exp)
    units: Sequence[Any] = (
        _layers(model.module, rule) if rule.level == 3 else _units(model.module, rule)
    )
    sizes_of = _sizes(exp, rule)
    forwards = {n: model.trace(n) for n in sorted({n for sizes in sizes_of for n in sizes})}
    known = dict[Any, list[Moment]]()
    moments = []
    for place, sizes in enumerate(sizes_of):
        alike = (sizes, tuple(unit.part(place, exp.ranks) for unit in units))
        if alike not in known:
            rank = _rank(exp, rule, model, units, place)
            known[alike] = [*rank.moments([forwards[n].steps for n in sizes])]
        moments.append(known[alike])
    peaks = {place: _peaks(each) for place, each in enumerate(moments)}
    unknown = sorted({name for one in forwards.values() for name in one.unknown})
    return Fit(peaks, limit, _words(moments, limit) + _unknown_words(unknown))


def _rank(exp: Experiment, rule: Rule, model: Any, units: Any, place: int) -> Rank | ShardedRank:
    number = states(exp.optimizer, exp.momentum)
    if rule.level < 3:
        return Rank(rule, units, place, exp.ranks, number, model.frozen_bytes)
    from workbench.rank.metrics import METRICS_EVERY

    # FSDP's layers are its own, whose outputs no metrics can use: they run forward once more.
    validates = hasattr(model.task, "metrics")
    often = [validates and exp.record, validates and exp.record and exp.iterations > METRICS_EVERY]
    return ShardedRank(rule, units, place, exp.ranks, number, often[: exp.iterations], validates)


def _units(model: Any, rule: Rule) -> list[Unit]:
    """Return the trained parameters by the units that are reduced at once, in the model's order."""
    parts: dict[str, dict[str, int]] = {}
    itemsize = 0
    for unit, key, parameter in _by_unit(model, rule):
        if parameter.requires_grad:
            itemsize = parameter.element_size()
            parts.setdefault(unit, {})[key] = parameter.nbytes
    return [Unit(name, nbytes, itemsize) for name, nbytes in parts.items()]


def _layers(model: Any, rule: Rule) -> list[Layer]:
    """Return all parameters by the layers that are gathered at once, the model's own last."""
    from workbench.rank.layers import REST, WHOLE

    parts: dict[str, dict[str, ByRows]] = {}
    for unit, key, parameter in _by_unit(model, rule):
        rows = parameter.shape[0] if parameter.ndim else 1
        parts.setdefault(unit, {})[key] = ByRows(rows, parameter.nbytes // rows)
    layers = [Layer(name, held, name in (REST, WHOLE)) for name, held in parts.items()]
    return sorted(layers, key=lambda one: one.root)


def _by_unit(model: Any, rule: Rule) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameters with the names of their units and their own."""
    from workbench.rank.layers import REST, WHOLE, units

    names = [name for name, _ in units(model, rule.units)]
    for key, parameter in model.named_parameters():
        unit = next((name for name in names if key.startswith(f"{name}.")), "")
        yield unit or (REST if names else WHOLE), key, parameter


def _rule(exp: Experiment) -> Rule:
    """Return how the experiment's strategy holds a model. Raises SpecError where it does not say
    so.
    """
    holds = hook(exp.strategy, "holds")
    if holds is None:
        raise SpecError.at(
            "strategy",
            "has no formula of what a rank holds (holds(config) in its file), so wb.fits cannot "
            "tell. Run it with a memory_limit, and look at run.memory()",
            getattr(exp.strategy, "name", exp.strategy),
        )
    rule: Rule = holds(config_of(exp))
    return rule


def _sizes(exp: Experiment, rule: Rule) -> list[tuple[int, ...]]:
    """Return for each rank how many samples each of its passes has; one that counts nothing stands
    for none.
    """
    return [
        tuple(max(1, part) for part in chunk_sizes(mine, rule.accumulate))
        for mine in chunk_sizes(exp.batch_size, exp.ranks)
    ]


def _peaks(moments: Sequence[Moment]) -> dict[str, float]:
    """Return the most of each kind, and of all together."""
    most: Counter[str] = Counter()
    for one in moments:
        most |= Counter({**one.held, ALL: one.total})
    return dict(most)


# -- words

_DOING = {
    "start": "at the start",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "update": "at the first update",
    "end": "at the end, as all is validated",
}


def _words(ranks: Sequence[Sequence[Moment]], limit: int | None) -> str:
    over = (
        (at, rank, one)
        for rank, moments in enumerate(ranks)
        for at, one in enumerate(moments)
        if limit is not None and one.total > limit
    )
    first = min(over, default=None, key=lambda place: place[:2])
    if first is not None:
        _, rank, one = first
        where = _DOING[one.doing] + (f" of layer {one.layer!r}" if one.layer else "")
        return (
            f"Rank {rank} would hold {_size(one.total)}, more than its memory_limit of "
            f"{print_size(limit or 0)}, {where}, where its {one.added} would not fit: "
            f"{_list(one.held)}."
        )
    rank, most = max(
        ((rank, max(moments, key=lambda one: one.total)) for rank, moments in enumerate(ranks)),
        key=lambda one: one[1].total,
    )
    return f"Rank {rank} would hold {_most(most.held, limit)}"


def _at_rest_words(held: Mapping[str, float], limit: int | None) -> str:
    kinds = {kind: nbytes for kind, nbytes in held.items() if kind != ALL}
    if limit is None or held[ALL] <= limit:
        return f"Each rank would hold {_most(kinds, limit)} Activations are left out."
    sums = zip(kinds, accumulate(kinds.values()), strict=True)
    kind = next(kind for kind, together in sums if together > limit)
    return (
        f"Each rank would hold {_size(held[ALL])} without activations, more than its memory_limit "
        f"of {print_size(limit)}: its {kind} would not fit ({_list(kinds)})."
    )


def _most(held: Mapping[str, float], limit: int | None) -> str:
    total = sum(held.values())
    beside = (
        "; there is no memory_limit to compare it with"
        if limit is None
        else f", {100 * total / limit:.3g} % of its memory_limit of {print_size(limit)}"
    )
    return f"{_size(total)} at the most{beside}: {_list(held)}."


def _list(held: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {_size(nbytes)}" for kind, nbytes in held.items() if nbytes)


def _size(nbytes: float) -> str:
    """Return the size with three digits: "31.4 GB", "120 GB", "1,200 GB"."""
    unit, scale = ("GB", 1e9) if nbytes >= 1e9 else ("MB", 1e6) if nbytes >= 1e6 else ("kB", 1e3)
    value = nbytes / scale
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _unknown_words(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f" Not counted, as no formula says what it keeps: {', '.join(names)}."
