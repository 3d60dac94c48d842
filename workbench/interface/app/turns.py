"""Threads that draw the content of pages. Visitors take turns, so that a slow page delays no other.

    refresh -> asked already? -> the visitor's queue -> a free thread, by turns

Reading millions of events takes seconds. One visitor has at most ``SHARE`` of the threads, and one
component of a page at most one: a refresh that is asked for meanwhile is done once, afterwards.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

THREADS = 8
SHARE = 2  # of one visitor

Task = Callable[[], None]


class Turns:
    """A few threads; visitors are served one after the other."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        self._threads, self._share = threads, share
        self._pool = ThreadPoolExecutor(threads, "drawing")
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Task]] = {}  # by visitor; whose turn is next comes first
        self._busy: Counter[str] = Counter()

    def do(self, visitor: str, task: Task) -> None:
        """Call the function when it is this visitor's turn."""
        with self._lock:
            self._waiting.setdefault(visitor, deque()).append(task)
            self._start()

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Give free threads to those whose turn it is."""
        while self._busy.total() < self._threads:
            visitor = next((one for one in self._waiting if self._busy[one] < self._share), None)
            if visitor is None:
                return
            tasks = self._waiting.pop(visitor)
            task = tasks.popleft()
            if tasks:
                self._waiting[visitor] = tasks  # behind all others
            self._busy[visitor] += 1
            self._pool.submit(self._work, visitor, task)

    def _work(self, visitor: str, task: Task) -> None:
        guarded(task)
        with self._lock:
            self._busy -= Counter((visitor,))
            self._start()


class Redrawing:
    """A part of a page that is drawn again whenever it is asked for, once at a time."""

    def __init__(self, turns: Turns, visitor: str, draw: Task) -> None:
        self._turns, self._visitor, self._draw = turns, visitor, draw
        self._lock = threading.Lock()
        self._is_due = self._queued = False

    def ask(self) -> None:
        """Draw it, and see what there is now: also if it is being drawn."""
        with self._lock:
            self._is_due = True
            if self._queued:
                return
            self._queued = True
        self._turns.do(self._visitor, self._work)

    def _work(self) -> None:
        with self._lock:
            self._is_due = False
        try:
            self._draw()
        finally:
            with self._lock:  # afterwards a caller queues it
                again = self._queued = self._is_due
            if again:
                self._turns.do(self._visitor, self._work)


def guarded(task: Task) -> None:
    """Call the function; print its error in the terminal, since its result is not used."""
    try:
        task()
    except Exception:
        traceback.print_exc(file=sys.stderr)
