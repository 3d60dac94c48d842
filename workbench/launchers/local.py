"""Ranks on this machine: forked from a warm pool that the driver keeps from one run to the next.

Starting four takes some 0.1 s. They map the driver's control block and traces, and end with the
driver however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.launchers.processes.launcher import MeetingPlace
from workbench.launchers.processes.pool import meeting_place, warm_pool
from workbench.launchers.processes.rank_handle import LocalRank, enlist


class Launcher:
    """The warm pool, as a launcher."""

    def __init__(self) -> None:
        self._pool = warm_pool()  # it imports torch while its user does

    @property
    def alive(self) -> bool:
        return self._pool.alive

    @property
    def end(self) -> str:
        return self._pool.end

    def meeting_place(self, ranks: int) -> MeetingPlace:
        """Return a store on this machine's own address."""
        place: MeetingPlace = meeting_place(ranks)
        return place

    def begin(self, ranks: Sequence[int]) -> None:
        """Do nothing: the pool starts with the launcher."""

    def take(self, ranks: Sequence[int]) -> list[LocalRank]:
        """Return a process of the pool for each rank."""
        return enlist(self._pool, ranks)

    def prepare(self, ranks: int) -> None:
        """Have this many processes ready while others run."""
        self._pool.keep(ranks, learn=False)

    def must_be_ours(self, what: str) -> None:
        self._pool.must_be_ours(what)

    def words(self, count: int) -> str:
        return "forked from the warm pool of this machine"

    def bear(self, seconds: float) -> None:
        """Do nothing: they are where the driver is."""

    def collected_by(
        self, drain: Callable[[], object], coarser: Callable[[int, int, int], None]
    ) -> None:
        """Do nothing: they write into the memory that ``drain`` reads."""

    def cut_off(self) -> dict[int, str]:
        return {}

    def facts(self) -> dict[str, str]:
        return {}  # they are where the driver is

    def close(self, ranks: int) -> None:
        """Prepare this many processes for the next run."""
        self._pool.keep(ranks)
