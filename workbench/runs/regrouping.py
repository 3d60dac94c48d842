"""Recovery in the driver: when ranks are lost, a team goes on without them, or with new ones.

a rank ends          LOST is set: the ranks of its generation leave it
the others leave     each says how many iterations it has done
all have answered    the policy names the next team, or ends the run
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoints.folder import newest_path
from workbench.common.errors import (
    How,
    PeerLost,
    RankError,
    RunTimeout,
    StateLost,
    WorkbenchError,
    short,
    timed_out,
)
from workbench.experiment.faults import not_there
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Failure, Team
from workbench.runs.enough import check_enough
from workbench.runs.failure import how_of, where_lost
from workbench.runs.member_table import Mark, MemberTable
from workbench.runs.outcome import past_losses
from workbench.shared_memory.control_block import CHECKPOINT, LOST, Control
from workbench.shared_memory.segments import how_it_ended
from workbench.store.recoveries import ABSENT, KEY, Recovery, recoveries_of
from workbench.user_code.source import Source, load

if TYPE_CHECKING:
    from workbench.store.event_store import Store


class Regrouping:
    """The teams of one run, and what happens when one of them loses ranks. ``table``: what is known
    of each rank. ``recoveries``: those so far.
    """

    def __init__(self, exp: Experiment, control: Control) -> None:
        self.team = Team(0, tuple(range(exp.ranks)))
        fail, self.later = not_there(exp.faults)  # ranks without a process that trains
        expected = {*range(exp.ranks)} - fail - self.later
        self.table = MemberTable(expected if exp.min_ranks else ())
        self.absent: dict[int, str] = {}  # ranks that the first team begins without
        self.recoveries: list[Recovery] = []
        self.lost_last = set[int]()  # ranks that were lost when all others had finished
        self._ends: dict[int, tuple[How, int, int]] = {}  # of lost ranks: how, code, iteration
        self._exp, self._control = exp, control
        self._meeting = -1  # the generation that ranks are to leave before one iteration
        self._since = 0.0  # when the first did, or was told to
        self._waited = 0.0

    def call_off(self) -> None:
        """Have all ranks leave their generation."""
        if not self.called_off:
            self._control.words[LOST] = self.team.generation + 1
            self._since, self._waited = time.monotonic(), 0.0

    @property
    def called_off(self) -> bool:
        """Whether all ranks have been told to leave their generation."""
        return bool(self._control.words[LOST] > self.team.generation)

    @property
    def meeting(self) -> bool:
        """Whether the time counts since ranks are about to leave, all before one iteration."""
        return self._meeting == self.team.generation

    def begin_to_meet(self) -> None:
        """Count the time from now."""
        self._meeting = self.team.generation
        self._since, self._waited = time.monotonic(), 0.0

    def seconds(self) -> float:
        """Return for how long ranks have been leaving; while the user holds them no time counts."""
        moment = time.monotonic()
        if not self._control.clocks_stand():
            self._waited += moment - self._since
        self._since = moment
        return self._waited

    def timed_out(self, missing: Sequence[int]) -> RunTimeout:
        """Return the error where ranks that live have not left in time: ``missing``."""
        return RunTimeout(
            f"a rank was lost, and {self.seconds():.1f} s later ranks {[*missing]} have not left "
            f"the group that it was in. {timed_out(self._exp.timeout_ns * 1e-9)}",
            missing[0],
            how="silent",
        )

    def next_team(self, lost: Mapping[int, int], done: Sequence[int]) -> Team | None:
        """Return the team that goes on; None: the policy ends the run. ``lost``: exit codes of the
        ranks that ended. ``done``: members that have finished, and need no other rank any more.

        Raises RankError where a policy of the user's own raises, or gives something else, PeerLost
        where no rank that goes on has what was trained, TooFewRanks where too few go on.
        """
        members = tuple(rank for rank in self.team.members if rank not in done)
        ends = {rank: self._how(rank, code) for rank, code in lost.items() if rank in members}
        failure = self._failure(members, ends)
        team = _decision(self._exp, failure) if failure.lost else failure.shrink()
        if team is None:
            return None
        if not done:
            team = self._with_newcomers(team)
        team = self._with_state(team, ends)
        if not done:
            check_enough(self._exp, team.members, ends)
        iteration = failure.iteration if team.state == "memory" else _iteration_of(team)
        team = self._waiting(team.after(self.team, iteration), iteration)
        in_iteration = where_lost(self._control, failure.lost, self._exp.iterations)
        self.recoveries.append(
            Recovery(
                team.generation,
                {str(rank): how for rank, how in ends.items()},
                max(in_iteration.values(), default=failure.iteration),
                iteration,
                team.members,
                team.fresh,
                team.state,
            )
        )
        self._ends |= {rank: (how, lost[rank], failure.iteration) for rank, how in ends.items()}
        self.team = team
        self.table.begin(team)
        self.lost_last.clear()  # they are in the recovery
        return team

    @property
    def _completed(self) -> int:
        """The iterations that the furthest rank of those that left has done; -1: none knows."""
        return max((int(one["completed"]) for one in self.table.left.values()), default=-1)

    def _failure(self, members: Sequence[int], ends: Mapping[int, How]) -> Failure:
        """Return what the policy is asked about: not of ranks that ended because they were told."""
        gone = self.table.marked(Mark.TOLD) & {*ends}
        return Failure(
            Team(self.team.generation, tuple(rank for rank in members if rank not in gone)),
            {rank: how for rank, how in ends.items() if rank not in gone},
            max(self._completed, 0),
            self._exp.iterations,
            len(self.recoveries),
            self._newest_checkpoint(),
            self._exp.ranks,
        )

    def _with_newcomers(self, team: Team) -> Team:
        """Return the team with the ranks that wait to join one that goes on from memory."""
        waiting = self.table.waiting
        if not waiting or team.state != "memory":
            return team
        fresh = *team.fresh, *sorted(waiting)
        return replace(team, members=tuple(sorted({*team.members, *fresh})), fresh=fresh)

    def _with_state(self, team: Team, ends: Mapping[int, How]) -> Team:
        """Return the team with the state that it goes on from. Raises PeerLost where there is none:
        no rank that goes on has begun.
        """
        if team.state != "memory" or self._completed >= 0:
            return team
        if self.team.state != "memory":
            return replace(team, state=self.team.state, checkpoint=self.team.checkpoint)
        rank = min(ends)
        raise PeerLost(
            f"rank {rank} ended before the ranks that go on had received what was trained: "
            "all that had it are lost. recovery='restart' goes back to a checkpoint then",
            rank,
            how=ends[rank],
        )

    def all_done(self, lost: Collection[int], *, spare: bool) -> None:
        """Note that ranks were lost when all others had finished; the run can ``spare`` them, where
        one of those has all that was trained.
        """
        self.lost_last = {*lost}
        if spare:
            members = tuple(rank for rank in self.team.members if rank not in lost)
            self.team = replace(self.team, members=members)

    def named(self, error: WorkbenchError) -> WorkbenchError:
        """Return the error of a run with the name of the rank that was lost, where ranks could not
        go on without what it had trained: they do not know how it ended.
        """
        if not isinstance(error, StateLost) or not self._ends:
            return error
        rank = error.rank if error.rank in self._ends else min(self._ends)
        how, code, iteration = self._ends[rank]
        doing = f"iteration {min(iteration + 1, self._exp.iterations)}"
        return PeerLost(
            f"rank {rank} {how_it_ended(code)} in {doing}, and {error}",
            rank,
            how=how,
            code=code,
            doing=doing,
            found_by=error.found_by,
            under_way=error.under_way,
        )

    def past_losses(self, store: Store, spared: Collection[int]) -> list[Mapping[str, Any]]:
        """Return what lost ranks had reported, where it counts. ``spared``: those that their
        generation went on without, where they are of this one.
        """
        last = self.lost_last | ({*spared} & {*self.team.members})
        return past_losses(store, recoveries_of(store.metadata), last)

    def _waiting(self, team: Team, iteration: int) -> Team:
        """Return the team as one that waits for a data source, where a rank has said so; all write
        a checkpoint first.
        """
        if not any(one.get("waits") for one in self.table.left.values()):
            return team
        if self._exp.checkpoint is not None and iteration:
            self._control.words[CHECKPOINT] = iteration
        return replace(team, waits=True)

    def _how(self, rank: int, code: int) -> How:
        marks = self.table.row(rank).marks
        if Mark.CORRUPT in marks:
            return "corrupt"
        if Mark.LATE in marks and not code:
            return "late"
        if Mark.EVICTED in marks:
            return "evicted"
        return "removed" if Mark.TOLD in marks and not code else how_of(code)

    def metadata(self) -> dict[str, str]:
        """Return the recoveries, as they are stored with the run."""
        absent = {ABSENT: json.dumps(self.absent)} if self.absent else {}
        return {KEY: json.dumps([one.as_fields() for one in self.recoveries]), **absent}

    def _newest_checkpoint(self) -> str:
        return newest_path(self._exp.checkpoint)


def _iteration_of(team: Team) -> int:
    """Return the iteration that a team goes on with, which forgets what is in memory."""
    return int(Path(team.checkpoint).name.rpartition("-")[2]) if team.checkpoint else 0


def _decision(exp: Experiment, failure: Failure) -> Team | None:
    """Ask the policy. Raises RankError for what a user's own raises or returns."""
    recover: Callable[[Failure], object] = load("recovery", exp.recovery, "recover")
    name = exp.recovery.name if isinstance(exp.recovery, Source) else exp.recovery
    what = f"the recovery policy {name}"
    try:
        team = recover(failure)
    except WorkbenchError:
        raise
    except Exception as error:
        words = f"{what} raised {type(error).__name__}: {error}"
        raise RankError(words, how="raised") from error
    if team is None or (team == failure.shrink() and not failure.survivors):
        return None
    if not isinstance(team, Team):
        raise RankError(
            f"{what} returned {short(team)}: it returns failure.shrink(), failure.replace(), "
            "failure.restart(), or None to end the run",
            how="raised",
        )
    fits = team.generation > failure.team.generation and team.members
    if not fits or set(team.members) - set(team.fresh) - set(failure.survivors):
        raise RankError(
            f"{what} returned {team}, in which ranks go on that do not live: survivors are "
            f"{list(failure.survivors)}",
            how="raised",
        )
    return team
