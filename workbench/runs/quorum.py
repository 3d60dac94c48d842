"""Members of a run that do not answer, and are left out until they do (recovery/quorum.py).

waits    a rank waits in a collective for longer than ``quorum_timeout``: it names one that has
         not come there (the word LATE)
lags     it has come, and what it sends over an emulated link is on its way for as long in one
         collective: its receiver names it (LATE, and LAG)
stopped  a member's process is stopped for as long
missing  a member does not leave its group for as long, after the others were told to
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from workbench.runs.member_table import Mark
from workbench.runs.regrouping import Regrouping
from workbench.shared_memory.control_block import LAG, LATE, QUORUM, Control
from workbench.shared_memory.late_words import Lag, lag_of, late_of

FRESH_S = 0.25  # how old what a rank says may be: it says it again while it waits


class Quorum:
    """Finds the members that are late."""

    def __init__(
        self,
        bound: float,
        control: Control,
        regrouping: Regrouping,
        stopped: Callable[[], Collection[int]],
    ) -> None:
        """Prepare. ``bound``: seconds, 0: no rank is ever late. ``stopped``: returns the members
        whose process is stopped.
        """
        self._bound, self._control, self._regrouping = bound, control, regrouping
        self._stopped = stopped
        self._since: dict[int, float] = {}  # when a member was first seen stopped
        self._lags: dict[int, Lag] = {}  # of ranks that were late: what was waited for
        control.words[QUORUM] = round(bound * 1e9)

    def late(self) -> set[int] | None:
        """Return the members that are stopped, or waited for, for too long; None: none ever is, or
        the user holds the ranks.
        """
        if not self._bound:
            return None
        if self._control.clocks_stand():
            self._since = {}
            return None
        moment = time.monotonic()
        self._since = {rank: self._since.get(rank, moment) for rank in self._stopped()}
        stopped = {rank for rank, since in self._since.items() if moment - since > self._bound}
        return stopped | self._named(self._regrouping.team.members)

    def _named(self, members: Collection[int]) -> set[int]:
        """Return the ranks that others wait for at this moment."""
        generation, result = self._regrouping.team.generation, set()
        silent = self._regrouping.table.marked(Mark.LATE)
        for rank in members:
            word = self._control.rank_word(rank, LATE)
            late = late_of(word, generation, FRESH_S)
            if late is not None and rank not in silent:
                result.add(late)
                lag = lag_of(self._control.rank_word(rank, LAG))
                if lag is not None and lag.rank == late:
                    self._lags[late] = lag
        return result

    def lags(self, rank: int) -> bool:
        """Return whether a link of a rank that was late, to a member of the team, is too slow now:
        whether an all-reduce with twice those messages would be late.
        """
        if (lag := self._lags.get(rank)) is None:
            return False
        for member in self._regrouping.team.members:
            link = self._control.link(rank, member)
            ns = 2 * lag.messages * link.latency_ns + lag.nbytes * link.ps_per_byte // 1000
            if member != rank and (link.down or ns > self._bound * 1e9):
                return True
        del self._lags[rank]
        return False
