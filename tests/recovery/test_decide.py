"""The table of members and ``decide``: each row with each event, each state with each policy."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from workbench.experiment.team import Team
from workbench.runs import member_table
from workbench.runs.decide import Action, Do, Moment, Policy, decide, to_leave_out
from workbench.runs.member_table import (
    NO_MARKS,
    Event,
    Mark,
    Member,
    MemberTable,
    Place,
    after,
)

TEAMS = Mark.EVICTED | Mark.CORRUPT | Mark.SENT_OFF | Mark.HELD  # "those of a team"
REPORT = {"how": "aborted"}


def documented(event: str) -> tuple[str, str, str]:
    """Return what the docstring of the table says of an event: place, marks, report."""
    assert member_table.__doc__
    row = re.search(rf"^    {event} +(.*)$", member_table.__doc__, re.MULTILINE)
    assert row, event
    place, marks, report, _ = re.split(r"  +", row[1])
    return place, marks, report


@pytest.mark.parametrize("event", Event, ids=lambda one: one.name)
def test_every_row_changes_with_an_event_as_the_table_in_the_docstring_says(event: Event) -> None:
    place, marks, report = documented(event.name)
    to, _, only = place.partition(", if ")
    places = {"": {*Place}, "WAITING": {Place.WAITING}}.get(only, {Place.EXPECTED, Place.WAITING})
    named = NO_MARKS
    for one in re.findall("[A-Z_]{2,}", marks):
        named |= Mark[one]
    named |= TEAMS if "those of a team" in marks else NO_MARKS
    says = REPORT if report == "its" else None
    every = [Mark(bits) for bits in range(2 ** len(Mark))]
    for at, before, had in itertools.product(Place, every, (None, {"how": "ended"})):
        row = after(Member(at, before, had), event, says)
        assert row.place is (at if to == "." or at not in places else Place[to])
        assert row.marks == (before | named if marks[0] == "+" else before & ~named)
        assert row.report == {"its": says, "none": None, ".": had}[report]
        assert after(row, event, says) == row, "twice is once"


def test_reports_that_count_are_in_the_order_in_which_they_came() -> None:
    table = MemberTable()
    table.note(Event.TELL, 0, 1, 2)
    for rank in (2, 0):
        assert not table.leave(rank, {"left": rank})
    table.note(Event.LEAVE_OUT, 1)
    assert table.leave(1, {"left": 1}), "it is late, and waits for the next team"
    table.note(Event.EVICT, 2)
    assert [*table.left] == [2, 0] and table.waiting == {1}
    table.note(Event.CALL_BACK, 1)
    assert [*table.left] == [2, 0, 1] and not table.outside
    table.begin(Team(1, (0, 1), (1,)))
    assert not table.left and table.marked(Mark.TOLD) == {0, 1}


LEFT: dict[str, Any] = {"how": "aborted", "completed": 3}
DONE = {"digest": "d", "replica": None, "parameters": None}


class Seen(NamedTuple):
    """A member as the driver may see it."""

    marks: Mark = NO_MARKS
    report: Mapping[str, Any] | None = None
    done: Mapping[str, Any] | None = None
    code: int | None = None  # its exit code
    spare: bool = False
    stopped: bool = False


MEMBERS = {
    "trains": Seen(),
    "is stopped": Seen(stopped=True),
    "has left": Seen(report=LEFT),
    "saw one end": Seen(report=LEFT | {"how": "ended"}),
    "saw silence": Seen(report=LEFT | {"how": "silent"}),
    "saw one stopped": Seen(report=LEFT | {"how": "stopped"}),
    "waits for data": Seen(report=LEFT | {"waits": True}),
    "found 0 corrupt": Seen(report=LEFT | {"corrupt": [0]}),
    "leaves": Seen(Mark.TOLD, LEFT | {"leaves": True}),
    "is late": Seen(Mark.LATE),
    "was late": Seen(Mark.LATE | Mark.HELD, LEFT),
    "is evicted": Seen(Mark.EVICTED),
    "is evicted, and runs": Seen(Mark.EVICTED, LEFT),
    "is done": Seen(done=DONE),
    "is done, with all": Seen(done=DONE | {"parameters": ["w"]}),
    "has ended": Seen(code=-9),
    "is evicted, and has ended": Seen(Mark.EVICTED, code=-9),
    "has ended, and is spared": Seen(code=0, spare=True),
}
POLICIES = {
    "abort": Policy(False, False, 2.0, 0.0, 1, 5.0, lambda: False),
    "shrink": Policy(True, False, 2.0, 0.0, 1, 5.0, lambda: False),
    "shrink, with servers": Policy(True, False, 2.0, 0.0, 1, 5.0, lambda: True),
    "quorum": Policy(True, True, 2.0, 0.5, 1, 5.0, lambda: False),
}


MOMENTS = [  # called off, meets, waited
    (False, False, 0.0),
    (False, True, 0.0),
    (False, True, 9.0),
    (True, False, 0.0),
    (True, False, 1.0),
    (True, False, 9.0),
    (True, True, 1.0),
]


class World(NamedTuple):
    """A team, and what is seen of it besides its members."""

    members: tuple[str, ...]
    policy: Policy
    called_off: bool
    meets: bool
    waited: float

    def table(self) -> MemberTable:
        """Return the rows of its members."""
        table = MemberTable()
        for rank, name in enumerate(self.members):
            one = MEMBERS[name]
            place = Place.WAITING if Mark.HELD in one.marks else Place.NOWHERE
            table._rows[rank] = Member(place, one.marks, one.report)
        return table

    def moment(self, called_off: bool, meeting: bool, asked: set[int]) -> Moment:
        """Return what is seen now."""
        each = {rank: MEMBERS[name] for rank, name in enumerate(self.members)}
        ended = {rank: one for rank, one in each.items() if one.code is not None}
        return Moment(
            [*each],
            {rank: one.code or 0 for rank, one in ended.items() if not one.spare},
            {rank: one.code or 0 for rank, one in ended.items() if one.spare},
            {rank: one.done for rank, one in each.items() if one.done and rank not in asked},
            failed=False,
            timed_out=False,
            called_off=called_off,
            meets=self.meets,
            meeting=meeting,
            waited=lambda: self.waited,
            late=lambda: [rank for rank, one in each.items() if one.stopped],
            stopped=lambda: [rank for rank, one in each.items() if one.stopped],
            cut_off=lambda ranks: ranks[-1:],
        )


def worlds() -> Iterator[World]:
    """Yield every pair of members, under each policy, at each moment."""
    for pair in itertools.product(MEMBERS, MEMBERS):
        for policy in POLICIES.values():
            for moment in MOMENTS:
                yield World(pair, policy, *moment)


def decided(world: World) -> list[tuple[Action, MemberTable]]:
    """Return all actions until the last, each with the table as it was before it."""
    table, called_off, meeting, asked = world.table(), world.called_off, False, set[int]()
    result: list[tuple[Action, MemberTable]] = []
    for _ in range(12):
        actions = decide(table, world.policy, world.moment(called_off, meeting, asked))
        for one in actions:
            before = MemberTable()
            before._rows = {**table._rows}
            result.append((one, before))
            if isinstance(one.what, Event):
                table.note(one.what, *one.ranks)
            called_off |= one.what in (Do.CALL_OFF, Event.EVICT, Event.LEAVE_OUT)
            meeting |= one.what is Do.MEET
            asked |= {*one.ranks} if one.what is Event.ASK else set()
        if actions[-1].is_last:
            return result
    raise AssertionError(f"no end: {world}")


def check(world: World, action: Action, table: MemberTable, called_off: bool) -> None:
    """Assert that an action may be taken where the table is so."""
    what, ranks, lost = action
    each = {rank: MEMBERS[name] for rank, name in enumerate(world.members)}
    live = [rank for rank in each if rank not in lost and each[rank].code is None]
    if what is Event.EVICT:
        assert world.policy.recovers
        assert not {*ranks} & (table.marked(Mark.LATE) | table.marked(Mark.EVICTED))
    elif what is Event.LEAVE_OUT:
        assert len({*each} - table.marked(Mark.LATE) - {*ranks}) >= world.policy.least
    elif what is Event.SEND_OFF:
        assert {*ranks} <= table.left.keys()
    elif what is Do.CALL_OFF:
        assert not called_off
    elif what is Do.FORM:
        assert called_off and {*live} <= {*table.left, *(r for r in each if each[r].done)}
        assert {*table.marked(Mark.EVICTED)} <= {*lost}
        assert {*ranks} == {rank for rank in live if each[rank].done}
    elif what in (Do.SPARE, Do.ALL_DONE):
        assert live and all(each[rank].done for rank in each if rank not in ranks)
    elif what is Do.TIME_OUT:
        assert called_off and world.waited > world.policy.timeout_s


def test_every_state_under_every_policy_has_one_answer_and_it_may_be_taken() -> None:
    seen = set[Do | Event]()
    for world in worlds():
        called_off = world.called_off
        for action, table in decided(world):
            check(world, action, table, called_off)
            called_off |= action.what in (Do.CALL_OFF, Event.EVICT, Event.LEAVE_OUT)
            seen.add(action.what)
    of_ranks = "NOTE_END CALL_BACK DIFFER EVICT LEAVE_OUT SEND_OFF ASK"
    assert seen == {*Do, *(Event[one] for one in of_ranks.split())}, "each answer is given"


@pytest.mark.parametrize(
    ("members", "policy", "answers"),
    [
        (("trains", "trains"), "shrink", "END"),
        (("has ended", "trains"), "shrink", "NOTE_END CALL_OFF WAIT"),
        (("has ended", "has left"), "shrink", "NOTE_END CALL_OFF FORM"),
        (("has ended", "has left"), "abort", "END"),
        (("has ended", "is stopped"), "shrink", "NOTE_END CALL_OFF WAIT"),
        (("has left", "is stopped"), "shrink", "CALL_OFF EVICT WAIT"),
        (("saw one end", "has left"), "shrink", "CALL_OFF WAIT"),
        (("waits for data", "has left"), "abort", "CALL_OFF FORM"),
        (("trains", "found 0 corrupt"), "shrink", "DIFFER EVICT CALL_OFF WAIT"),
        (("is late", "has ended"), "quorum", "NOTE_END CALL_BACK CALL_OFF WAIT"),
        (("has left", "leaves"), "shrink", "CALL_OFF SEND_OFF WAIT"),
        (("has ended", "is done"), "shrink", "NOTE_END CALL_OFF ALL_DONE ASK"),
        (("has ended", "is done, with all"), "shrink", "NOTE_END CALL_OFF SPARE END"),
        (("saw silence", "saw silence"), "quorum", "CALL_OFF EVICT WAIT"),
    ],
)
def test_what_is_done(members: tuple[str, ...], policy: str, answers: str) -> None:
    world = World(members, POLICIES[policy], called_off=False, meets=False, waited=0.1)
    given = [action.what.name for action, _ in decided(world)]
    expected = answers.split()
    if "EVICT" in expected and "CALL_OFF" in expected[expected.index("EVICT") :]:
        expected.remove("CALL_OFF")  # an eviction calls off
    assert given == expected


def test_as_many_as_can_be_spared_are_left_out() -> None:
    table = MemberTable()
    policy = replace(POLICIES["quorum"], least=2)
    assert to_leave_out(table, policy, range(4), late={1, 2, 3}, lost={0}) == [1]
    table.note(Event.LEAVE_OUT, 1)
    assert to_leave_out(table, policy, range(4), late={1, 2, 3}, lost={0}) == []


def test_deciding_needs_neither_torch_nor_polars() -> None:
    code = "import sys, workbench.runs.decide; print({'torch', 'polars'} & {*sys.modules})"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert words.stdout.strip() == "set()", words
