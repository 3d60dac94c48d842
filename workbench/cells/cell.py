"""One cell on its way through the ranks: read what they print, notice waits, until all are done.

Everything happens in the thread that asked for the cell, so that its messages appear below it.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.cells import hangs
from workbench.cells.member import Member
from workbench.cells.output import MOST_PRINTED, Lines
from workbench.cells.result import CellResult, named, together

LOOK = 0.05  # seconds between two looks around
GATHER = 0.25  # seconds in which the same error of several ranks becomes one
AGAIN = 0.5  # seconds until ranks are asked again where they are
ANSWER = 0.5  # seconds that they have to say so
NOT_BEFORE, SELDOM = 4.0, 60.0  # seconds from one explanation of a hang to the next, doubling
GRACE = 3.0  # seconds that an interrupted rank has to end its cell

# "out", "err": a line of a rank; "note": what was noticed; "error": what ranks raised
Tell = Callable[[str, Sequence[int], str], None]
SECOND = hangs.SECOND


def quietly(*_: object) -> None:
    """Ignore the text: the result has all of it."""


class Cell:
    """A cell on its ranks.

    ``doing``: the activity of the lanes; ``stands``: whether the user holds the clocks.
    """

    def __init__(
        self,
        members: Mapping[int, Member],
        ranks: Sequence[int],
        number: int,
        tell: Tell,
        doing: Callable[[], Iterable[Sequence[Any]]],
        stands: Callable[[], bool],
    ) -> None:
        self.members, self.number, self.result = members, number, CellResult(tuple(ranks))
        self.running = set(ranks)
        self.stop_asked = False
        self._tell, self._doing, self._stands = tell, doing, stands
        self._untold: dict[int, str] = {}  # what ranks raised
        self._raised_at = 0.0
        self._places: dict[int, dict[str, Any]] = {}
        self._before: dict[int, dict[str, Any]] = {}  # where they were at the last look
        self._left_ns: dict[int, int] = {}  # when a rank's end of the cell was heard
        self._asked_ns = 0  # when the ranks were asked where they are; 0: no answer is awaited
        self._ask_at = time.monotonic_ns() + int(AGAIN * SECOND)
        self._unanswered: set[int] = set()
        self._staying: dict[int, hangs.Stay] = {}
        self._explain_at, self._gap = 0, NOT_BEFORE
        self._gave_up = False
        self._selector = selectors.DefaultSelector()

    def run(self, code: str, name: str, folder: str, port: int) -> CellResult:
        """Run until the cell has ended everywhere. An interrupt here interrupts the ranks.

        ``port``: of the store for groups that the cell makes itself.
        """
        order = {"do": "run", "code": code, "name": name, "cell": self.number}
        order |= {"folder": folder, "port": port}
        with self._selector:
            for rank in sorted(self.running):
                member = self.members[rank]
                for lines in (member.out, member.err):
                    lines.begin()
                    self._selector.register(lines.fd, selectors.EVENT_READ, (rank, lines))
                self._selector.register(member.socket, selectors.EVENT_READ, (rank, None))
                member.order(order)
            try:
                while self.running and not self.stop_asked:
                    self._look(LOOK)
                    self._look_at_waits()
                if self.stop_asked:
                    self._interrupt()
            except KeyboardInterrupt:
                self._interrupt()
            self._tell_errors()
        return self.result

    # -- hearing --

    def _look(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            rank, lines = key.data
            if lines is not None:
                if not self._hear(rank, lines):
                    self._selector.unregister(key.fileobj)
            else:
                self._listen(rank, key)
        for rank in sorted(self.running):
            member = self.members[rank]
            if member.code is not None:
                self._last_lines(rank)
                self.running.discard(rank)
                self.result.died[rank] = member.end
            else:
                for lines in (member.out, member.err):
                    self._show(rank, lines, lines.rest(0.5))
        if self._untold and time.monotonic() - self._raised_at > GATHER:
            self._tell_errors()

    def _listen(self, rank: int, key: selectors.SelectorKey) -> None:
        messages = self.members[rank].hear()
        if messages is None:  # its end is told by the fork server
            self._selector.unregister(key.fileobj)
        for message, _ in messages or ():
            if "at" in message:
                self._unanswered.discard(rank)
                self._places[rank] = message["at"]
            elif message.get("ended") == self.number:
                self._ended(rank, message)

    def _ended(self, rank: int, message: Mapping[str, Any]) -> None:
        self._last_lines(rank, message["lost"])
        self.running.discard(rank)
        self._left_ns[rank] = time.monotonic_ns()
        if message["value"]:
            self.result.values[rank] = message["value"]
        if message["error"]:
            self.result.errors[rank] = message["error"]
            self._untold[rank] = message["error"]["text"]
            self._raised_at = self._raised_at or time.monotonic()

    def _last_lines(self, rank: int, lost: Sequence[int] = (0, 0)) -> None:
        member = self.members[rank]
        for lines, cut in zip((member.out, member.err), lost, strict=True):
            while self._hear(rank, lines, most=1):
                pass
            self._show(rank, lines, lines.rest())
            if cut + lines.lost:
                self._note(
                    f"rank {rank} printed {cut + lines.lost:,} characters more than the "
                    f"{MOST_PRINTED:,} that are shown"
                )

    def _hear(self, rank: int, lines: Lines, most: int = 16) -> bool:
        """Show the output that has arrived; return False if there is no more.

        With ``most=1``: no more for now.
        """
        new, more = lines.read(most)
        self._show(rank, lines, new)
        return more and (most > 1 or bool(new))

    def _show(self, rank: int, lines: Lines, new: Iterable[str]) -> None:
        stream = "out" if lines is self.members[rank].out else "err"
        for line in new:
            self.result.printed.append((rank, stream, line))
            self._tell(stream, (rank,), line)

    def _tell_errors(self) -> None:
        untold, self._untold, self._raised_at = self._untold, {}, 0.0
        for ranks, text in together(untold):
            self._tell("error", ranks, text)

    def _note(self, words: str) -> None:
        self.result.notes.append(words)
        self._tell("note", (), words)

    # -- ranks that wait --

    def _look_at_waits(self) -> None:
        """Ask the ranks where they are, now and then; say which waits for which, once they do."""
        now = time.monotonic_ns()
        if self._stands():
            self._asked_ns, self._staying = 0, {}
            # The hold is part of these waits' age: ranks have a second from its end to go on.
            self._ask_at = now + SECOND
        elif self._asked_ns:
            if self._places.keys() >= self.running or now - self._asked_ns > ANSWER * SECOND:
                self._judge(now)
        elif now >= self._ask_at:
            self._ask(now)

    def _ask(self, now: int) -> None:
        self._asked_ns, self._places = now, {}
        for rank in sorted(self.running - self._unanswered):  # a frozen one is asked once
            self._unanswered.add(rank)
            self.members[rank].order({"do": "where"})

    def _judge(self, now: int) -> None:
        self._asked_ns, self._ask_at = 0, now + int(AGAIN * SECOND)
        places = {rank: place for rank, place in self._places.items() if rank in self.running}
        self._staying = hangs.stays(self._staying, places, now)
        of_lanes = [
            wait
            for wait in hangs.waits(self._doing(), self.running, now - SECOND)
            if hangs.lasts(wait, self._before, places, self._left_ns, now - SECOND)
        ]
        self._before = places
        waits = hangs.all_waits(of_lanes, places, self._staying, now - SECOND)
        self.result.deadlock = hangs.deadlock(waits)
        if not waits or (now < self._explain_at and not self._in_vain(waits)):
            return
        self._tell_errors()
        silent = self.running - places.keys()
        self._note("\n".join(hangs.explain(waits, places, self._away(), now, silent)))
        self._explain_at = now + int(self._gap * SECOND)
        self._gap = min(2 * self._gap, SELDOM)
        if self._in_vain(waits):
            self._give_up()

    def _in_vain(self, waits: Sequence[hangs.Wait]) -> bool:
        """Return whether the cell failed on some ranks while all others wait, which never ends."""
        failed = bool(self.result.errors or self.result.died)
        return failed and not self._gave_up and {wait.rank for wait in waits} == self.running

    def _give_up(self) -> None:
        self._gave_up = True
        failed = named({*self.result.errors, *self.result.died})
        they = f"{named(self.running)} cannot go on, and {_is(self.running)} interrupted"
        self._note(f"{failed} failed: {they}.")
        self._signal(signal.SIGINT)

    def _away(self) -> dict[int, str]:
        """Return, for each rank that no longer runs, why it sends nothing."""
        away = {}
        for rank in self.members.keys() - self.running:
            if error := self.result.errors.get(rank):
                away[rank] = f"raised {error['kind']}"
            elif rank in self.result.died:
                away[rank] = "has died"
            elif rank in self.result.ranks:
                away[rank] = "has ended this cell"
            else:
                away[rank] = "takes no part in this cell"
        return away

    # -- the end --

    def _signal(self, number: signal.Signals) -> None:
        for rank in sorted(self.running):
            self.members[rank].signal(number)

    def _interrupt(self) -> None:
        """Interrupt the cell on its ranks; kill ranks that do not end, or all at a second
        interrupt.
        """
        self.result.interrupted = True
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            self._until_ended(GRACE)
        if self.running:
            stubborn = sorted(self.running)
            self._note(
                f"{named(stubborn)} did not end the cell within {GRACE:.0f} s of the interrupt, "
                f"and {_is(stubborn)} killed"
            )
            self._signal(signal.SIGKILL)
            self._until_ended(GRACE)

    def _until_ended(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            self._look(LOOK)


def _is(ranks: Iterable[int]) -> str:
    return "is" if len([*ranks]) == 1 else "are"
