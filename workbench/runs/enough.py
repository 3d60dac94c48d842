"""The ranks that a run needs: their number and roles, and its policy where some are lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from workbench.common.errors import How, TooFewRanks
from workbench.common.units import counted
from workbench.experiment.configure import config_of
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import hook
from workbench.launchers.processes import rank_handle
from workbench.rank.unreachable import evicts_unreachable, leaves_out
from workbench.runs.decide import Policy

ROLES = "missing_role"  # of a strategy: the role that none of these ranks plays


def check_enough(exp: Experiment, members: Collection[int], lost: Mapping[int, How]) -> None:
    """Raise TooFewRanks where these ranks cannot go on by themselves. ``lost``: the others, and how
    each ended.
    """
    least = exp.min_ranks or 1
    named = ", ".join(f"rank {rank} ({how})" for rank, how in lost.items())
    if len(members) < least:
        raise TooFewRanks(
            f"{counted(len(members), 'rank')} can go on, and the run needs {least} "
            f"(ranks=({least}, {exp.ranks})). Lost: {named}",
            min(lost),
            how=lost[min(lost)],
        )
    if role := missing_role(exp, members):
        played = [rank for rank in lost if missing_role(exp, {*members, rank}) != role]
        rank = min(played or lost)
        raise TooFewRanks(
            f"every {role} has ended, and without one no rank can train. Lost: {named}. A run goes "
            "on without one of several; recovery='replace' starts a new one",
            rank,
            how=lost[rank],
        )


def has_roles(exp: Experiment) -> bool:
    """Return whether the ranks of the experiment's strategy play different roles."""
    return hook(exp.strategy, ROLES) is not None


def missing_role(exp: Experiment, members: Collection[int]) -> str:
    """Return the role of the experiment's strategy that none of these ranks plays; "" where each is
    played, or all ranks do the same.
    """
    missing = hook(exp.strategy, ROLES)
    return "" if missing is None else missing(config_of(exp), exp.ranks, members)


def policy_of(exp: Experiment) -> Policy:
    """Return what a run does about losses, by its experiment."""
    return Policy(
        exp.recovers,
        evicts_unreachable(exp),
        exp.timeout_ns * 1e-9,
        exp.quorum_timeout_ns * 1e-9 if leaves_out(exp) else 0.0,
        exp.min_ranks or 1,
        rank_handle.GONE,
        lambda: exp.recovery != "restart" and has_roles(exp),
    )
