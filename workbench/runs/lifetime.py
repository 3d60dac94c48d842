"""The lifetime of a run: until its last iteration, until it is told to end, or, in a script, until
no reference to it is left.

    run = wb.run(exp)  ──>  Run, its user's ──┐
                                              ├── one dictionary of attributes
    the thread that watches  ──>  its twin ───┘

The thread holds a twin of the run, another object with the very same attributes. So the user's own
goes with the last reference to it, which is noticed. Where the run goes on, ``wb.runs()`` gives it
a new one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self

from workbench.common import live_runs
from workbench.common.arguments import Function, checked
from workbench.common.user_warnings import warn_user
from workbench.launchers.processes.launcher import Launcher
from workbench.runs.rank_control import RankControl
from workbench.shared_memory.control_block import STOP

if TYPE_CHECKING:
    from workbench.store.result import Result

LEAVING = 3.0  # seconds for the iteration that is under way to end, where a `with` block is left


class Lifetime:
    """The part of ``Run`` that begins and ends with it."""

    _at_end: list[Callable[[], None]] | None  # None once these have been called
    _called_off = ""  # why the run ends now, whatever its ranks do
    _entry: live_runs.Entry
    _finished: threading.Event
    _launcher: Launcher
    _lock: threading.RLock
    _of_user: weakref.ref[Self]
    _ranks: RankControl
    _launched = False  # are all processes there?

    @property
    def done(self) -> bool:
        """Whether the run is over, well or not."""
        return self._finished.is_set()

    def wait(self, timeout: float | None = None) -> Result:
        """Block until the run is over. ``timeout``: seconds."""
        raise NotImplementedError

    @checked
    def at_end(self, call: Function) -> None:
        """Call ``call`` when the run is over, before waiting callers go on; now, if it is over."""
        with self._lock:
            if self._at_end is not None:
                return self._at_end.append(call)
        call()

    def __await__(self) -> Generator[Any, None, Result]:
        """Await the result, ``result = await run``: the notebook stays responsive."""
        return self._awaited().__await__()

    async def _awaited(self) -> Result:
        while not self.done:
            await asyncio.sleep(0.02)
        return self.wait(0)

    def stop(self) -> None:
        """End the run after an iteration."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, after the iteration that is under way if that ends soon."""
        if not self.done:
            self.stop()
            if not self._finished.wait(LEAVING):
                live_runs.end([self._entry], "the `with` block of the run was left")

    def _twin(self) -> Self:
        """Return another object with the very same attributes."""
        twin = object.__new__(type(self))
        twin.__dict__ = self.__dict__
        return twin

    def _register(self, launcher: str) -> Self:
        """Count as live. Returns the twin for the thread that watches over the run."""
        twin, self._of_user = self._twin(), weakref.ref(self)
        self._entry = live_runs.Entry(twin._user, twin._call_off, launcher, "stop")
        live_runs.register(self._entry)
        return twin

    def _user(self) -> Self:
        """Return the run that its user holds, or a new one where that is gone."""
        if (user := self._of_user()) is None:
            user = self._twin()
            self._of_user = weakref.ref(user)
            user._notice_last_reference()
        return user

    def _notice_last_reference(self) -> None:
        """Have ``_note_unreferenced`` called when no reference to this object is left."""
        weakref.finalize(self, _note_unreferenced, self._twin(), os.getpid()).atexit = False

    def _call_off(self, why: str) -> None:
        """Have the ranks killed, and the run be over with this error. Takes no lock: it is also
        called where the last reference to the run goes, in the middle of anything.
        """
        self._called_off = why
        if not self._launched:  # they are being started, and the launcher waits for them
            self._launcher.close(0)


def _note_unreferenced(run: Lifetime, owner: int) -> None:
    """Warn of a live run to which no reference is left, and end it; a notebook's goes on."""
    ends = run.done or run._called_off or run._ranks.control.words[STOP]
    if ends or os.getpid() != owner or live_runs.goes_on_alone():
        return
    run._call_off("no reference to the run was left")
    warn_user(
        f"{run!r} is live and no reference to it is left, so it ends now. Keep it (run = "
        "wb.run(...)) and wait for it (run.wait()), or end it: `with wb.run(...) as run:`",
        ResourceWarning,
    )
