"""Checks of an Experiment whose ranks come and go; each raises a SpecError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.common.errors import SpecError
from workbench.experiment.fields import Fields
from workbench.experiment.survivors import check_from_memory
from workbench.experiment.traits import traits_of
from workbench.user_code import source


def check_elastic(exp: Fields) -> None:
    """Check that ranks can come and go: those that train must have all that is trained."""
    if exp.recovery in ("abort", "restart"):
        raise SpecError.at(
            "recovery",
            "ranks come and go where the others go on with what they have in memory: take "
            "recovery='shrink', 'replace', 'wait' or 'quorum'",
            exp.recovery,
        )
    if traits_of(exp.strategy).plays == "only":
        why = "each of its ranks has a role from the beginning on, and none comes or goes"
        raise SpecError.at("strategy", why, source.shown(exp.strategy))
    check_from_memory(exp, "any")


def is_elastic(exp: Fields) -> bool:
    """Return whether ranks can come and go: see `check_elastic`."""
    try:
        check_elastic(exp)
    except SpecError:
        return False
    return True


def check_scale_batch(exp: Fields) -> None:
    """Check that minibatches whose size goes with the ranks fit."""
    if not exp.scale_batch:
        return
    try:
        check_elastic(exp)
    except SpecError as error:
        where = error.problems[0]
        raise SpecError.at(
            where.path, f"scale_batch is for ranks that come and go. {where.message}"
        ) from None


def check_min_ranks(exp: Fields) -> None:
    """Check that a run with a minimum of ranks can go on with that many."""
    if exp.min_ranks is None:
        return
    if exp.min_ranks > exp.ranks:
        raise SpecError.at(
            "ranks",
            f"the minimum, {exp.min_ranks}, is above the maximum, {exp.ranks}: such as "
            f"ranks=({exp.ranks}, {exp.min_ranks})",
            (exp.min_ranks, exp.ranks),
        )
    try:
        check_elastic(exp)
    except SpecError as error:
        where, pair = error.problems[0], (exp.min_ranks, exp.ranks)
        raise SpecError.at(where.path, f"ranks={pair} may come and go. {where.message}") from None


def as_pair(values: Any) -> Any:
    """Return the fields of an Experiment with ``ranks=(2, 6)`` as ``min_ranks`` and ``ranks``."""
    ranks = values.get("ranks") if isinstance(values, Mapping) else None
    if not isinstance(ranks, (tuple, list)):
        return values
    whole = [one for one in ranks if isinstance(one, int) and not isinstance(one, bool)]
    if len(whole) != 2 or len(ranks) != 2:
        raise SpecError.at(
            "ranks", "must be a number, or the fewest and the most, such as (2, 6)", ranks
        )
    return {**values, "min_ranks": ranks[0], "ranks": ranks[1]}
