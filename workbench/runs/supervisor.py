"""Watching over the ranks of a run: their reports, their ends, what is overdue, what went wrong."""

from __future__ import annotations

import selectors
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench.common.errors import How, RunTimeout, TooFewRanks, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.launchers.processes import rank_handle
from workbench.launchers.processes.launcher import Launcher
from workbench.rank.samples_taken import merge
from workbench.rank.stack_dumps import Lookout
from workbench.rank.stop_watch import StopWatch
from workbench.rank.unreachable import cut_off
from workbench.runs.conducting import Conductor
from workbench.runs.decide import Action, Do, Moment, decide, to_evict, to_leave_out
from workbench.runs.enough import check_enough, policy_of
from workbench.runs.failure import end_to_come, places_of, seen_to_end, what_went_wrong, where_lost
from workbench.runs.gathering import Gathering
from workbench.runs.host_watch import HostWatch
from workbench.runs.lost_reports import LostReports
from workbench.runs.member_table import Event, Mark
from workbench.runs.outcome import Reports
from workbench.runs.quorum import Quorum
from workbench.runs.rank_control import RankControl
from workbench.runs.regrouping import Regrouping
from workbench.runs.starting import Starter
from workbench.shared_memory.control_block import (
    ABORT,
    LEAVES,
    REGROUP,
    REGROUP_ASKED,
    SPARE,
    STATE,
    TRAINING,
)
from workbench.shared_memory.segments import how_it_ended

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.elastic import Elastic
    from workbench.store.event_store import Store

NOTICE = 0.15  # seconds after a failure: then survivors are told
AFTERMATH = 0.4  # and then they are ended


