"""Experiments that lose nothing with a rank, because the others hold all that it trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.checks import configure
from workbench.experiment.environment_checks import ONLY_PLAYS
from workbench.user_code import source
from workbench.user_code.source import Source, split_path

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

REPLACED_ONLY = "REPLACED_ONLY"  # of a strategy: the others cannot go on without a lost rank
CHECK = "check_survivors"  # of a strategy: raises SpecError for options that do not fit


def check_replicas(exp: Experiment, *, same_ranks: bool) -> None:
    """Raise SpecError unless any survivor of the experiment has all that it trains. ``same_ranks``:
    the lost ranks are replaced.
    """
    fitting = [
        name
        for name in source.available("strategies")
        if _defines(name, CHECK) and (same_ranks or not _defines(name, REPLACED_ONLY))
    ]
    others = "'replace' or recovery=" if _defines(exp.strategy, REPLACED_ONLY) else ""
    if exp.strategy not in fitting:
        raise SpecError.at(
            "recovery",
            f"{source.shown(exp.recovery)} goes on with what survivors have in memory, and with "
            f"strategy {source.shown(exp.strategy)} a lost rank takes something along that no "
            f"other has. Take recovery={others}'restart', or one of the strategies "
            f"{listed(fitting)}",
            exp.recovery,
        )
    config = configure(source.load("strategies", exp.strategy, "Config"), exp.options)
    try:
        source.load("strategies", exp.strategy, CHECK)(config, same_ranks)
    except SpecError as error:
        raise error.within("", "options") from None


def comes_and_goes(recovery: object, strategy: object) -> bool:
    """Return whether ranks may join and leave a run, as far as the names in its spec tell."""
    return (
        recovery not in ("abort", "restart")
        and isinstance(strategy, str)
        and _defines(strategy, CHECK)
        and not _defines(strategy, REPLACED_ONLY)
        and not _defines(strategy, ONLY_PLAYS)  # each rank has a role from the beginning on
    )


def _defines(strategy: str | Source, name: str) -> bool:
    """Return whether one of our strategies has this at the top of its file."""
    if not isinstance(strategy, str) or split_path(strategy):
        return False
    return name in source.names_defined(source.text_of("strategies", strategy), strategy)
