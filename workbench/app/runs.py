"""The runs that the server holds: whose they are, how long they may last, when their ranks end.

    start -> Hosted(id, watch) -> pages come and go -> over, kept in its owner's history

A run is found by its id, which nobody can guess: who has it has the run, hands included. ``watch``
is another such word, which shows the run and changes nothing. An owner is a browser, known by a
word of its own. Runs outlive the sessions of the pages that show them; the ranks of a run end
``GRACE`` seconds after its last page has gone. Viewers do not count: they come for as long as
someone has the run. Nothing here knows what a page is: it is a function that says whether it is
still there.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import workbench as wb
from workbench.app.limits import Limits, Refused, memory
from workbench.history import History, Past
from workbench.spec import Experiment

GRACE = 15.0  # seconds after its last page has gone until a run's ranks end
TICK = 0.25  # seconds between two looks at pages and clocks
WEIGH = 1.0  # seconds between two looks at memory
PATIENCE = 3.0  # seconds for ranks to end after their iteration; then they are killed
HURRY = 0.5  # the same, when the server ends
FORGET = 3600.0  # seconds after its last page until an owner's past runs are forgotten
KEEP_ROWS = 12_000_000  # events of all owners together, about 140 bytes each

Present = Callable[[], bool]
Leave = Callable[[], None]


@dataclass(eq=False)
class Hosted:
    """One run and who may do what with it."""

    past: Past
    owner: str
    watch: str
    started: float
    words: str = ""  # why this server ended it
    alone: float | None = None  # since when no page shows it
    kill_at: float | None = None
    pages: list[Present] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.past.id

    @property
    def run(self) -> Any:
        """The wb.Run; None once its events were let go."""
        return self.past.run

    @property
    def over(self) -> bool:
        return self.past.over


class Runs:
    """Everything that the server holds. Any thread may call it."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self._clock = clock
        self._lock = threading.RLock()
        self._hosted: dict[str, Hosted] = {}
        self._watched: dict[str, Hosted] = {}
        self._owners: dict[str, _Owner] = {}
        self._starting = 0
        self._weighed = -WEIGH
        self._closed = threading.Event()

    # ---- what pages ask for

    def start(self, exp: Experiment, owner: str, title: str = "") -> Hosted:
        """Start a run for this owner. Raises Refused, or what ``wb.run`` raises. Takes seconds
        when the pool of ranks is cold: not for a thread that others wait for.
        """
        self._admit(exp, owner)
        try:
            run = wb.run(exp)
        finally:
            with self._lock:
                self._starting -= 1
        past = self.history(owner).add(run, title, secrets.token_urlsafe(16))
        now = self._clock()
        hosted = Hosted(past, owner, secrets.token_urlsafe(16), now, alone=now)
        with self._lock:
            self._hosted[hosted.id] = self._watched[hosted.watch] = hosted
        if self._closed.is_set():
            self._end(hosted, "The server was stopped.")
        return hosted

    def find(self, id: str) -> Hosted | None:
        """The run with this id, for whoever has it."""
        return self._hosted.get(id)

    def find_watched(self, watch: str) -> Hosted | None:
        """The run that this word shows, to be looked at only."""
        return self._watched.get(watch)

    def history(self, owner: str) -> History:
        """The runs of this owner, live and past."""
        with self._lock:
            return self._of(owner).history

    def enter(self, hosted: Hosted, present: Present) -> Leave:
        """A page shows the run while ``present()`` says so; what is returned takes it away."""
        return self._keep(hosted.pages, present)

    def visit(self, owner: str, present: Present) -> Leave:
        """A page of this owner's is open: its past runs are kept for as long, and an hour."""
        with self._lock:
            return self._keep(self._of(owner).pages, present)

    def _keep(self, pages: list[Present], present: Present) -> Leave:
        with self._lock:
            pages.append(present)

        def leave() -> None:
            with self._lock:
                if present in pages:
                    pages.remove(present)

        return leave

    def seconds_left(self, hosted: Hosted) -> float:
        """Until the run's time is over."""
        return hosted.started + self.limits.minutes * 60 - self._clock()

    def seconds_alone(self, hosted: Hosted) -> float | None:
        """Until the run ends because no page shows it; None while one does, or once it is over."""
        if hosted.alone is None or hosted.over:
            return None
        return max(0.0, hosted.alone + GRACE - self._clock())

    @property
    def live(self) -> list[Hosted]:
        with self._lock:
            return [one for one in self._hosted.values() if not one.over]

    # ---- limits

    def _admit(self, exp: Experiment, owner: str) -> None:
        """Take a place for a run that begins, or say why there is none."""
        self.limits.check(exp)
        with self._lock:
            if self._closed.is_set():
                raise Refused("The server is being stopped.")
            live = self.live
            if len(live) + self._starting >= self.limits.runs:
                raise Refused(self.limits.no_place(sum(one.owner == owner for one in live)))
            self._starting += 1

    def tick(self) -> None:
        """Look at clocks, pages and memory; end what has to end."""
        now = self._clock()
        weigh = now - self._weighed >= WEIGH
        if weigh:
            self._weighed = now
        for hosted in self.live:
            try:
                self._look(hosted, now, weigh)
            except Exception:  # one bad run must not keep the others' ranks alive
                traceback.print_exc(file=sys.stderr)
        if weigh:
            self._forget(now)

    def _look(self, hosted: Hosted, now: float, weigh: bool) -> None:
        with self._lock:
            if any(map(_is_there, hosted.pages)):
                hosted.alone = None
            elif hosted.alone is None:
                hosted.alone = now
        if hosted.kill_at is not None:
            if now >= hosted.kill_at and not hosted.over:
                hosted.kill_at = now + PATIENCE
                for rank in hosted.run.pids:
                    hosted.run.kill(rank)
            return
        most = self.limits
        if hosted.alone is not None and now - hosted.alone >= GRACE:
            words = f"Its last page had been closed for {GRACE:.0f} s, so its ranks were ended."
            self._end(hosted, words)
        elif self.seconds_left(hosted) <= 0:
            self._end(hosted, most.time_over())
        elif weigh and (held := memory(hosted.run.pids.values(), most.memory)) > most.memory:
            self._end(hosted, most.too_heavy(held))

    def _end(self, hosted: Hosted, words: str) -> None:
        hosted.words, hosted.kill_at = words, self._clock() + PATIENCE
        hosted.run.stop()

    # ---- what is kept

    def _of(self, owner: str) -> _Owner:
        found = self._owners.setdefault(owner, _Owner(History()))
        found.seen = self._clock()
        return found

    def _forget(self, now: float) -> None:
        """Let go of owners that have long gone, and of the oldest events where they are many."""
        with self._lock:
            for name, owner in [*self._owners.items()]:
                if any(map(_is_there, owner.pages)) or any(one.owner == name for one in self.live):
                    owner.seen = now
                elif now - owner.seen > FORGET:
                    del self._owners[name]
            kept = {id(past) for owner in self._owners.values() for past in owner.history}
            for hosted in [*self._hosted.values()]:
                if id(hosted.past) not in kept and hosted.over:
                    del self._hosted[hosted.id], self._watched[hosted.watch]
            owners, hosts = [*self._owners.values()], [*self._hosted.values()]
        for owner in owners:
            owner.history.make_room()
        full = [(hosted, len(run.store)) for hosted in hosts if (run := hosted.run) is not None]
        rows = sum(size for _, size in full)
        for hosted, size in full:  # oldest first; never those that a page shows
            if rows > KEEP_ROWS and hosted.over and not any(map(_is_there, hosted.pages)):
                rows -= size
                hosted.past.let_go()

    # ---- the server's life

    def watch_over(self) -> None:
        """Tick in a thread of its own until ``close``."""
        threading.Thread(target=self._work, name="workbench runs", daemon=True).start()

    def _work(self) -> None:
        while not self._closed.wait(TICK):
            try:
                self.tick()
            except Exception:  # nor may what is only about memory
                traceback.print_exc(file=sys.stderr)

    def close(self) -> None:
        """End all runs and the pool of ranks; returns when they are gone."""
        self._closed.set()
        for hosted in self.live:
            self._end(hosted, "The server was stopped.")
        deadline = time.monotonic() + HURRY
        while self.live and time.monotonic() < deadline:
            time.sleep(0.02)
        wb.shutdown()


@dataclass
class _Owner:
    history: History
    seen: float = 0.0
    pages: list[Present] = field(default_factory=list)


def _is_there(page: Present) -> bool:
    try:
        return page()
    except Exception:  # what it would ask has gone, and the page with it
        return False
