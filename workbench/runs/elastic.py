"""Ranks that come and go while a run goes on, by its user's hand or because others were lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Rank, checked
from workbench.common.errors import SpecError
from workbench.experiment.elastic_checks import check_elastic
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.launchers.processes.launcher import Launcher, RankHandle
from workbench.recording.events import CODE
from workbench.runs.failure import how_of
from workbench.runs.steering import Steering
from workbench.shared_memory.control_block import (
    ASKED,
    CORRUPT,
    ITERATION,
    LEAVES,
    LOADS,
    READY,
    REGROUP,
    SPARE,
    STATE,
    THAW_AT,
    WAITS,
)

if TYPE_CHECKING:
    from workbench.rank.stack_dumps import Lookout
    from workbench.runs.regrouping import Regrouping


class Elastic(Steering):
    """The part of ``Run`` that starts ranks, adds some and takes some away."""

    experiment: Experiment
    _called_off = ""  # why the run ends now, whatever its ranks do
    _launcher: Launcher
    _lookout: Lookout
    _rendezvous: Any  # the store where the ranks meet
    _orders: dict[str, Any]

    # -- by the user --

    def add_rank(self) -> int:
        """Have one more rank join, and return its number: the lowest that is free. It is received
        before an iteration, with the same parameters and optimizer as the others.

        Raises SpecError where all ``ranks`` of the experiment train already, where the run is over,
        or where its recovery policy or its strategy does not let ranks come and go.
        """
        regrouping, exp = self._changing("add_rank()"), self.experiment
        rank = regrouping.table.want(exp.ranks, regrouping.team.members)
        if rank is None:
            raise SpecError(
                f"add_rank(): all {exp.ranks} ranks of the run train, or are about to. Start it "
                f"with room for more: ranks=({exp.min_ranks or 1}, {exp.ranks + 1})"
            )
        self._fault("add", rank)
        return rank

    def _join(self, rank: int) -> None:
        """Have this rank join, unless it trains, or is about to."""
        regrouping, exp = self._regrouping, self.experiment
        members = regrouping.team.members
        if regrouping.table.want(exp.ranks, members, only=rank) is not None:
            self._fault("join", rank)

    @checked
    def remove_rank(self, rank: Rank) -> None:
        """Have ``rank`` leave for good before its next iteration; the others go on without it.

        Raises SpecError if it does not train, if fewer than the experiment's minimum would be left,
        or where the run's recovery policy or its strategy does not let ranks come and go.
        """
        regrouping, exp = self._changing(f"remove_rank({rank})"), self.experiment
        members, least = regrouping.team.members, exp.min_ranks or 1
        if rank not in members:
            raise SpecError(f"remove_rank({rank}): it does not train; ranks {[*members]} do")
        if not regrouping.table.tell(rank, members, least):
            raise SpecError(
                f"remove_rank({rank}): {len(members)} ranks train or are about to leave, and the "
                f"run needs {least}. Add one first (add_rank), or end it (stop)"
            )
        self._fault("remove", rank)
        self._signal(rank, signal.SIGTERM)

    def _changing(self, call: str) -> Regrouping:
        """Return what is known of the teams. Raises SpecError where ranks cannot come and go."""
        try:
            check_elastic(self.experiment)
        except SpecError as error:
            raise error.within("Experiment") from None
        if self._is_over():
            raise SpecError(f"{call}: the run is over")
        return self._regrouping

    def _is_over(self) -> bool:
        raise NotImplementedError

    @property
    def _regrouping(self) -> Regrouping:
        raise NotImplementedError

    # -- processes --

    def _order(self, handle: RankHandle, team: Team | None) -> None:
        """Have a fresh process train as a member of a team; None: wait until there is one."""
        order = {"team": team and asdict(team), **self._orders}
        self._group.begin(handle, order, fds=[self._lookout.fd])

    def _start(self, ranks: Sequence[int], team: Team | None) -> Sequence[RankHandle]:
        """Start fresh ranks, each with a new trace, instead of those that ended."""
        if not ranks:
            return []
        handles: Sequence[RankHandle] = self._group.take(ranks)
        for one in handles:
            rank = one.rank
            self._note_frozen(rank, False)
            self.pids[rank] = one.pid
            for word in (STATE, READY, SPARE, LOADS, CORRUPT, WAITS, LEAVES, ASKED, THAW_AT):
                self._control.set_rank(rank, word, 0)
            self._order(one, team)
        self._launcher.prepare(1)
        return handles

    def _begin(self, team: Team) -> None:
        """Note that a team goes on, and no rank waits any more for one that is not in it."""
        with self._lock:
            self._group.recorder.generation = team.generation
            self._control.words[REGROUP] = 0
            for rank in {*self.pids} - {*team.members}:
                self._control.set_rank(rank, ITERATION, self.experiment.iterations)
                self._note_frozen(rank, False)

    def _thaw_due(self) -> None:
        """Wake ranks that the experiment has frozen (``wb.Freeze``) when their time has come.
        Clocks stand for a frozen rank no longer than it lives.
        """
        for rank in [*self.pids]:
            if self._handle(rank).code is not None:
                self._note_frozen(rank, False)
                continue
            if 0 < self._control.rank_word(rank, THAW_AT) <= time.monotonic_ns():
                self._continue(rank)

    def _note(self, rank: int, what: str, host: str = "") -> None:
        """Record what the driver has noticed of a rank, or of its host."""
        with self._lock:
            self._group.recorder.mark(CODE["detect"], what, lane="driver", peer=rank, group=host)

    def _note_lost(self, rank: int) -> None:
        """Record that a rank's end was noticed, and how it ended."""
        self._note(rank, how_of(self._handle(rank).code or 0))
