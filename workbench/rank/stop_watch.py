"""Watches a run from its driver: a stopped rank is named, whatever the others wait in.

While groups are made, at the start above all, a rank waits in torch's store or in Gloo, which know
nothing of processes. The driver does: it sees which ranks are stopped, and that no rank makes
progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from workbench.common.errors import RunTimeout, timed_out
from workbench.shared_memory.control_block import FROZEN_BY_USER, ITERATION, STATE, Control
from workbench.shared_memory.segments import process_state

JOINING = 60.0  # seconds that ranks have to form a group on a busy machine, whatever ``timeout`` is
LOOK = 0.1  # seconds from one look to the next
SLACK = 0.5  # seconds more than a rank's own wait may last: it knows better what it waits in


class StopWatch:
    """Looks now and then at the ranks (rank -> process) of a run that train.

    ``users_too``: a rank that the user has frozen counts as stopped.
    """

    def __init__(
        self,
        control: Control,
        pids: Mapping[int, int],
        members: Callable[[], Iterable[int]],
        timeout_ns: int,
        users_too: bool,
    ) -> None:
        self._control, self._pids, self._members = control, pids, members
        self._timeout, self._users_too = timeout_ns * 1e-9, users_too
        self._stopped: dict[int, float] = {}  # rank -> since when
        self._due = self._moved = time.monotonic()
        self._places: list[tuple[int, int]] = []  # where they were

    def look(self) -> RunTimeout | None:
        """Return the error once a rank has been stopped for ``timeout`` and no other progressed."""
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + LOOK
        places = [self._place(rank) for rank in self._members()]
        if places != self._places or self._control.clocks_stand():
            self._places, self._moved = places, now
        stopped = self.stopped()
        self._stopped = {rank: self._stopped.get(rank, now) for rank in stopped}
        if not stopped:
            return None
        lasted = now - max(self._moved, min(self._stopped.values()))
        return self._error(lasted) if lasted > self._timeout + SLACK else None

    def stopped(self) -> list[int]:
        """Return the ranks that are stopped (SIGSTOP) and for which no rank waits on purpose."""
        word, free = self._control.rank_word, self._users_too
        return [
            rank
            for rank in self._members()
            if process_state(self._pids[rank]) == "T" and (free or not word(rank, FROZEN_BY_USER))
        ]

    def _place(self, rank: int) -> tuple[int, int]:
        return self._control.rank_word(rank, STATE), self._control.rank_word(rank, ITERATION)

    def _error(self, seconds: float) -> RunTimeout:
        """Return the error that names the stopped ranks and those that wait for them."""
        stopped = "\n  ".join(
            f"rank {rank} (process {self._pids[rank]}) is stopped (SIGSTOP)"
            for rank in self._stopped
        )
        pids = " ".join(str(self._pids[rank]) for rank in self._stopped)
        return RunTimeout(
            f"no progress for {seconds:.1f} s: no rank has come to its next iteration, or to its "
            f"end\n  {stopped}\nWake it (kill -CONT {pids}). "
            f"{timed_out(self._timeout)}",
            min(self._stopped),
            how="stopped",
        )
