"""The answer of a run to the loss of ranks: a function of what is known, and of nothing else.

    look, decide, carry out; again, until the answer is to wait, to form a team, or to end

The rows are tried in this order, and the first that applies is the answer:

    nothing to recover from, or a rank has failed        END
    a rank has ended, and it is not in the record        NOTE_END
    all that live were left out                          CALL_BACK
    others say that a replica differs                    DIFFER, then EVICT
    all are to leave before one iteration, and can       MEET, then WAIT
    the ranks have not been told to leave                CALL_OFF
    one has not left: for longer than quorum_timeout     LEAVE_OUT, and WAIT
                      it is stopped                      EVICT
                      for no longer than timeout         WAIT
                      for longer                         TIME_OUT
    one has left that was told to go, or evicted         SEND_OFF, then as above until it has ended
    none has ended: a link is cut                        EVICT, and WAIT
                    one is to join, waits, was thawed    FORM
                    its end is yet to be told            WAIT, for a while; then END
    a server has all, and its work is over               ASK
    some are not done                                    FORM
    all are done: one has what was trained               SPARE, and END
                  one can report it                      ASK
                  neither                                FORM, or END where none is needed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from workbench.runs.member_table import Event, Mark, MemberTable, Report


@dataclass(frozen=True)
class Policy:
    """The rules of a run for losses. ``quorum_s``: after how long a rank is late; 0: never.
    ``serves``: whether ranks play roles, and a server may have all that was trained.
    """

    recovers: bool
    evicts: bool  # ranks that cannot be reached
    timeout_s: float
    quorum_s: float
    least: int  # ranks of a team
    gone_s: float  # that a process has to be gone, and its parent to tell
    serves: Callable[[], bool]


@dataclass(frozen=True)
class Moment:
    """A look at the ranks. Those that have ended without a report, with their exit codes: ``lost``
    and ``spared``. ``done``: the reports of those that finished. The functions are asked only where
    their answer counts; ``waited``: for how long ranks have been leaving.
    """

    members: Sequence[int]  # of the team
    lost: Mapping[int, int]
    spared: Mapping[int, int]
    done: Mapping[int, Report]
    failed: bool  # has a rank reported an error?
    timed_out: bool  # has the driver found one?
    called_off: bool  # have all been told to leave?
    meets: bool  # are they asked to leave before one iteration?
    meeting: bool  # does the time count from that?
    waited: Callable[[], float]
    late: Callable[[], Collection[int] | None]  # ranks that do not answer; None: no clock runs
    stopped: Callable[[], Sequence[int]]  # members whose process is stopped
    cut_off: Callable[[Sequence[int]], Sequence[int]]  # of these, those behind cut links


class Do(Enum):
    """Steps that concern the whole team."""

    CALL_OFF = auto()  # have all ranks leave their generation
    MEET = auto()  # count the time until all have come to one iteration
    ALL_DONE = auto()  # ranks were lost when all others had finished
    SPARE = auto()  # the same, and nothing is lost with them
    FORM = auto()  # the next team, as the policy says
    TIME_OUT = auto()  # end the run: ranks have not left, or ended, in time
    WAIT = auto()  # look again a little later
    END = auto()  # recover no further


class Action(NamedTuple):
    """One thing to do: with the team, or with ranks, to which it then happens.

    ``ranks``: those that it is about. ``lost``: how those ended that a team is formed without;
    ``ranks`` are then the members that need no other any more.
    """

    what: Do | Event
    ranks: Sequence[int] = ()
    lost: Mapping[int, int] = {}

    @property
    def is_last(self) -> bool:
        """Whether there is nothing to decide after it until something happens."""
        return self.what in (Event.ASK, Do.FORM, Do.TIME_OUT, Do.WAIT, Do.END)


WAIT, END = Action(Do.WAIT), Action(Do.END)


class _Seen:
    """A moment, and what follows from it."""

    def __init__(self, table: MemberTable, policy: Policy, moment: Moment) -> None:
        self.table, self.policy, self.moment, self.left = table, policy, moment, table.left
        members, self.late = moment.members, table.marked(Mark.LATE)
        # Of the members that the run could spare none leaves any more.
        spared = {rank: code for rank, code in moment.spared.items() if rank in members}
        self.ended = {**moment.lost, **spared}
        self.lost = {**{rank: 0 for rank in members if rank in self.late}, **self.ended}
        self.live = [rank for rank in members if rank not in self.lost]
        self.done = {rank: moment.done[rank] for rank in self.live if rank in moment.done}
        self.missing = [r for r in self.live if r not in self.left and r not in self.done]

    @property
    def waits(self) -> bool:
        """Whether a rank waits for its data."""
        return any(one.get("waits") for one in self.left.values())

    @property
    def hows(self) -> set[str]:
        """What ranks say of why they left."""
        return {str(one["how"]) for one in self.left.values()}

    def in_time(self, ranks: list[int]) -> Action:
        """Return to wait for these ranks, or that the time for it is over."""
        late = self.moment.timed_out or self.moment.waited() > self.policy.timeout_s
        return Action(Do.TIME_OUT, ranks) if late else WAIT


def decide(table: MemberTable, policy: Policy, moment: Moment) -> list[Action]:
    """Return what to do next. Unless the last ``is_last``, decide again once all is done."""
    seen = _Seen(table, policy, moment)
    return next(actions for row in _ROWS if (actions := row(seen)))


def to_leave_out(
    table: MemberTable,
    policy: Policy,
    members: Collection[int],
    late: Collection[int],
    lost: Collection[int],
) -> list[int]:
    """Return the members to leave out of those that are late, as many as can be spared. ``lost``:
    those that have ended.
    """
    present = {*members} - table.marked(Mark.LATE) - {*lost}
    return sorted({*late} & present)[: max(0, len(present) - policy.least)]


def to_evict(table: MemberTable, policy: Policy, ranks: Collection[int]) -> list[int]:
    """Return those of these ranks that are to be ended: one that was left out comes back."""
    gone = table.marked(Mark.LATE) | table.marked(Mark.EVICTED)
    return [rank for rank in ranks if rank not in gone] if policy.recovers else []


def _happens(event: Event, ranks: Collection[int]) -> list[Action]:
    """Return that this happens to these ranks; [] where there are none."""
    return [Action(event, sorted(ranks))] if ranks else []


# -- the rows: each returns what to do, or [] where it does not apply --


def _nothing_to_recover_from(seen: _Seen) -> list[Action]:
    lost = seen.moment.lost
    cause = (lost or seen.left) if seen.policy.recovers else seen.waits and not lost
    return [END] if not cause or seen.moment.failed else []


def _note_ends(seen: _Seen) -> list[Action]:
    return _happens(Event.NOTE_END, {*seen.ended} - seen.table.marked(Mark.NOTED))


def _call_back(seen: _Seen) -> list[Action]:
    rest = {*seen.moment.members} - {*seen.ended}  # no other rank has what is trained
    return _happens(Event.CALL_BACK, rest if rest <= seen.late else ())


def _differ(seen: _Seen) -> list[Action]:
    corrupt = {rank for one in seen.left.values() for rank in one.get("corrupt", ())}
    return _happens(Event.DIFFER, corrupt - seen.table.marked(Mark.CORRUPT))


def _evict_corrupt(seen: _Seen) -> list[Action]:
    corrupt = {*seen.live} & seen.table.marked(Mark.CORRUPT)
    return _happens(Event.EVICT, to_evict(seen.table, seen.policy, corrupt))


def _meet(seen: _Seen) -> list[Action]:
    moment = seen.moment
    if moment.called_off or not moment.meets:
        return []
    if seen.lost or not seen.missing or seen.hows - {"aborted"}:
        return []
    if not moment.meeting:
        return [Action(Do.MEET)]
    return [WAIT] if moment.waited() <= seen.policy.timeout_s else []


def _call_off(seen: _Seen) -> list[Action]:
    return [] if seen.moment.called_off else [Action(Do.CALL_OFF)]


def _urge(seen: _Seen) -> list[Action]:
    """Go on without those that are ``missing``, which have not left, once there is a reason."""
    if not seen.missing:
        return []
    table, policy, moment = seen.table, seen.policy, seen.moment
    late = moment.late() if policy.quorum_s else None
    if late is not None:
        late = {*late, *(seen.missing if moment.waited() > policy.quorum_s else ())}
        if ranks := to_leave_out(table, policy, moment.members, late, seen.lost):
            return [Action(Event.LEAVE_OUT, ranks), WAIT]
    stopped = moment.stopped()
    # Else no rank would be left that has what is trained.
    evicted = to_evict(table, policy, stopped) if {*seen.live} - {*stopped} else []
    return [Action(Event.EVICT, evicted)] if evicted else [seen.in_time(seen.missing)]


def _see_off(seen: _Seen) -> list[Action]:
    """Have those end that are not to go on: told to go, or evicted and running again."""
    table, left, live = seen.table, seen.left, {*seen.live}
    leavers = {rank for rank in live if left.get(rank, {}).get("leaves")}
    evicted = table.marked(Mark.EVICTED)
    if off := _happens(
        Event.SEND_OFF, (leavers | (evicted & left.keys() & live)) - table.marked(Mark.SENT_OFF)
    ):
        return off
    ending = [rank for rank in seen.live if rank in evicted | leavers]
    return [seen.in_time(ending)] if ending else []


def _all_live(seen: _Seen) -> list[Action]:
    """Go on where all have left their group and none has ended, as far as is known."""
    if seen.lost:
        return []
    policy, moment, hows = seen.policy, seen.moment, seen.hows
    if policy.evicts and "silent" in hows and (cut := moment.cut_off(seen.live)):
        ranks = to_evict(seen.table, policy, cut)
        return [Action(Event.EVICT, ranks), WAIT] if policy.recovers else [END]
    # One waits for its data, was thawed just as the others gave it up, or is to join.
    if seen.waits or "stopped" in hows or (moment.meets and "ended" not in hows):
        return [Action(Do.FORM, [*seen.done])]
    # Ranks know that a peer ended before its parent has told us.
    return [WAIT if moment.waited() < policy.gone_s else END]


def _some_train(seen: _Seen) -> list[Action]:
    """Go on without ranks that were lost, where not all others are done."""
    asked = [rank for rank in seen.live if rank not in seen.done]
    if seen.live and not asked:
        return []
    if asked and _whole(seen) and seen.policy.serves():
        return [Action(Event.ASK, asked)]
    return [Action(Do.FORM, [*seen.done], seen.lost)]


def _all_done(seen: _Seen) -> list[Action]:
    if _whole(seen):
        return [Action(Do.SPARE, [*seen.lost]), END]
    note, done = Action(Do.ALL_DONE, [*seen.lost]), seen.done
    holders = [rank for rank, one in done.items() if one["digest"] and one["replica"] is None]
    if holders:
        return [note, Action(Event.ASK, holders[:1])]
    return [note, Action(Do.FORM, [*done], seen.lost) if seen.moment.lost else END]


def _whole(seen: _Seen) -> bool:
    """Return whether one has reported all that was trained."""
    return any(one["parameters"] and one["replica"] is None for one in seen.done.values())


_ROWS = (
    _nothing_to_recover_from,
    _note_ends,
    _call_back,
    _differ,
    _evict_corrupt,
    _meet,
    _call_off,
    _urge,
    _see_off,
    _all_live,
    _some_train,
    _all_done,
)
