"""Ranks that live but cannot be reached, and whether the policy of a run evicts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from workbench.user_code import source

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.shared_memory.control_block import Control

FLAG = "EVICTS_UNREACHABLE"  # of a policy, see wait.py
LEAVES_OUT = "LEAVES_OUT"  # see quorum.py


def evicts_unreachable(exp: Experiment) -> bool:
    """Return whether ranks that are frozen or cut off for ``timeout`` are evicted, also where the
    user did it: for other policies the clocks stand still while the user freezes a rank, and a cut
    link ends the run.
    """
    return _defines(exp, FLAG)


def leaves_out(exp: Experiment) -> bool:
    """Return whether a rank that is late is left out until it answers."""
    return _defines(exp, LEAVES_OUT)


def _defines(exp: Experiment, flag: str) -> bool:
    code = source.text_of("recovery", exp.recovery)
    return source.constant(code, flag, source.shown(exp.recovery)) is True


def cut_off(control: Control, members: Iterable[int]) -> list[int]:
    """Return the members to go on without, so that no link between the others is cut.

    Of a partition the smaller part goes, of equal parts the one with the higher ranks: each time
    the rank that has most cut links.
    """
    left, result = sorted(members), list[int]()
    while True:
        cuts = {
            a: sum(control.link(a, b).down + control.link(b, a).down for b in left if b != a)
            for a in left
        }
        worst = max(left, key=lambda rank: (cuts[rank], rank), default=-1)
        if worst < 0 or not cuts[worst]:
            return result
        left.remove(worst)
        result.append(worst)
