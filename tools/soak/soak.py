"""One case after the other: drawn, done, and nothing left of it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.soak import cells, checks, drivers, recoveries, runs
from tools.soak.held import Held, held, megabytes, pool_pid, settled
from tools.soak.runs import Say
from tools.soak.trend import Trend, trend

Kind = Callable[[random.Random, Say], int | None]  # returns how many faults struck, if it counts
LIMIT = 180.0  # seconds that a case may take: none of them waits that long for anything
# How often each kind comes, of the sum of all.
KINDS: dict[str, tuple[Kind, int]] = {
    "ends by itself": (runs.by_itself, 14),
    "stopped": (runs.stopped, 12),
    "interrupted": (runs.interrupted, 6),
    "killed": (runs.killed, 16),
    "stands still": (runs.stood_still, 6),
    "planned faults": (runs.with_faults, 8),
    "recovers": (recoveries.recovers, 20),
    "own code is wrong": (runs.raised, 6),
    "pool ended": (runs.pool_ended, 2),
    "two at once": (runs.two_at_once, 4),
    "16 ranks": (runs.crowd, 2),
    "cells": (cells.session, 10),
    "cells, bare": (cells.bare, 3),
    "check": (checks.right, 4),
    "check, wrong": (checks.wrong, 3),
    "check, interrupted": (checks.interrupted, 2),
    "driver ended": (drivers.ended, 2),
}
MOST_SPARE = 64
LATE = 5.0  # seconds into a case from which on it is told when things happen


class Hang(BaseException):
    """A case is not over in its time. Above Exception: nothing on the way is to catch it."""


@dataclass
class Done:
    """A case that is over."""

    number: int
    kind: str
    words: str
    seconds: float
    megabytes: float  # of the driver, after it
    pool_megabytes: float
    wrong: str = ""
    faults: int = 0


@dataclass
class Soak:
    """``seed`` and a case's number say what it does; ``first`` is the first one's number."""

    seed: int
    first: int = 0
    kinds: Sequence[str] = ()
    go_on: bool = False  # after a case that is wrong
    done: list[Done] = field(default_factory=list)
    _before: Held | None = None

    def drawn(self, number: int) -> tuple[str, random.Random]:
        """The kind of a case, and the chance that decides the rest of it."""
        chance = random.Random(f"{self.seed}/{number}")
        names = list(self.kinds or KINDS)
        kind = chance.choices(names, [KINDS[name][1] for name in names])[0]
        return kind, chance

    def cases(self) -> Iterator[Done]:
        """Forever, or until one is wrong: the caller says when it is enough."""
        number = self.first
        while self.go_on or not self.done or not self.done[-1].wrong:
            kind, chance = self.drawn(number)
            yield self.case(number, kind, chance)
            number += 1

    def case(self, number: int, kind: str, chance: random.Random) -> Done:
        """Do it, and look at what is left of it."""
        if self._before is None:
            self._warm_up()
        assert self._before is not None
        words: list[str] = []
        begin, wrong, faults = time.monotonic(), "", 0

        def say(text: str) -> None:
            at = time.monotonic() - begin
            words.append(f"{text} (at {at:.0f} s)" if at > LATE else text)

        try:
            with _limited(LIMIT):
                faults = KINDS[kind][0](chance, say) or 0
        except (Exception, Hang, KeyboardInterrupt):
            wrong = traceback.format_exc()
        seconds = time.monotonic() - begin
        if left := settled(self._before, MOST_SPARE):
            listed = "\n".join(f"  {count} × {name}" for name, count in left.items())
            wrong += f"left behind:\n{listed}"
            self._before = held()
        pool = pool_pid()
        done = Done(
            number,
            kind,
            ", ".join(words),
            seconds,
            megabytes(os.getpid()),
            megabytes(pool) if pool else float("nan"),
            wrong,
            faults,
        )
        self.done.append(done)
        return done

    def _warm_up(self) -> None:
        """Run one of each first: what is imported and opened once, on first use, is not a leak."""
        words: list[str] = []
        for warm in (runs.by_itself, cells.session, checks.right):
            warm(random.Random(0), words.append)
        from workbench.launchers.processes.pool import warm_pool

        warm_pool()
        self._before = held()

    @property
    def growth(self) -> dict[str, Trend]:
        """Of the driver's memory and of the pool's, in MB a case."""
        return {
            "driver": trend([done.megabytes for done in self.done]),
            "pool": trend([done.pool_megabytes for done in self.done]),
        }


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise Hang inside after that time, and show where every thread is."""

    def late(*_: Any) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise Hang(f"not over after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
