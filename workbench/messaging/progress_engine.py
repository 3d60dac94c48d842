"""The progress engine: a caller that waits moves the messages of all groups, a thread the rest.

There is one progress engine per process, for the engines of all its groups (messaging/p2p.py), and
one bell that wakes it: a caller that waits for a grant also moves the push that it has posted. The
holder of the lock drives. A caller that waits takes the lock and keeps it until one of its messages
is done, without a hop to another thread. A thread moves the messages that no caller waits for. It
starts on first need, looks now and then, and gives way to every caller: it does not hold the lock
while it sleeps.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from workbench.common.errors import RunTimeout, timed_out
from workbench.messaging.fingerprint import describe
from workbench.recording.events import now
from workbench.shared_memory.control_block import SLICE
from workbench.transports.doorbell import Bells

GRACE = 0.5e-3  # seconds: a caller that waits at once drives its message before the thread looks
RARELY = 4e-3  # seconds between the thread's looks where callers wait for all themselves
LINGER = 20e-3  # seconds without messages after which the thread parks
CROWDED_NS = 75_000  # a moment awake that takes longer: others want the cores too
SLICE_NS = int(SLICE * 1e9)


class ProgressEngine:
    """See above. ``engines``: those of open groups, in the order in which they are asked."""

    def __init__(self) -> None:
        self.bells = Bells.create()
        self.pid = os.getpid()
        self.engines: list[Any] = []
        self.lock = threading.Lock()  # its holder drives
        # For ``engines`` and the thread: groups come and go on any thread, and whenever Python
        # collects what nothing refers to.
        self._changing = threading.RLock()
        self._news = threading.Condition()
        self._sleepers = 0  # callers that wait for their turn, or for their message
        self._at_bell = self._thread_at_bell = False
        self._drives = 0  # how often a caller has driven
        self._thread: threading.Thread | None = None
        self._wake, self._parked = threading.Event(), True

    # -- for the engines --

    def add(self, engine: Any) -> None:
        self._replace(lambda engines: [*engines, engine])

    def remove(self, engine: Any) -> None:
        """Fail all that is still pending there. Removing the last engine ends the thread."""
        engine.closed = True
        deadline = time.monotonic() + 5.0
        while engine.busy() and time.monotonic() < deadline:
            self._advance_or_wake(engine)
            if engine.busy():
                time.sleep(1e-3)
        with self._changing:
            self._replace(lambda engines: [other for other in engines if other is not engine])
            thread = None if self.engines else self._thread
            if thread is not None:
                self._thread = None
        if thread is not None:
            self._wake.set()
            self.bells.wake()
            if thread is not threading.current_thread():
                thread.join(5.0)

    def _replace(self, change: Callable[[list[Any]], list[Any]]) -> None:
        with self._changing:
            while True:
                before = self.engines
                after = change(before)
                if self.engines is before:  # else a group was collected meanwhile, on this thread
                    self.engines = after
                    return

    def submit(self, engine: Any, transfer: Any) -> None:
        """Queue the transfer and move what can move at once.

        The rest is moved by the thread that waits for it, or by the engine's own.
        """
        engine.members.watch.check()
        engine.posted.append(transfer)
        self._advance_or_wake(engine)
        if not transfer.finished:
            self._leave_to_thread()

    def wait(self, engine: Any, transfer: Any, seconds: float = math.inf) -> None:
        """Wait until the transfer is done; raise its error, or RunTimeout after ``seconds``."""
        if not transfer.finished and not self.wait_any((transfer,), seconds, engine.spin_ns):
            words = f"{engine.kind} {describe(transfer.signature)}"
            raise RunTimeout(f"{words}: not done in time. {timed_out(seconds)}")
        if transfer.error is not None:
            raise transfer.error

    def wait_any(self, until: Sequence[Any], seconds: float, spin_ns: int) -> bool:
        """Drive until one of these transfers is done; False: none was within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not _one_is_done(until):
            if time.monotonic() > deadline:
                self._leave_to_thread()
                return False
            if self.lock.acquire(False):
                self._drives += 1
                try:
                    self._drive(until, deadline, spin_ns)
                finally:
                    self._let_go()
            else:
                self._stand_by(until)
        for engine in self.engines:
            if engine.pending or engine.posted:
                self._leave_to_thread()
                break
        return True

    def poll(self) -> None:
        """Move what can move at once, unless another thread does."""
        if self.lock.acquire(False):
            try:
                self._advance()
            finally:
                self._let_go()

    # -- driving --

    def _advance_or_wake(self, engine: Any) -> None:
        """Move what this engine can move, here or in the thread that drives."""
        if self.lock.acquire(False):
            try:
                while engine.busy() and engine.advance():
                    pass
            finally:
                self._let_go()
        elif self._at_bell:
            self.bells.wake()

    def _advance(self) -> bool:
        """Let every engine move what it can; return whether any did."""
        moved = False
        for engine in self.engines:
            if (engine.pending or engine.posted) and engine.advance():
                moved = True
        return moved

    def _drive(self, until: Sequence[Any], deadline: float, spin_ns: int) -> None:
        """Move transfers in a caller that holds the lock, until one of its own is done."""
        since, crowded = 0, False
        moved = self._advance()
        try:
            while True:
                if moved:
                    since, crowded = 0, False
                if _one_is_done(until) or time.monotonic() > deadline:
                    return
                if self._sleepers:
                    self._notify()  # one of theirs may be done
                moment = now()
                if not since:
                    since = moment
                    self._blocked(moment)
                if moment < since + spin_ns and not crowded:
                    # Awake: being woken costs more than most waits, where there is a core for it.
                    moved = self._stay_awake()
                    crowded = now() - moment > CROWDED_NS  # another has got it meanwhile
                    continue
                while self._thread_at_bell:
                    self._call_thread_off()
                moved = self._listen(until)
                if not moved:
                    self._sleep(min(SLICE, max(0.0, deadline - time.monotonic())))
                    self._look()
                    moved = self._advance()
        finally:
            for engine in self.engines:
                engine.blocked = 0

    def _stay_awake(self) -> bool:
        """Move what can move, or wait a moment without sleeping: for one engine's message in its
        mover. Return whether anything moved.
        """
        busy = [engine for engine in self.engines if engine.pending or engine.posted]
        moved: bool = busy[0].stay_awake() if len(busy) == 1 else self._advance()
        if not moved:
            os.sched_yield()
        return moved

    def _blocked(self, moment: int) -> None:
        """Note that nothing moves from here on, for the rows of waiting."""
        for engine in self.engines:
            if not engine.blocked and engine.pending:
                engine.blocked = moment

    def _listen(self, until: Sequence[Any] = ()) -> bool:
        """Announce that a thread is about to sleep; return whether something moved meanwhile.

        A receiver that takes a lent message wakes its sender only if that waits for it.
        """
        self._at_bell = True
        sends = receives = False
        waited_for = not until or self._sleepers or any(one.lent for one in until)
        for engine in self.engines:
            if engine.pending:
                if not engine.sends:
                    receives = True
                elif waited_for or not engine.lends_only():
                    sends = True
                engine.say_waiting()
        self.bells.listen(sends, receives)
        if self._advance():
            self._at_bell = False
            self.bells.hush()
            return True
        return False

    def _sleep(self, seconds: float) -> None:
        for engine in self.engines:
            if due := engine.due():
                seconds = min(seconds, max(0.0, (due - now()) * 1e-9))
        self.bells.wait(seconds)
        self._at_bell = False

    def _look(self) -> None:
        """Check now and then whether the peers live and deadlines are kept."""
        moment = now()
        for engine in self.engines:
            if engine.pending and moment - engine.looked >= SLICE_NS:
                engine.look(moment)

    # -- driving --

    def _let_go(self) -> None:
        self.lock.release()
        if self._sleepers:
            self._notify()

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()

    def _stand_by(self, until: Sequence[Any]) -> None:
        """Wait while another caller drives and moves our transfers too; the thread, if it drives,
        makes way.
        """
        with self._news:
            self._sleepers += 1
            if self.lock.locked() and not _one_is_done(until):
                self._news.wait(0.02)
            self._sleepers -= 1

    def _call_thread_off(self) -> None:
        with self._news:
            self._sleepers += 1
            self.bells.wake()
            if self._thread_at_bell:
                self._news.wait(0.02)
            self._sleepers -= 1

    # -- the thread --

    def _leave_to_thread(self) -> None:
        """Have the thread move transfers that no caller waits for."""
        if self._thread is None:
            self._start_thread()
        if self._parked:
            self._wake.set()

    def _start_thread(self) -> None:
        with self._changing:
            if self._thread is None:
                name = "workbench messages"
                self._thread = threading.Thread(target=self._loop, daemon=True, name=name)
                self._thread.start()

    def _loop(self) -> None:
        """Attend to transfers; park when idle for long: not every message wakes the thread."""
        me = threading.current_thread()
        while self._thread is me:
            self._parked = True
            if not any(engine.busy() for engine in self.engines):
                self._wake.wait()
            self._wake.clear()
            self._parked = False
            used, pause = time.monotonic(), GRACE
            while self._thread is me and time.monotonic() - used < LINGER:
                before = self._drives
                time.sleep(pause)
                if not any(engine.busy() for engine in self.engines):
                    continue
                if self._drives != before:  # callers come often enough to move all messages
                    used, pause = time.monotonic(), min(2 * pause, RARELY)
                    continue
                needed = False
                while self._thread is me and self._may_attend():
                    needed = self._attend() or needed
                used, pause = time.monotonic(), GRACE if needed else min(2 * pause, RARELY)

    def _may_attend(self) -> bool:
        """Take the lock and return True if there are transfers that no caller moves."""
        busy = any(engine.busy() for engine in self.engines)
        return busy and not self._sleepers and self.lock.acquire(False)

    def _attend(self) -> bool:
        """Move what can move, with the lock held. Then sleep without it until more can.

        Returns whether there was anything to move.
        """
        moved = sleep = False
        try:
            while self._advance() and not self._sleepers:
                moved = True
            self._look()
            self._blocked(now())
            if not self._sleepers and not self._listen():
                self._thread_at_bell = sleep = True
        finally:
            self._let_go()
        if sleep:
            self._sleep(SLICE)
            self._thread_at_bell = False
            if self._sleepers:
                self._notify()
        return moved


def _one_is_done(transfers: Sequence[Any]) -> bool:
    if len(transfers) == 1:
        return bool(transfers[0].finished)
    return any(transfer.finished for transfer in transfers)
