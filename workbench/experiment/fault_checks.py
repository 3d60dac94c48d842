"""Checks of the faults of an Experiment; each raises a SpecError."""

from __future__ import annotations

from workbench.common.errors import SpecError
from workbench.common.units import counted
from workbench.experiment.elastic_checks import check_elastic
from workbench.experiment.faults import (
    Cut,
    Fault,
    Join,
    Moment,
    NetworkPartition,
    SourceDown,
    not_there,
    struck,
)
from workbench.experiment.fields import Fields
from workbench.experiment.traits import traits_of
from workbench.user_code import source

MOST_EVENTS = 63  # faults of an experiment, where one waits for an event: a word has that many bits


def check_faults(exp: Fields) -> None:
    """Check that each fault strikes a rank that there is, at a moment that comes, and once."""
    earlier: set[object] = set()
    for index, fault in enumerate(exp.faults):
        where = "faults", index
        ranks = [*struck(fault)]
        if isinstance(fault, Moment) and fault.when is not None:
            ranks.append(fault.when.rank)
        if ranks and max(ranks) >= exp.ranks:
            last = exp.ranks - 1
            why = f"there is no rank {max(ranks)}; ranks={exp.ranks} are 0 to {last}"
            raise SpecError.at(where, why, fault)
        moments = [getattr(fault, "at_iteration", None)]
        if isinstance(fault, Moment) and fault.when is not None:
            moments.append(fault.when.from_iteration)
        if any(at is not None and at >= exp.iterations for at in moments):
            why = f"never happens: training ends after {counted(exp.iterations, 'iteration')}"
            raise SpecError.at(where, why, fault)
        if why := _impossible(exp, fault):
            raise SpecError.at(where, why, fault)
        if (once := _once(exp, fault)) in earlier:
            why = f"there is another {type(fault).__name__} like it before; one is enough"
            raise SpecError.at(where, why, fault)
        earlier.add(once)
    _check_joins(exp)


def _check_joins(exp: Fields) -> None:
    """Check that ranks can join, and that training can begin without those that come later."""
    joins = {one.rank: (at, one) for at, one in enumerate(exp.faults) if isinstance(one, Join)}
    for at, fault in joins.values():
        try:
            check_elastic(exp)
        except SpecError as error:
            where = error.problems[0]
            why = f"this run takes in no rank: {where.message}"
            raise SpecError.at(("faults", at), why, fault) from None
    _, later = not_there(exp.faults)
    if not later:
        return
    at, fault = joins[min(later)]
    least = exp.min_ranks
    if least is None or len(later) > exp.ranks - least:
        without = f"training begins without {'ranks' if len(later) > 1 else 'rank'} "
        without += f"{', '.join(map(str, sorted(later)))}, which no fault ends before"
        fewest = max(1, exp.ranks - len(later))
        raise SpecError.at(
            ("faults", at),
            f"{without}: say that it may, such as ranks=({fewest}, {exp.ranks})",
            fault,
        )


def _impossible(exp: Fields, fault: Fault) -> str:
    """Return why a fault cannot be in this experiment; "" if it can."""
    if isinstance(fault, Cut) and fault.source == fault.target:
        return "a link joins two ranks"
    if isinstance(fault, NetworkPartition):
        if len(set(fault.ranks)) < len(fault.ranks):
            return "a rank is named twice"
        if len(fault.ranks) == exp.ranks:
            return "these are all ranks: name those of one side"
    if isinstance(fault, Cut | NetworkPartition) and exp.backend != "workbench":
        return f"links are emulated with backend='workbench' only, and this is {exp.backend!r}"
    if isinstance(fault, SourceDown) and traits_of(exp.strategy).plays == "only":
        return "strategy " + source.shown(exp.strategy) + " plays: it reads no samples"
    if isinstance(fault, Moment) and fault.when is not None:
        if exp.backend != "workbench":
            return f"steps are known with backend='workbench' only, and this is {exp.backend!r}"
        if len(exp.faults) > MOST_EVENTS:
            return f"with an event among them, {MOST_EVENTS} faults are the most"
    return ""


def _once(exp: Fields, fault: Fault) -> object:
    """Return what another fault must not have in common with this one."""
    at, kind = getattr(fault, "at_iteration", None), fault.fault
    if isinstance(fault, Moment) and (fault.after is not None or fault.when is not None):
        return fault
    if isinstance(fault, Cut | NetworkPartition):
        return fault
    ranks = struck(fault)
    # A rank that is killed ends, unless another process takes its place.
    often = kind in ("freeze", "corrupt", "source_down") or (
        kind in ("kill", "preempt") and exp.recovers
    )
    often = often or (kind == "slow" and at is not None)
    return (kind, ranks, at) if often else (kind, ranks)
