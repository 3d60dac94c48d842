"""Wakes the thread of a process that waits for messages; ringing is one memory read if none waits.

A page that peers on the same host map: a word for each reason to be woken, and one semaphore.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.shared_memory.ordering import fence
from workbench.shared_memory.segments import SEMAPHORE_BYTES, Segment

PAGE = 4096
ROOM, MESSAGES = range(2)  # the words: it waits for room in a mailbox, it waits for messages


class Bell:
    """One reason to wake a process, as its peers hold it."""

    def __init__(self, bells: Bells, word: int) -> None:
        self._words, self._word, self._semaphore = bells.segment.words, word, bells.semaphore

    @property
    def place(self) -> tuple[memoryview, int]:
        """The page of the bell, and its word there, for a mover that rings it."""
        return self._words.cast("B"), self._word

    def ring(self) -> None:
        if _together.thread == threading.get_ident():
            _together.bells[id(self)] = self
        else:
            self.ring_now()

    def ring_now(self) -> None:
        fence()  # its word is read after what it looks for is there
        if self._words[self._word]:
            self._semaphore.release()


class _Together:
    """The bells that one thread rings once, at the end of ``together``."""

    def __init__(self) -> None:
        self.thread, self.bells = 0, dict[int, Bell]()

    def ring(self) -> None:
        """Ring what has come together so far, each once."""
        bells, self.bells = self.bells, {}
        for bell in bells.values():
            bell.ring_now()


_together = _Together()


def collecting() -> bool:
    """Return whether some thread rings its bells as ``together`` ends: then a mover must not."""
    return _together.thread != 0


@contextmanager
def together() -> Iterator[None]:
    """Ring at the end, once each, the bells that this thread rings meanwhile: a process woken by
    the first of several messages would only wait again for the next.
    """
    if _together.thread:  # another thread does, or this one already
        yield
        return
    _together.thread = threading.get_ident()
    try:
        yield
    finally:
        _together.ring()
        _together.thread = 0


class Bells:
    """A process's page."""

    def __init__(self, segment: Segment, fresh: bool) -> None:
        self.segment = segment
        self.semaphore = segment.semaphore(SEMAPHORE_BYTES, 0 if fresh else None)
        self.room, self.messages = Bell(self, ROOM), Bell(self, MESSAGES)

    @classmethod
    def create(cls) -> Bells:
        return cls(Segment.create(PAGE, "a process's bell"), fresh=True)

    def listen(self, room: bool, messages: bool) -> None:
        """Announce that a thread is about to wait; look for work once more, then ``wait``."""
        words = self.segment.words
        words[ROOM], words[MESSAGES] = room, messages
        # A locked instruction on x86: the announcement is out before what follows is read.
        self.semaphore.release()
        self.semaphore.acquire(True, 1.0)
        fence()

    def wait(self, seconds: float) -> None:
        if _together.thread == threading.get_ident():  # the peer that we wait for may wait for us
            _together.ring()
        self.semaphore.acquire(True, seconds)
        self.hush()

    def hush(self) -> None:
        """Announce that no thread waits any more."""
        words = self.segment.words
        words[ROOM] = words[MESSAGES] = 0
        while self.semaphore.acquire(False):
            pass

    def wake(self) -> None:
        """Wake every thread of this process that waits, for any reason."""
        self.semaphore.release()