class Supervisor:
    """Follows a run's ranks until each has reported, or will not any more."""

    def __init__(
        self,
        exp: Experiment,
        ranks: RankControl,
        launcher: Launcher,
        lookout: Lookout,
        store: Store,
        run: Elastic,
        starter: Starter,
    ) -> None:
        """Prepare to follow."""
        self.reports: Reports = {}
        self.trained_from = 0.0  # when all ranks were first in training
        self._exp, self._launcher, self._starter = exp, launcher, starter
        self._ranks, self._control, self._handles = ranks, ranks.control, ranks.handles
        self.regrouping = Regrouping(exp, self._control)
        self._conductor = Conductor(exp, ranks, run)
        self._selector = selectors.DefaultSelector()
        self._lookout, self._store, self._run = lookout, store, run
        self._pids = ranks.pids
        self._late: WorkbenchError | None = None  # what the driver itself has found
        self._refused = False  # has the policy ended the run?
        self._begun = not exp.min_ranks  # has the first team been told?
        self._failed_at: float | None = None  # when ranks had failed, and it cannot recover
        self._table, self._policy = self.regrouping.table, policy_of(exp)
        self._hosts = HostWatch(launcher, ranks.note)
        self._stops = StopWatch(
            self._control, self._pids, lambda: self._members, exp.timeout_ns, self._policy.evicts
        )
        self._lost_reports = LostReports(exp, self.regrouping, starter, store)
        late_s, stopped = self._policy.quorum_s, self._stops.stopped
        self._quorum = Quorum(late_s, self._control, self.regrouping, stopped)

    def follow(self) -> None:
        """Return when every rank has reported, or those that have not will not any more."""
        with self._selector as selector:
            for one in self._handles.values():
                selector.register(one.socket, selectors.EVENT_READ, one)
            self._conductor.begin()
            if self._begun or self._gather():
                while not self._run._called_off and (self._any_missing() or self._goes_on()):
                    self._hear(0.01)
                    if not self._look() or (
                        self._any_failed() and not self._goes_on() and self._has_failed()
                    ):
                        break
            self._hear(0)  # a last word of one that has ended
            self._note_lost(self._lost_first())

    def _hear(self, seconds: float) -> None:
        """Take what ranks report within this time."""
        for key, _ in self._selector.select(seconds):
            self._read_report(key)

    def _look(self) -> bool:
        """Do what is due, and what is due for ranks that come and go. Returns False where a rank
        has been stopped for too long, and the run cannot go on without it.
        """
        self._ranks.thaw_due()
        self._leave_out_late()
        self._conductor.look(self.trained_from)
        self._hosts.look()
        self._lost_reports.look(self.lost(spare=True))
        self._admit()
        if (late := self._stops.look()) and not self._evict_stopped():
            self._late = late
            return False
        if not self.trained_from and self.all_train():
            self.trained_from = time.monotonic()
        return True

    def _has_failed(self) -> bool:
        """Have the ranks of a run that has failed end. Returns whether they have had the time."""
        self._note_lost(self._lost_first())
        # Survivors find out by themselves within 50 ms, and then say what they were in.
        self._failed_at = self._failed_at or time.monotonic()
        seconds = time.monotonic() - self._failed_at
        if seconds > NOTICE:
            self._control.words[ABORT] = 1
            self._control.refresh()
            self._control.open_gates()
        unreaped = end_to_come(self._failures, [*self._handles.values()])
        return seconds > (rank_handle.REAPED if unreaped else AFTERMATH)

    def _gather(self) -> bool:
        """Wait until training can begin, with those that have come. Returns False where too few
        have.
        """
        gathering = Gathering(self._exp, self.regrouping.later)
        table = self._table
        team: Team | None = None
        while team is None and not self._run._called_off:
            self._hear(0.01)
            codes = self._ranks.ended
            ended = {rank: how_it_ended(code) for rank, code in codes.items()}
            try:
                team = gathering.team(table.waiting, ended)
                if team is not None:
                    absent = {*range(self._exp.ranks)} - {*team.members}
                    lost: dict[int, How] = {r: "ended" if r in ended else "silent" for r in absent}
                    check_enough(self._exp, team.members, lost)
            except TooFewRanks as error:
                self._late = error
                return False
        if team is None:
            return False
        late = {rank: f"had not started within {self._exp.grace}" for rank in table.outside}
        for rank in self._pids.keys() - {*team.members} - self.regrouping.later:
            self.regrouping.absent[rank] = ended.get(rank, late.get(rank, ""))
            if rank in ended:
                table.note(Event.FORGET, rank)
                self._ranks.note_lost(rank)
            else:
                self._ranks.note(rank, "absent")
        self.regrouping.team = team
        self._ranks.begin(team, self._exp.iterations)
        table.begin(team)
        for rank in team.members:
            self._handles[rank].order({"team": asdict(team)})
        self._store.metadata |= self.regrouping.metadata()
        self._begun = True
        return True

    @property
    def gone(self) -> list[int]:
        """The ranks that the run went on without."""
        absent = self.regrouping.absent.keys() - {*self._members}
        return sorted({*self.lost(spare=True), *absent})

    @property
    def _members(self) -> tuple[int, ...]:
        return self.regrouping.team.members

    def all_train(self) -> bool:
        """Return whether every rank has begun to train."""
        return all(self._control.rank_word(rank, STATE) >= TRAINING for rank in self._members)

    def lost(self, *, spare: bool) -> dict[int, int]:
        """Return the ranks that ended without a report, and how: those to spare, or the others."""
        return {
            rank: code
            for rank, code in sorted(self._ranks.ended.items())
            if rank not in self.reports
            and bool(rank not in self._members or self._control.rank_word(rank, SPARE)) == spare
        }

    def _lost_first(self) -> set[int]:
        """Return the lost ranks; once one has failed, only those that others saw end: these may
        report it before its exit code is here, and further ones may end because of the first.
        """
        lost = {*self.lost(spare=False)}
        return lost if self._failed_at is None else lost & seen_to_end(self._failures)

    def error(self, now: pl.DataFrame) -> WorkbenchError | None:
        """Return the error of the run, the cause before its consequences; None: it went well."""
        if self._run._called_off:
            return WorkbenchError(self._run._called_off)
        if self._late is not None:
            return self._late
        lost = self.lost(spare=False)
        if away := self._hosts.error(lost, self._exp.timeout_ns * 1e-9):
            return away
        if lost and not self._launcher.alive:
            return WorkbenchError(f"{self._launcher.end}, and the ranks with it")
        where = where_lost(self._control, lost, self._exp.iterations)
        reports = {**self._failures, **self._table.left}
        error = what_went_wrong(lost, reports, self._pids, where, now, self.regrouping.lost_last)
        error = error and self.regrouping.named(self._hosts.named(error, self.reports))
        silent = [one for one in self._handles.values() if one.rank not in self.reports]
        if isinstance(error, RunTimeout) and (
            places := places_of(silent, self._lookout, self._exp)
        ):
            return RunTimeout("\n  ".join([str(error), *places]))
        return error

    def _any_missing(self) -> bool:
        ended = self._ranks.ended
        return any(rank not in self.reports and rank not in ended for rank in self._members)

    @property
    def _failures(self) -> dict[int, dict[str, Any]]:
        """The reports of ranks that failed."""
        return {rank: one for rank, (one, _) in sorted(self.reports.items()) if "failed" in one}

    def _any_failed(self) -> bool:
        return bool(self._failures or self.lost(spare=False) or self._table.left)

    # -- recovery --

    def _goes_on(self) -> bool:
        """Return whether the run recovers from ranks that it has lost; do what is next for that."""
        while not self._refused:
            for action in decide(self._table, self._policy, self._moment()):
                goes_on = self._carry_out(action)
            if action.is_last:
                return goes_on
        return False

    def _moment(self) -> Moment:
        """Return what is seen now."""
        regrouping = self.regrouping
        return Moment(
            self._members,
            self.lost(spare=False),
            self.lost(spare=True),
            {rank: one for rank, (one, _) in self.reports.items()},
            failed=bool(self._failures),
            timed_out=self._late is not None,
            called_off=regrouping.called_off,
            meets=bool(self._control.words[REGROUP] > 0),
            meeting=regrouping.meeting,
            waited=regrouping.seconds,
            late=self._quorum.late,
            stopped=self._stops.stopped,
            cut_off=lambda ranks: cut_off(self._control, ranks),
        )

    def _carry_out(self, action: Action) -> bool:
        """Do what was decided. Returns whether the run goes on."""
        what, ranks, lost = action
        if isinstance(what, Event):
            self._happens(what, ranks)
        elif what is Do.CALL_OFF:
            self.regrouping.call_off()
        elif what is Do.MEET:
            self.regrouping.begin_to_meet()
        elif what in (Do.SPARE, Do.ALL_DONE):
            self.regrouping.all_done(ranks, spare=what is Do.SPARE)
        elif what is Do.FORM:
            return self._regroup(lost, ranks)
        elif what is Do.TIME_OUT:
            self._late = self._late or self.regrouping.timed_out(ranks)
        return what not in (Do.TIME_OUT, Do.END)

    def _happens(self, event: Event, ranks: Sequence[int]) -> None:
        """Do something with ranks, each of them after the other."""
        for rank in ranks:
            if event is Event.EVICT:
                self.regrouping.call_off()  # before: one that runs again must not train on
            self._table.note(event, rank)
            if event is Event.NOTE_END:
                self._ranks.note_lost(rank)
            elif event is Event.LEAVE_OUT:
                self._ranks.note(rank, "left out")
                if self._quorum.lags(rank):
                    self._table.note(Event.LAG, rank)
                self.regrouping.call_off()
            elif event is Event.EVICT:
                corrupt = Mark.CORRUPT in self._table.row(rank).marks
                self._ranks.evict(rank, "corrupt" if corrupt else "evicted")
            elif event is Event.SEND_OFF:  # all have left their group
                self._handles[rank].order({"team": None})
            elif event is Event.ASK:
                self.reports.pop(rank, None)
                self._handles[rank].order({"report": True})

    def _leave_out_late(self) -> None:
        """Have the others go on without ranks that do not answer."""
        if late := self._quorum.late():
            lost = self.lost(spare=False)
            ranks = to_leave_out(self._table, self._policy, self._members, late, lost)
            self._happens(Event.LEAVE_OUT, ranks)

    def _evict_stopped(self) -> bool:
        """End ranks that are stopped, in a run that goes on without them. Returns whether there are
        any.
        """
        late = self._table.marked(Mark.LATE)
        stopped = [rank for rank in self._stops.stopped() if rank not in late]
        self._happens(Event.EVICT, to_evict(self._table, self._policy, stopped))
        return bool(stopped) and self._policy.recovers

    def _note_lost(self, lost: Collection[int]) -> None:
        """Record the ends of these ranks, each once."""
        self._happens(Event.NOTE_END, sorted({*lost} - self._table.marked(Mark.NOTED)))

    def _regroup(self, lost: Mapping[int, int], done: Sequence[int]) -> bool:
        """Have the next team go on. Returns False where the policy ends the run instead."""
        stays, waiting = {*self._table.left}, self._table.waiting
        try:
            team = self.regrouping.next_team(lost, done)
        except WorkbenchError as error:
            self._late, team = error, None
        if team is None:
            self._refused = True
            return False
        for rank in team.fresh:
            self.reports.pop(rank, None)
        self._store.metadata |= self.regrouping.metadata()
        self._lost_reports.look(())
        self._ranks.begin(team, self._exp.iterations)
        joining = {*team.fresh} & waiting
        fields, stays = asdict(team), (stays & {*team.members} - {*team.fresh}) | joining
        for one in self._handles.values():
            if one.rank in stays:
                one.order({"team": fields})
        self._start_ranks([rank for rank in team.fresh if rank not in joining], team)
        return True

    def _start_ranks(self, ranks: Sequence[int], team: Team | None) -> None:
        for one in self._starter.start(ranks, team):
            self._pids[one.rank] = one.pid
            self.reports.pop(one.rank, None)
            self._selector.register(one.socket, selectors.EVENT_READ, one)

    def _admit(self) -> None:
        """Start the ranks that are to join; once they are there, ask the others to form a group
        with them at their next boundary. The same for a group without a rank that was told to go.
        """
        table, words = self._table, self._control.words
        if newcomers := table.expect():
            self._start_ranks(newcomers, None)
        for rank in table.outside:
            if self._handles[rank].code is not None:
                table.note(Event.FORGET, rank)
                self._ranks.note_lost(rank)
        in_time = [rank for rank in table.marked(Mark.LAGS) if not self._quorum.lags(rank)]
        table.note(Event.ANSWER, *in_time)
        leaves = any(self._control.rank_word(rank, LEAVES) for rank in self._members)
        change = table.waiting or leaves
        if change and not words[REGROUP] and not self.regrouping.called_off:
            words[REGROUP] = REGROUP_ASKED

    def _read_report(self, key: selectors.SelectorKey) -> None:
        replaced = self._handles[key.data.rank] is not key.data
        messages = None if replaced else key.data.hear()
        if messages is None:  # its end is told by the launcher, with its cause
            self._selector.unregister(key.fileobj)
        for message in messages or ():
            self._take(key.data.rank, message)

    def _take(self, rank: int, message: tuple[dict[str, Any], bytearray]) -> None:
        body = message[0]
        if "told" in body:
            self._store.metadata |= merge(self._store.metadata, body["told"])
        elif "left" in body or "arrived" in body:
            came = "arrived" in body or self._table.leave(rank, body)
            if "arrived" in body:
                self._table.note(Event.ARRIVE, rank)
            if came and self._begun:
                self._ranks.note(rank, "arrived")
        else:
            self.reports[rank] = message
