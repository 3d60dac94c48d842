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


def decide(table: MemberTable, policy: Policy, moment: Moment) -> list[Action]:
    """Return what to do next. Unless the last ``is_last``, decide again once all is done."""
    left = table.left
    waits = any(one.get("waits") for one in left.values())  # for its data
    cause = (moment.lost or left) if policy.recovers else waits and not moment.lost
    if not cause or moment.failed:
        return [END]
    # Of the members that the run could spare none leaves any more.
    spared = {rank: code for rank, code in moment.spared.items() if rank in moment.members}
    ended = {**moment.lost, **spared}
    if unknown := {*ended} - table.marked(Mark.NOTED):
        return [Action(Event.NOTE_END, sorted(unknown))]
    late, rest = table.marked(Mark.LATE), {*moment.members} - {*ended}
    if rest and rest <= late:  # no other rank has what is trained
        return [Action(Event.CALL_BACK, sorted(rest))]
    corrupt = {rank for one in left.values() for rank in one.get("corrupt", ())}
    if differ := corrupt - table.marked(Mark.CORRUPT):
        return [Action(Event.DIFFER, sorted(differ))]
    lost = {**{rank: 0 for rank in moment.members if rank in late}, **ended}
    live = [rank for rank in moment.members if rank not in lost]
    if actions := _call_off(table, policy, moment, lost, live) or _see_off(
        table, policy, moment, live
    ):
        return actions
    if lost:
        return _go_on(policy, moment, lost, live)
    return _all_live(table, policy, moment, live)


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


def _call_off(
    table: MemberTable,
    policy: Policy,
    moment: Moment,
    lost: Mapping[int, int],
    live: Sequence[int],
) -> list[Action]:
    """Have all that live leave their group; [] once they have, or are done."""
    left, corrupt = table.left, table.marked(Mark.CORRUPT)
    if wrong := to_evict(table, policy, [rank for rank in live if rank in corrupt]):
        return [Action(Event.EVICT, wrong)]
    missing = [rank for rank in live if rank not in left and rank not in moment.done]
    aborted = all(one["how"] == "aborted" for one in left.values())
    if missing and not lost and aborted and moment.meets and not moment.called_off:
        if not moment.meeting:
            return [Action(Do.MEET)]
        if moment.waited() <= policy.timeout_s:
            return [WAIT]
    if not moment.called_off:
        return [Action(Do.CALL_OFF)]
    return _urge(table, policy, moment, lost, live, missing) if missing else []


def _urge(
    table: MemberTable,
    policy: Policy,
    moment: Moment,
    lost: Collection[int],
    live: Collection[int],
    missing: list[int],
) -> list[Action]:
    """Go on without those that are ``missing``, which have not left, once there is a reason."""
    late = moment.late() if policy.quorum_s else None
    if late is not None:
        late = {*late, *(missing if moment.waited() > policy.quorum_s else ())}
        if ranks := to_leave_out(table, policy, moment.members, late, lost):
            return [Action(Event.LEAVE_OUT, ranks), WAIT]
    stopped = moment.stopped()
    # Else no rank would be left that has what is trained.
    evicted = to_evict(table, policy, stopped) if {*live} - {*stopped} else []
    return [Action(Event.EVICT, evicted)] if evicted else [_in_time(policy, moment, missing)]


def _see_off(
    table: MemberTable, policy: Policy, moment: Moment, live: Sequence[int]
) -> list[Action]:
    """Have those end that are not to go on: told to go, or evicted and running again; [] once they
    have.
    """
    left, evicted = table.left, table.marked(Mark.EVICTED)
    leavers = {rank for rank in live if left.get(rank, {}).get("leaves")}
    if off := (leavers | (evicted & left.keys() & {*live})) - table.marked(Mark.SENT_OFF):
        return [Action(Event.SEND_OFF, sorted(off))]
    ending = [rank for rank in live if rank in evicted or rank in leavers]
    return [_in_time(policy, moment, ending)] if ending else []


def _all_live(
    table: MemberTable, policy: Policy, moment: Moment, live: Sequence[int]
) -> list[Action]:
    """Go on where all have left their group and none has ended, as far as is known."""
    left = table.left
    hows = {str(one["how"]) for one in left.values()}
    if policy.evicts and "silent" in hows and (cut := moment.cut_off(live)):
        ranks = to_evict(table, policy, cut)
        return [Action(Event.EVICT, ranks), WAIT] if policy.recovers else [END]
    # One waits for its data, was thawed just as the others gave it up, or is to join.
    waits = any(one.get("waits") for one in left.values())
    if waits or "stopped" in hows or (moment.meets and "ended" not in hows):
        return [Action(Do.FORM, [rank for rank in live if rank in moment.done])]
    # Ranks know that a peer ended before its parent has told us.
    return [WAIT if moment.waited() < policy.gone_s else END]


def _go_on(
    policy: Policy, moment: Moment, lost: Mapping[int, int], live: Sequence[int]
) -> list[Action]:
    """Go on without ranks that were lost, where all others have left, or are done."""
    done = {rank: moment.done[rank] for rank in live if rank in moment.done}
    whole = any(one["parameters"] and one["replica"] is None for one in done.values())
    if not live or len(done) < len(live):
        asked = [rank for rank in live if rank not in done]
        if asked and whole and policy.serves():
            return [Action(Event.ASK, asked)]
        return [Action(Do.FORM, [*done], lost)]
    if whole:
        return [Action(Do.SPARE, [*lost]), END]
    holders = [rank for rank, one in done.items() if one["digest"] and one["replica"] is None]
    note = Action(Do.ALL_DONE, [*lost])
    if holders:
        return [note, Action(Event.ASK, holders[:1])]
    return [note, Action(Do.FORM, [*done], lost) if moment.lost else END]


def _in_time(policy: Policy, moment: Moment, ranks: list[int]) -> Action:
    late = moment.timed_out or moment.waited() > policy.timeout_s
    return Action(Do.TIME_OUT, ranks) if late else WAIT
