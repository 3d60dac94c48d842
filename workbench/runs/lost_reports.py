"""The driver's side of rank/lost_reports.py: it tells the ranks what lost ones had reported."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from workbench.experiment.spec import Experiment
from workbench.rank.lost_reports import publish
from workbench.runs.regrouping import Regrouping

if TYPE_CHECKING:
    from workbench.runs.starting import Starter
    from workbench.store.event_store import Store


class LostReports:
    """Publishes the losses of lost ranks, in a run that writes checkpoints."""

    def __init__(
        self, exp: Experiment, regrouping: Regrouping, starter: Starter, store: Store
    ) -> None:
        self._needed, self._regrouping = exp.checkpoint is not None, regrouping
        self._starter, self._store = starter, store
        self._newest: tuple[int, set[int]] = (0, set())

    def look(self, spared: Collection[int]) -> None:
        """Publish what is new: a team that goes on, before it is told to, or one more rank that it
        goes on without, among the ``spared``.
        """
        team = self._regrouping.team
        if not self._needed or self._newest == (
            now := (team.generation, {*spared} & {*team.members})
        ):
            return
        self._newest = now
        self._starter.drain()
        reports = self._regrouping.past_losses(self._store, spared)
        publish(self._starter.rendezvous, *now, reports)
