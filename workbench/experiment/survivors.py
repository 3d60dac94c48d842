"""Checks that an experiment goes on from what survivors of a lost rank have in memory.

A recovery policy that needs this says so at the top of its file: ``FROM_MEMORY = "any"`` goes on
with any number of ranks, "replaced" with new ranks in the places of the lost ones.
"""

from __future__ import annotations

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.configure import config_of
from workbench.experiment.fields import Fields
from workbench.experiment.traits import hook, is_by_name, known_traits, traits_of, with_traits
from workbench.user_code import source
from workbench.user_code.source import Source

RANKS = ("replaced", "any")


def ranks_of(recovery: str | Source) -> str:
    """Return with which ranks a policy goes on from memory; "" for one that does not say."""
    code = source.text_of("recovery", recovery)
    ranks = source.constant(code, "FROM_MEMORY", source.shown(recovery))
    if ranks not in (None, *RANKS):
        raise SpecError.at("recovery", "FROM_MEMORY of its file", ranks, allowed=RANKS)
    return ranks or ""


def check_recovers(exp: Fields, ranks: str) -> None:
    """Raise SpecError unless the strategy goes on from memory with these ``ranks`` (RANKS)."""
    enough = RANKS[RANKS.index(ranks) :]
    recovers = traits_of(exp.strategy).recovers
    if recovers in enough:
        return
    fitting = with_traits(lambda traits: traits.recovers in enough)
    others = "'replace' or recovery=" if recovers == "replaced" else ""
    own = ". One of your own goes on where its traits say so: Traits(recovers='any')"
    raise SpecError.at(
        "recovery",
        f"{source.shown(exp.recovery)} goes on with what survivors have in memory, and with "
        f"strategy {source.shown(exp.strategy)} a lost rank takes something along that no "
        f"other has. Take recovery={others}'restart', or one of the strategies "
        f"{listed(fitting)}{'' if is_by_name(exp.strategy) else own}",
        exp.recovery,
    )


def check_from_memory(exp: Fields, ranks: str) -> None:
    """Raise SpecError unless the experiment goes on from memory with these ``ranks``, "any" or
    "replaced".
    """
    check_recovers(exp, ranks)
    if is_by_name(exp.strategy):
        check_survivors(exp, ranks)


def check_survivors(exp: Fields, ranks: str) -> None:
    """Run the strategy's own check of options with which ranks must not be lost."""
    if check := hook(exp.strategy, "check_survivors"):
        try:
            check(config_of(exp), ranks == "replaced")
        except SpecError as error:
            raise error.within("", "options") from None


def comes_and_goes(recovery: object, strategy: object) -> bool:
    """Return whether ranks may join and leave a run, as far as the names in its spec tell."""
    if recovery in ("abort", "restart") or not isinstance(strategy, str):
        return False
    traits = known_traits(strategy)
    return traits.recovers == "any" and traits.plays != "only"  # there each rank has a role
