"""A task in a thread of its own that outlives the call which started it: a study, a comparison.

It can be waited for, awaited and stopped, and shows itself in a notebook.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

from workbench.common.errors import RunTimeout

LOOK = 0.1  # seconds
LAST_LOOK = 10.0  # seconds that its pictures may take to be brought up to date at the end


class Ongoing:
    """Subclasses do the work, and call ``self.ended.set()`` when all of it is over."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.followers: list[threading.Thread] = []  # pictures of it, brought up to date at its end

    @property
    def done(self) -> bool:
        """Whether all of it is over."""
        return self.ended.is_set()

    def stop(self) -> None:
        """Stop what runs; start nothing more."""
        raise NotImplementedError

    def wait(self) -> Self:
        """Block until all is over; return this object."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        """Await the result, ``result = await wb.compare(...)``: the notebook stays responsive."""
        return self._awaited().__await__()

    async def _awaited(self) -> Self:
        while not self.done:
            await asyncio.sleep(LOOK)
        until = time.monotonic() + LAST_LOOK
        while any(one.is_alive() for one in self.followers) and time.monotonic() < until:
            await asyncio.sleep(LOOK)
        return self.wait()

    @contextlib.contextmanager
    def _waiting(self, patience: float = 10.0) -> Iterator[None]:
        """Wrap the wait for the end: Ctrl-C stops the task, within a limit of seconds.

        The pictures show the last state before the caller goes on.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.stop()
            self.ended.wait(patience)
            raise
        for follower in self.followers:
            follower.join(LAST_LOOK)

    # ---- in a notebook

    def _shower(self) -> Callable[[Any], None]:
        """Return the display. Raises ImportError where no user interface is installed."""
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        try:
            show = self._shower()
        except ImportError:
            print(self)
        else:
            show(self)


def run_over(run: Any, seconds: float) -> None:
    """Wait for a run, but no longer than that."""
    with contextlib.suppress(RunTimeout):
        run.wait(seconds, check=False, progress=False)
