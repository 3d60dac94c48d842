"""The processes of a run: the first ones, and those that take the place of ranks that were lost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench import native
from workbench.experiment.faults import not_there
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.launchers.processes.launcher import Launcher, RankHandle
from workbench.rank.stack_dumps import Lookout
from workbench.runs.launching import costs_of, note_choice, orders_of, threads_of
from workbench.runs.rank_control import RankControl
from workbench.shared_memory.control_block import (
    ASKED,
    CORRUPT,
    LEAVES,
    LOADS,
    READY,
    SPARE,
    STATE,
    THAW_AT,
    WAITS,
)

if TYPE_CHECKING:
    from workbench.store.event_store import Store


class Starter:
    """Starts the ranks of a run. ``rendezvous``: the store where they meet."""

    def __init__(
        self, exp: Experiment, launcher: Launcher, ranks: RankControl, lookout: Lookout
    ) -> None:
        self._exp, self._launcher, self._ranks, self._lookout = exp, launcher, ranks, lookout
        self._orders: dict[str, Any] = {}
        self.rendezvous: Any = None

    def begin(self, store: Store, prepared: Mapping[str, str]) -> None:
        """Start the first ranks, and note in the run's ``store`` how."""
        exp, launcher, group = self._exp, self._launcher, self._ranks.group
        launcher.bear(exp.timeout_ns * 1e-9)
        launcher.collected_by(group.collector.drain, store.count_folded)
        self.rendezvous = launcher.meeting_place(exp.ranks)
        handles = group.take(range(exp.ranks))
        costs = costs_of(exp)
        self._orders = orders_of(exp, self.rendezvous, prepared, costs)
        store.metadata |= {"cores": str(os.cpu_count() or 1), "threads": str(threads_of(exp))}
        store.metadata["mover"] = native.name()
        fail, later = not_there(exp.faults)
        for one in handles:
            if one.rank not in fail | later:  # else it waits, until it is ended or replaced
                self._order(one, None if exp.min_ranks else Team(0, tuple(range(exp.ranks))))
        store.metadata |= launcher.facts()  # with the first order clocks are compared
        if exp.recovers:
            launcher.prepare(1)
        note_choice(exp, costs, store)

    def drain(self) -> None:
        """Have the store know all that ranks have recorded by now."""
        self._ranks.group.collector.drain()

    def start(self, ranks: Sequence[int], team: Team | None) -> Sequence[RankHandle]:
        """Start fresh ranks, each with a new trace, instead of those that ended: of a team, or for
        the next one.
        """
        if not ranks:
            return []
        handles: Sequence[RankHandle] = self._ranks.group.take(ranks)
        for one in handles:
            self._ranks.note_frozen(one.rank, False)
            for word in (STATE, READY, SPARE, LOADS, CORRUPT, WAITS, LEAVES, ASKED, THAW_AT):
                self._ranks.control.set_rank(one.rank, word, 0)
            self._order(one, team)
        self._launcher.prepare(1)
        return handles

    def _order(self, handle: RankHandle, team: Team | None) -> None:
        """Have a fresh process train as a member of a team; None: wait until there is one."""
        order = {"team": team and asdict(team), **self._orders}
        self._ranks.group.begin(handle, order, fds=[self._lookout.fd])
