"""Members of a run that do not answer, and are left out until they do (recovery/quorum.py).

waits    a rank waits in a collective for longer than ``quorum_timeout``: it names one that has
         not come there (the word LATE)
stopped  a member's process is stopped for as long
missing  a member does not leave its group for as long, after the others were told to
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from workbench.experiment.spec import Experiment
from workbench.rank.unreachable import leaves_out
from workbench.runs.regrouping import Regrouping
from workbench.shared_memory.control_block import LATE, QUORUM, Control

FRESH_S = 0.25  # how old what a rank says may be: it says it again while it waits


class Quorum:
    """Finds the members to leave out."""

    def __init__(
        self,
        exp: Experiment,
        control: Control,
        regrouping: Regrouping,
        stopped: Callable[[], Collection[int]],
    ) -> None:
        """Prepare. ``stopped``: returns the members whose process is stopped."""
        self._bound = exp.quorum_timeout_ns * 1e-9 if leaves_out(exp) else 0.0
        self._least = exp.min_ranks or 1
        self._control, self._regrouping, self._stopped = control, regrouping, stopped
        self._since: dict[int, float] = {}  # when a member was first seen stopped
        control.words[QUORUM] = round(self._bound * 1e9)

    def late(self, missing: Collection[int] = (), lost: Collection[int] = ()) -> list[int]:
        """Return the members to leave out now, as many as can be spared. ``missing``: those that
        have not left their group yet; ``lost``: those that have ended.
        """
        if not self._bound:
            return []
        moment, regrouping = time.monotonic(), self._regrouping
        members = regrouping.team.members
        if self._control.clocks_stand():
            self._since = {}
            return []
        self._since = {rank: self._since.get(rank, moment) for rank in self._stopped()}
        late = {rank for rank, since in self._since.items() if moment - since > self._bound}
        late |= self._named(members)
        if missing and regrouping.seconds() > self._bound:
            late |= {*missing}
        present = {*members} - regrouping.out - {*lost}
        return sorted(late & present)[: max(0, len(present) - self._least)]

    def _named(self, members: Collection[int]) -> set[int]:
        """Return the ranks that others wait for at this moment."""
        generation, result = self._regrouping.team.generation, set()
        for rank in members:
            word = self._control.rank_word(rank, LATE)
            late = late_of(word, generation, FRESH_S)
            if late is not None and rank not in self._regrouping.out:
                result.add(late)
        return result


def late_of(word: int, generation: int, seconds: float) -> int | None:
    """Return which rank is late by that word; None: no rank in this generation, or it was said
    longer than ``seconds`` ago.
    """
    old = time.monotonic_ns() // 1_000_000 - (word >> 20) > seconds * 1000
    return None if not word or old or (word >> 10 & 1023) != generation & 1023 else word & 1023
