"""Ranks that come and go while a run goes on, by its user's hand or because others were lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from workbench.common.arguments import Rank, checked
from workbench.common.errors import SpecError
from workbench.experiment.elastic_checks import check_elastic
from workbench.experiment.spec import Experiment
from workbench.runs.steering import Steering

if TYPE_CHECKING:
    from workbench.runs.regrouping import Regrouping


class Elastic(Steering):
    """The part of ``Run`` that adds ranks and takes some away."""

    experiment: Experiment
    _called_off = ""  # why the run ends now, whatever its ranks do

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
        self._ranks.fault("add", rank)
        return rank

    def _join(self, rank: int) -> None:
        """Have this rank join, unless it trains, or is about to."""
        regrouping, exp = self._regrouping, self.experiment
        members = regrouping.team.members
        if regrouping.table.want(exp.ranks, members, only=rank) is not None:
            self._ranks.fault("join", rank)

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
        self._ranks.fault("remove", rank)
        self._ranks.signal(rank, signal.SIGTERM)

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
