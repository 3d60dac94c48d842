"""The runs that the server holds: whose they are, how long they can last, when their ranks end.

    start -> Hosted(id, watch) -> pages come and go -> over, kept in its owner's history

A run is found by its id, which cannot be guessed: a visitor who has it controls the run. ``watch``
is another such word, which shows the run and changes nothing. An owner is a browser, known by a
word of its own. Runs outlive the sessions of the pages that show them; the ranks of a run end
``Limits.grace`` seconds after its last page has gone. Viewers do not count: they come for as long
as someone has the run. Nothing here knows what a page is: it is a function that says whether it is
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
from pathlib import Path
from typing import Any

from workbench.common import threads
from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.interface.app.limits import Limits, Refused
from workbench.interface.app.reserved import held
from workbench.launchers.processes.pool import shutdown
from workbench.presets.catalogue import note
from workbench.runs.history import History, Past
from workbench.runs.run import Run, start

TICK = 0.25  # seconds between two looks at pages and clocks
WEIGH = 1.0  # seconds between two looks at memory
PATIENCE = 3.0  # seconds for ranks to end after their iteration; then they are killed
HURRY = 0.5  # the same, when the server ends, or they take more memory by the moment
FORGET = 3600.0  # seconds after its last page until an owner's past runs are forgotten
KEEP_RUNS = 60  # runs of all owners together that keep their events, about 1 MB each in memory
KEEP_ROWS = 12_000_000  # events of all owners together, about 140 bytes each

Present = Callable[[], bool]
Leave = Callable[[], None]


@dataclass(eq=False)
class Reservation:
    """A place among the live runs, for runs one after another; pages that show any of them count
    for each of them.
    """

    owner: str
    pages: list[Present] = field(default_factory=list)

    @property
    def shown(self) -> bool:
        """True while a page shows one of its runs."""
        return any(map(_is_there, self.pages))


@dataclass(eq=False)
class Hosted:
    """One run, and the rights to it."""

    past: Past
    owner: str
    watch: str
    started: float
    words: str = ""  # why this server ended it
    alone: float | None = None  # since when no page shows it
    kill_at: float | None = None
    pages: list[Present] = field(default_factory=list)
    place: Reservation | None = None  # that it shares with others

    @property
    def id(self) -> str:
        return self.past.id

    @property
    def run(self) -> Any:
        """The wb.Run; None once its events have been dropped."""
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
        self._places: list[Reservation] = []
        self._starting = 0
        self._weighed = -WEIGH
        self._closed = threading.Event()

    # ---- what pages ask for

    def start(
        self, exp: Experiment, owner: str, title: str = "", place: Reservation | None = None
    ) -> Hosted:
        """Start a run for this owner, in a place that it has or in a free one. Raises Refused, or
        what ``wb.run`` raises. Takes seconds when the pool of ranks is cold: not for a thread that
        others wait for.
        """
        self.limits.check(exp)
        with self._lock:
            self._need_room(owner, 0 if place else 1)
            self._starting += not place
        past = None
        try:
            run = _run(exp)
            note(run.store.metadata, title, exp)
            past = self.history(owner).add(run, title, secrets.token_urlsafe(16))
        finally:
            with self._lock:  # in one: between the two it would count neither as starting nor live
                self._starting -= not place
                if past is not None:
                    hosted = self._host(past, owner, place)
        if self._closed.is_set():
            self._end(hosted, "The server was stopped.")
        return hosted

    def _host(self, past: Past, owner: str, place: Reservation | None) -> Hosted:
        now = self._clock()
        hosted = Hosted(past, owner, secrets.token_urlsafe(16), now, alone=now, place=place)
        if place is not None:
            hosted.pages = place.pages
        self._hosted[hosted.id] = self._watched[hosted.watch] = hosted
        return hosted

    def reserve(self, owner: str) -> Reservation:
        """Take a place for several runs, one after another. Raises Refused where there is none."""
        with self._lock:
            self._need_room(owner, 1)
            self._places.append(place := Reservation(owner))
            return place

    def give_back(self, place: Reservation) -> None:
        """Free a place: none of its runs is live."""
        with self._lock:
            self._places.remove(place)

    def find(self, id: str) -> Hosted | None:
        """Return the run with this id, for everyone with its address."""
        return self._hosted.get(id)

    def find_watched(self, watch: str) -> Hosted | None:
        """Return the run that this viewing id shows, to be looked at only."""
        return self._watched.get(watch)

    def history(self, owner: str) -> History:
        """Return the runs of this owner, live and past."""
        with self._lock:
            return self._of(owner).history

    def enter(self, hosted: Hosted | Reservation, present: Present) -> Leave:
        """Count a page that shows the run, or the runs of the place, while ``present()`` says so;
        return the function that removes it.
        """
        return self._keep(hosted.pages, present)

    def visit(self, owner: str, present: Present) -> Leave:
        """Note that a page of this owner is open: its past runs are kept that long, and an hour
        more.
        """
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
        """Return the seconds until the run's time is over."""
        return hosted.started + self.limits.minutes * 60 - self._clock()

    def seconds_alone(self, hosted: Hosted) -> float | None:
        """Return the seconds until the run ends because no page shows it; None while a page does,
        or once it is over.
        """
        if hosted.alone is None or hosted.over:
            return None
        return max(0.0, hosted.alone + self.limits.grace - self._clock())

    @property
    def live(self) -> list[Hosted]:
        with self._lock:
            return [one for one in self._hosted.values() if not one.over]

    # ---- limits

    def _need_room(self, owner: str, places: int) -> None:
        """Raise Refused where so many more places are not free, or the server ends."""
        if self._closed.is_set():
            raise Refused("The server is being stopped.")
        owners = [one.owner for one in self.live if one.place is None]
        owners += [one.owner for one in self._places]
        if places and len(owners) + self._starting + places > self.limits.runs:
            raise Refused(self.limits.no_place(owners.count(owner)))

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
        if hosted.alone is not None and now - hosted.alone >= most.grace:
            self._end(hosted, most.left_alone())
        elif self.seconds_left(hosted) <= 0:
            self._end(hosted, most.time_over())
        elif weigh and (heavy := held(hosted.run.pids.values(), most.memory)) > most.memory:
            self._end(hosted, most.too_heavy(heavy), patience=HURRY)
        elif weigh and (rows := len(hosted.run.store)) > most.rows:
            self._end(hosted, most.too_many_rows(rows))

    def _end(self, hosted: Hosted, words: str, patience: float = PATIENCE) -> None:
        hosted.words, hosted.kill_at = words, self._clock() + patience
        hosted.run.stop()

    # ---- what is kept

    def _of(self, owner: str) -> _Owner:
        result = self._owners.setdefault(owner, _Owner(History()))
        result.seen_at = self._clock()
        return result

    def _forget(self, now: float) -> None:
        """Drop owners that have long gone, and the oldest events if they are many."""
        with self._lock:
            for name, owner in [*self._owners.items()]:
                if any(map(_is_there, owner.pages)) or any(one.owner == name for one in self.live):
                    owner.seen_at = now
                elif now - owner.seen_at > FORGET:
                    del self._owners[name]
            kept = {id(past) for owner in self._owners.values() for past in owner.history}
            for hosted in [*self._hosted.values()]:
                if id(hosted.past) not in kept and hosted.over:
                    del self._hosted[hosted.id], self._watched[hosted.watch]
            owners, hosts = [*self._owners.values()], [*self._hosted.values()]
        for owner in owners:
            owner.history.make_room()
        full = [(hosted, len(run.store)) for hosted in hosts if (run := hosted.run) is not None]
        rows, holders = sum(size for _, size in full), len(full)
        for hosted, size in full:  # oldest first; never those that a page shows
            if not hosted.over or any(map(_is_there, hosted.pages)) or hosted.run is None:
                continue
            if rows > KEEP_ROWS or holders > KEEP_RUNS:
                rows, holders = rows - size, holders - 1
                hosted.past.let_go()
            else:
                hosted.run.store.put_away()

    # ---- the server's life

    def watch_over(self) -> None:
        """Tick in a thread of its own until ``close``."""
        threads.start(self._work, "workbench runs", stop=self._closed.set)

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
        shutdown()


def _run(exp: Experiment) -> Run:
    """Start the run. Errors do not name where on this machine the server is."""
    from workbench.tasks._blueprint import blueprints_only  # with torch

    try:
        with blueprints_only():  # a visitor's numbers build no model here
            return start(exp)
    except SpecError as error:
        raise SpecError(str(error).replace(str(Path.cwd()), "…")) from None
    except (WorkbenchError, OSError):
        raise
    except Exception as error:  # of a task, say, that cannot make its model of these options
        traceback.print_exc(file=sys.stderr)
        words = f"The run could not start: {type(error).__name__}: {error}"
        raise WorkbenchError(words) from None


@dataclass
class _Owner:
    history: History
    seen_at: float = 0.0
    pages: list[Present] = field(default_factory=list)


def _is_there(page: Present) -> bool:
    try:
        return page()
    except Exception:  # what it would ask has gone, and the page with it
        return False
