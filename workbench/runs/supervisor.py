"""Watching over the ranks of a run: their reports, their ends, what is overdue, what went wrong."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench.common.errors import How, RunTimeout, TooFewRanks, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.launchers.processes import rank_handle
from workbench.launchers.processes.launcher import Launcher, RankHandle
from workbench.rank.samples_taken import merge
from workbench.rank.stack_dumps import Lookout
from workbench.rank.stop_watch import StopWatch
from workbench.rank.unreachable import cut_off
from workbench.runs.conducting import Conductor
from workbench.runs.enough import check_enough
from workbench.runs.failure import end_to_come, places_of, seen_to_end, what_went_wrong, where_lost
from workbench.runs.gathering import Gathering
from workbench.runs.host_watch import HostWatch
from workbench.runs.lost_reports import LostReports
from workbench.runs.outcome import Reports
from workbench.runs.quorum import Quorum
from workbench.runs.regrouping import Regrouping
from workbench.shared_memory.control_block import (
    ABORT,
    LEAVES,
    LOST,
    REGROUP,
    REGROUP_ASKED,
    SPARE,
    STATE,
    TRAINING,
    Control,
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
        control: Control,
        handles: Sequence[RankHandle],
        launcher: Launcher,
        lookout: Lookout,
        store: Store,
        run: Elastic,
        start: Callable[[Sequence[int], Team | None], Sequence[RankHandle]],
    ) -> None:
        """Prepare to follow. ``start``: starts fresh ranks, of a team or for the next one."""
        self.reports: Reports = {}
        self.trained_from = 0.0  # when all ranks were first in training
        self._exp, self._control, self._launcher = exp, control, launcher
        self._handles = list(handles)
        self.regrouping = Regrouping(exp, control)
        self._conductor = Conductor(exp, control, run)
        self._start = start
        self._selector = selectors.DefaultSelector()
        self._lookout, self._store, self._run = lookout, store, run
        self._pids = {one.rank: one.pid for one in handles}
        self._late: WorkbenchError | None = None  # what the driver itself has found
        self._noted = set[int]()  # lost ranks that are in the record
        self._refused = False  # has the policy ended the run?
        self._begun = not exp.min_ranks  # has the first team been told?
        evicts = self.regrouping.evicts
        self._hosts = HostWatch(launcher, run._note)
        self._stops = StopWatch(control, self._pids, lambda: self._members, exp.timeout_ns, evicts)
        self._lost_reports = LostReports(exp, self.regrouping, run, store)
        self._quorum = Quorum(exp, control, self.regrouping, self._stops.stopped)

    def follow(self) -> None:
        """Return when every rank has reported, or those that have not will not any more."""
        failed_at: float | None = None
        with self._selector as selector:
            for one in self._handles:
                selector.register(one.socket, selectors.EVENT_READ, one)
            self._conductor.begin()
            begun = not self._exp.min_ranks or self._gather(selector)
            while begun and not self._run._called_off and (self._any_missing() or self._goes_on()):
                for key, _ in selector.select(0.01):
                    self._read_report(key, selector)
                self._run._thaw_due()
                self._leave_out(self._quorum.late(lost=self.lost(spare=False)))
                self._conductor.look(self.trained_from)
                self._hosts.look()
                self._lost_reports.look(self.lost(spare=True))
                self._admit()
                if (late := self._stops.look()) and not self._evict(self._stops.stopped()):
                    self._late = late
                    break
                if not self.trained_from and self.all_train():
                    self.trained_from = time.monotonic()
                if not self._any_failed() or self._goes_on():
                    continue
                self._note_lost(self._lost_first(failed_at))
                # Survivors find out by themselves within 50 ms, and then say what they were in.
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > NOTICE:
                    self._control.words[ABORT] = 1
                    self._control.refresh()
                    self._control.open_gates()
                unreaped = end_to_come(self._failures, self._handles)
                if time.monotonic() - failed_at > (rank_handle.REAPED if unreaped else AFTERMATH):
                    break
            for key, _ in selector.select(0):  # a last word of one that has ended
                self._read_report(key, selector)
            self._note_lost(self._lost_first(failed_at))

    def _gather(self, selector: selectors.BaseSelector) -> bool:
        """Wait until training can begin, with those that have come. Returns False where too few
        have.
        """
        gathering = Gathering(self._exp, self.regrouping.later)
        membership = self.regrouping.membership
        team: Team | None = None
        while team is None and not self._run._called_off:
            for key, _ in selector.select(0.01):
                self._read_report(key, selector)
            codes = rank_handle.ended(self._handles)
            ended = {rank: how_it_ended(code) for rank, code in codes.items()}
            try:
                team = gathering.team(membership.waiting, ended)
                if team is not None:
                    absent = {*range(self._exp.ranks)} - {*team.members}
                    lost: dict[int, How] = {r: "ended" if r in ended else "silent" for r in absent}
                    check_enough(self._exp, team.members, lost)
            except TooFewRanks as error:
                self._late = error
                return False
        if team is None:
            return False
        late = {rank: f"had not started within {self._exp.grace}" for rank in membership.outside}
        for rank in self._pids.keys() - {*team.members} - self.regrouping.later:
            self.regrouping.absent[rank] = ended.get(rank, late.get(rank, ""))
            if rank in ended:
                membership.forget(rank)
                self._run._note_lost(rank)
            else:
                self._run._note(rank, "absent")
        self.regrouping.team = team
        self._run._begin(team)
        membership.begin(team)
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
            for rank, code in sorted(rank_handle.ended(self._handles).items())
            if rank not in self.reports
            and bool(rank not in self._members or self._control.rank_word(rank, SPARE)) == spare
        }

    def _lost_first(self, failed_at: float | None) -> set[int]:
        """Return the lost ranks; once one has failed, only those that others saw end: these may
        report it before its exit code is here, and further ones may end because of the first.
        """
        lost = {*self.lost(spare=False)}
        return lost if failed_at is None else lost & seen_to_end(self._failures)

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
        reports = {**self._failures, **self.regrouping.left}
        error = what_went_wrong(lost, reports, self._pids, where, now, self.regrouping.lost_last)
        error = error and self.regrouping.named(self._hosts.named(error, self.reports))
        silent = [one for one in self._handles if one.rank not in self.reports]
        if isinstance(error, RunTimeout) and (
            places := places_of(silent, self._lookout, self._exp)
        ):
            return RunTimeout("\n  ".join([str(error), *places]))
        return error

    def _any_missing(self) -> bool:
        ended = rank_handle.ended(self._handles)
        return any(rank not in self.reports and rank not in ended for rank in self._members)

    @property
    def _failures(self) -> dict[int, dict[str, Any]]:
        """The reports of ranks that failed."""
        return {rank: one for rank, (one, _) in sorted(self.reports.items()) if "failed" in one}

    def _any_failed(self) -> bool:
        return bool(self._failures or self.lost(spare=False) or self.regrouping.left)

    # -- recovery --

    def _leave_out(self, ranks: Sequence[int]) -> bool:
        """Have the others go on without these, which do not answer. Returns whether there are
        any.
        """
        for rank in ranks:
            self.regrouping.out.add(rank)
            self.regrouping.membership.leave_out(rank)
            self._run._note(rank, "left out")
            self.regrouping.call_off()
        return bool(ranks)

    def _goes_on(self) -> bool:
        """Return whether the run recovers from ranks that it has lost; do what is next for that."""
        regrouping, lost = self.regrouping, self.lost(spare=False)
        waits = any(one.get("waits") for one in regrouping.left.values())  # for its data
        cause = (lost or regrouping.left) if self._exp.recovers else waits and not lost
        if not cause or self._failures or self._refused:
            return False
        members = regrouping.team.members  # of those it could spare none leaves any more
        lost |= {rank: code for rank, code in self.lost(spare=True).items() if rank in members}
        self._note_lost(lost)
        regrouping.call_back(lost)
        lost = {**{rank: 0 for rank in members if rank in regrouping.out}, **lost}
        live = [rank for rank in regrouping.team.members if rank not in lost]
        regrouping.corrupt |= {
            r for one in regrouping.left.values() for r in one.get("corrupt", ())
        }
        self._evict([rank for rank in live if rank in regrouping.corrupt])
        missing = [r for r in live if r not in regrouping.left and r not in self.reports]
        if missing and not lost and regrouping.meets():
            return True
        regrouping.call_off()
        if missing and self._leave_out(self._quorum.late(missing, lost)):
            return True
        if missing:
            stopped = self._stops.stopped()
            if {*live} - {*stopped}:  # else no rank would be left that has what is trained
                self._evict(stopped)
            self._late = self._late or regrouping.overdue(missing)
            return self._late is None
        leavers = [rank for rank in live if regrouping.left.get(rank, {}).get("leaves")]
        self._send_off({*leavers, *(regrouping.evicted & regrouping.left.keys())} & {*live})
        if ending := [rank for rank in live if rank in regrouping.evicted or rank in leavers]:
            self._late = self._late or regrouping.overdue(ending)
            return self._late is None
        if not lost:
            return self._all_live(live)
        done = {rank: self.reports[rank][0] for rank in live if rank in self.reports}
        if asked := regrouping.to_report(lost, live, done):
            for rank in asked:
                self.reports.pop(rank, None)
                self._handles[rank].order({"report": True})
            return True
        over = live and len(done) == len(live) and not self.lost(spare=False)
        return not over and self._regroup(lost, [*done])

    def _note_lost(self, lost: Collection[int]) -> None:
        """Record the ends of these ranks, each once."""
        for rank in sorted({*lost} - self._noted):
            self._noted.add(rank)
            self._run._note_lost(rank)

    def _send_off(self, ranks: set[int]) -> None:
        """Have ranks end by themselves, now that all have left their group: those that were told to
        go, and evicted ones that run again.
        """
        for rank in ranks - self.regrouping.sent_off:
            self.regrouping.sent_off.add(rank)
            self._handles[rank].order({"team": None})

    def _evict(self, ranks: Sequence[int]) -> bool:
        """End ranks that cannot be reached, in a run that goes on without them. Returns whether
        there are any.
        """
        ranks = [rank for rank in ranks if rank not in self.regrouping.out]  # they come back
        for rank in ranks if self._exp.recovers else ():
            if rank not in self.regrouping.evicted:
                self.regrouping.call_off()  # before: one that runs again must not train on
                self.regrouping.evicted.add(rank)
                self._run._evict(rank, "corrupt" if rank in self.regrouping.corrupt else "evicted")
        return bool(ranks) and self._exp.recovers

    def _all_live(self, live: list[int]) -> bool:
        """Go on where all have left their group and none has ended, as far as is known."""
        regrouping = self.regrouping
        hows = {str(one["how"]) for one in regrouping.left.values()}
        if regrouping.evicts and "silent" in hows and (cut := cut_off(self._control, live)):
            return self._evict(cut)
        # One waits for its data, was thawed just as the others gave it up, or is to join.
        waits = any(one.get("waits") for one in regrouping.left.values())
        if waits or "stopped" in hows or (self._control.words[REGROUP] > 0 and "ended" not in hows):
            return self._regroup({}, [rank for rank in live if rank in self.reports])
        # Ranks know that a peer ended before its parent has told us.
        return regrouping.seconds() < rank_handle.GONE

    def _regroup(self, lost: Mapping[int, int], done: list[int]) -> bool:
        """Have the next team go on. Returns False where the policy ends the run instead."""
        past = list(self.regrouping.left)
        try:
            team = self.regrouping.next_team(lost, done)
        except WorkbenchError as error:
            self._late, team = error, None
        if team is None:
            self._refused = True
            return False
        self._noted -= set(team.fresh)
        self.regrouping.evicted.clear()
        self.regrouping.corrupt.clear()
        self.regrouping.out -= {*team.members}
        for rank in team.fresh:
            self.reports.pop(rank, None)
        self._store.metadata |= self.regrouping.metadata()
        self._lost_reports.look(())
        self._run._begin(team)
        joining = {*team.fresh} & self.regrouping.membership.waiting
        fields, stays = asdict(team), ({*past} & {*team.members} - {*team.fresh}) | joining
        for one in self._handles:
            if one.rank in stays:
                one.order({"team": fields})
        self._start_ranks([rank for rank in team.fresh if rank not in joining], team)
        self.regrouping.membership.begin(team)
        return True

    def _start_ranks(self, ranks: Sequence[int], team: Team | None) -> None:
        for one in self._start(ranks, team):
            self._handles[one.rank] = one
            self._pids[one.rank] = one.pid
            self.reports.pop(one.rank, None)
            self._selector.register(one.socket, selectors.EVENT_READ, one)

    def _admit(self) -> None:
        """Start the ranks that are to join; once they are there, ask the others to form a group
        with them at their next boundary. The same for a group without a rank that was told to go.
        """
        membership, words = self.regrouping.membership, self._control.words
        if newcomers := membership.expect():
            self._start_ranks(newcomers, None)
        for rank in membership.outside:
            if self._handles[rank].code is not None:
                membership.forget(rank)
                self._run._note_lost(rank)
        leaves = any(self._control.rank_word(rank, LEAVES) for rank in self._members)
        change = membership.waiting or leaves
        if change and not words[REGROUP] and words[LOST] <= self.regrouping.team.generation:
            words[REGROUP] = REGROUP_ASKED

    def _read_report(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
        replaced = self._handles[key.data.rank] is not key.data
        messages = None if replaced else key.data.hear()
        if messages is None:  # its end is told by the launcher, with its cause
            selector.unregister(key.fileobj)
        for message in messages or ():
            self._take(key.data.rank, message)

    def _take(self, rank: int, message: tuple[dict[str, Any], bytearray]) -> None:
        body, regrouping = message[0], self.regrouping
        if "told" in body:
            self._store.metadata |= merge(self._store.metadata, body["told"])
        elif "left" in body and rank not in regrouping.out:
            regrouping.left[rank] = body
        elif "left" in body or "arrived" in body:
            regrouping.membership.arrive(rank)
            if "left" in body:
                regrouping.reports[rank] = body
            if self._begun:
                self._run._note(rank, "arrived")
        else:
            self.reports[rank] = message
