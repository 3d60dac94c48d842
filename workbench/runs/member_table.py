"""The ranks of a run as its driver knows them: one row each, changed by events alone.

A row is a place, marks and a report. Place: where a rank is that is in no team yet, or is to be in
the next one. Marks: what is known of it. Report: its words on why it has left its group.

    event      place                     marks                          report
    WANT       RESERVED                  .                              .     the user asks for it
    EXPECT     EXPECTED                  .                              .     its process starts
    ARRIVE     WAITING                   + HELD, where it reports       its   it is there
    FORGET     NOWHERE, if it had come   .                              .     its process has ended
    LEAVE_OUT  EXPECTED                  + LATE                         .     it does not answer
    CALL_BACK  NOWHERE, if it had come   - LATE HELD LAGS               .     no other is left
    LEAVE      .                         .                              its   it left its group
    LAG        .                         + LAGS                         .     its link is too slow
    ANSWER     .                         - LAGS                         .     its link is in time
    TELL       .                         + TOLD                         .     it is to go
    EVICT      .                         + EVICTED                      .     it is being ended
    DIFFER     .                         + CORRUPT                      .     its replica is wrong
    SEND_OFF   .                         + SENT_OFF                     .     it ends by itself
    NOTE_END   .                         + NOTED                        .     it has ended
    ASK        .                         .                              none  for all that it has
    BEGIN      NOWHERE, if WAITING       - LATE LAGS, those of a team   none  the next team has it
    RENEW      NOWHERE, if WAITING       - NOTED LATE LAGS, those of a team  none  in a new process
    STAY_OUT   .                         - TOLD, those of a team        none  or does not have it

A dot: as before. Those of a team: EVICTED CORRUPT SENT_OFF HELD. A report that is HELD is that
of a LATE member, for which the others do not wait. A rank that LAGS is in no next team.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto, unique
from typing import Any, NamedTuple

from workbench.experiment.team import Team

Report = Mapping[str, Any]  # as rank/main.py sends it


class Place(Enum):
    """Places of a rank on its way to a team."""

    NOWHERE = auto()  # in the team, or in none
    RESERVED = auto()  # the user asks for it
    EXPECTED = auto()  # its process lives
    WAITING = auto()  # it is there: the others form the next team with it at a boundary


class Mark(Flag):
    """Marks of a rank: what is known of it."""

    LATE = auto()  # left out until it answers
    EVICTED = auto()  # a member that is being ended
    CORRUPT = auto()  # its replica differs from the others'
    TOLD = auto()  # to go, by the user
    SENT_OFF = auto()  # told to end by itself
    NOTED = auto()  # its end is in the record
    HELD = auto()  # its report does not count
    LAGS = auto()  # a link of it is too slow to join


NO_MARKS = Mark(0)


@dataclass(frozen=True)
class Member:
    """The row of one rank."""

    place: Place = Place.NOWHERE
    marks: Mark = NO_MARKS
    report: Report | None = None


class Change(NamedTuple):
    """The effect of an event on a row. ``places``: those it changes, ``clears``: the report."""

    to: Place | None = None
    places: frozenset[Place] = frozenset(Place)
    adds: Mark = NO_MARKS
    drops: Mark = NO_MARKS
    clears: bool = False


_STARTED, _JOINS = frozenset({Place.EXPECTED, Place.WAITING}), frozenset({Place.WAITING})
_OF_A_TEAM = Mark.EVICTED | Mark.CORRUPT | Mark.SENT_OFF | Mark.HELD
_BEGINS = Mark.LATE | Mark.LAGS | _OF_A_TEAM


@unique
class Event(Enum):
    """Events of a rank, and what each changes."""

    WANT = Change(Place.RESERVED)
    EXPECT = Change(Place.EXPECTED)
    ARRIVE = Change(Place.WAITING)
    FORGET = Change(Place.NOWHERE, _STARTED)
    LEAVE_OUT = Change(Place.EXPECTED, adds=Mark.LATE)
    CALL_BACK = Change(Place.NOWHERE, _STARTED, drops=Mark.LATE | Mark.HELD | Mark.LAGS)
    LEAVE = Change()
    LAG = Change(adds=Mark.LAGS)
    ANSWER = Change(drops=Mark.LAGS)
    TELL = Change(adds=Mark.TOLD)
    EVICT = Change(adds=Mark.EVICTED)
    DIFFER = Change(adds=Mark.CORRUPT)
    SEND_OFF = Change(adds=Mark.SENT_OFF)
    NOTE_END = Change(adds=Mark.NOTED)
    ASK = Change(clears=True)
    BEGIN = Change(Place.NOWHERE, _JOINS, drops=_BEGINS, clears=True)
    RENEW = Change(Place.NOWHERE, _JOINS, drops=_BEGINS | Mark.NOTED, clears=True)
    STAY_OUT = Change(drops=_OF_A_TEAM | Mark.TOLD, clears=True)


def after(member: Member, event: Event, report: Report | None = None) -> Member:
    """Return the row after an event. ``report``: what the rank says with it."""
    change = event.value
    place = change.to if change.to is not None and member.place in change.places else member.place
    marks = (member.marks | change.adds) & ~change.drops
    if event is Event.ARRIVE and report is not None:
        marks |= Mark.HELD
    if report is None and not change.clears:
        report = member.report
    return replace(member, place=place, marks=marks, report=report)


class MemberTable:
    """The rows of all ranks. Users' threads reserve numbers and tell ranks to go; all else is the
    supervisor's. What it returns is a copy.
    """

    def __init__(self, expected: Collection[int] = ()) -> None:
        """Begin; ``expected``: ranks that are told of their first team once they have come."""
        self._lock = threading.RLock()
        self._rows: dict[int, Member] = {}  # in the order in which reports came
        self.note(Event.EXPECT, *expected)

    def note(self, event: Event, *ranks: int, report: Report | None = None) -> None:
        """Note what happens to these ranks."""
        with self._lock:
            for rank in ranks:
                before = self.row(rank)
                row = after(before, event, report)
                if report is not None or Mark.HELD in before.marks & ~row.marks:  # it counts now
                    self._rows.pop(rank, None)
                self._rows[rank] = row

    def row(self, rank: int) -> Member:
        """Return what is known of a rank."""
        return self._rows.get(rank, Member())

    # -- ranks that come and go --

    def want(self, ranks: int, members: Collection[int], only: int | None = None) -> int | None:
        """Reserve a number below ``ranks`` for one more rank, ``only`` this one where it is given;
        None: it is taken, or all are.
        """
        with self._lock:
            numbers = range(ranks) if only is None else (only,)
            in_use = {*members, *self._at(*{*Place} - {Place.NOWHERE})}
            rank = next((one for one in numbers if one not in in_use), None)
            if rank is not None:
                self.note(Event.WANT, rank)
            return rank

    def tell(self, rank: int, members: Collection[int], least: int) -> bool:
        """Note that a member is to go. Returns False where too few would be left."""
        with self._lock:
            if len({*members} - self.marked(Mark.TOLD) - {rank}) < least:
                return False
            self.note(Event.TELL, rank)
            return True

    def expect(self) -> list[int]:
        """Return the ranks that were wanted since, which are expected from now on."""
        with self._lock:
            ranks = sorted(self._at(Place.RESERVED))
            self.note(Event.EXPECT, *ranks)
            return ranks

    def leave(self, rank: int, report: Report) -> bool:
        """Note that a rank has left its group. Returns whether it was left out, and is to join."""
        late = Mark.LATE in self.row(rank).marks
        self.note(Event.ARRIVE if late else Event.LEAVE, rank, report=report)
        return late

    def begin(self, team: Team) -> None:
        """Note that a team goes on."""
        with self._lock:
            fresh = {*team.fresh}
            self.note(Event.RENEW, *fresh)
            self.note(Event.BEGIN, *({*team.members} - fresh))
            self.note(Event.STAY_OUT, *(self._rows.keys() - {*team.members}))

    # -- views --

    @property
    def outside(self) -> set[int]:
        """The ranks whose process has been started and that are in no team yet."""
        return self._at(Place.EXPECTED, Place.WAITING)

    @property
    def waiting(self) -> set[int]:
        """Those of them that are there, and whose links are in time."""
        return self._at(Place.WAITING) - self.marked(Mark.LAGS)

    @property
    def left(self) -> dict[int, Report]:
        """The reports of ranks that have left their generation, in the order in which they came."""
        with self._lock:
            return {
                rank: one.report
                for rank, one in self._rows.items()
                if one.report is not None and Mark.HELD not in one.marks
            }

    def marked(self, mark: Mark) -> set[int]:
        """Return the ranks with this mark."""
        return self._those(lambda one: mark in one.marks)

    def _at(self, *places: Place) -> set[int]:
        return self._those(lambda one: one.place in places)

    def _those(self, fits: Callable[[Member], bool]) -> set[int]:
        with self._lock:
            return {rank for rank, one in self._rows.items() if fits(one)}
