"""The runs of this process that are live, and its teams of ranks that run cells.

Each registers before it starts a process, under every launcher, and leaves when its last process
has ended: ``wb.runs()`` lists them, ``wb.shutdown()`` ends them all. A notebook's run goes on when
no variable refers to it any more, because its picture is still live. In a script nothing is left
to look at such a run: a ResourceWarning names it, and it ends. A fork of the process has none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.common import threads
from workbench.common.errors import WorkbenchError
from workbench.common.units import counted

LONGEST = 40.0  # seconds for all processes of a run to end, on a busy machine
STUDIES = 20.0  # seconds that a study has to see that it must start no other run
kept: bool | None = None  # do runs go on that nothing refers to? None: in a notebook they do


def _shell() -> Any:
    """Return the notebook's shell, or IPython's; None in a script."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _cell() -> int | None:
    """Return the number of the cell that is being run; None in a script."""
    return getattr(_shell(), "execution_count", None)


@dataclass(eq=False)
class Entry:
    """A live run, or a live team of ranks."""

    refer: Callable[[], Any]  # its user's object; None once nothing refers to that
    call_off: Callable[[str], object]  # has it end now, for this reason
    launcher: str
    ending: str  # the method that ends it
    since: float = field(default_factory=time.monotonic)
    cell: int | None = field(default_factory=_cell)  # in which it began
    thread: threading.Thread | None = None  # which watches over it

    def leave(self) -> None:
        """Note that all of its processes have ended."""
        _entries.pop(self, None)

    def words(self) -> str:
        """Return what it is, since when it lives and by which processes."""
        one = self.refer()
        title = one.store.metadata.get("title", "")
        pids = " ".join(map(str, one.pids.values()))
        return (
            f"{one!r}{f' {title!r}' if title else ''}, live for "
            f"{time.monotonic() - self.since:.0f} s, launcher {self.launcher}, processes {pids}"
        )


class LiveRuns(list[Any]):
    """Live runs and teams of ranks; as text, each with how to end it."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        """Hold the objects of these entries."""
        super().__init__(entry.refer() for entry in entries)
        self._lines = [
            f"[{at}] {entry.words()}: wb.runs()[{at}].{entry.ending}() ends it"
            for at, entry in enumerate(entries)
        ]

    def __repr__(self) -> str:
        if not self._lines:
            return "no run is live"
        return "\n".join([f"{len(self)} live; wb.shutdown() ends all of them", *self._lines])


_entries: dict[Entry, None] = {}  # in the order in which they began


def register(entry: Entry) -> Entry:
    """Count it as live, until it leaves."""
    _entries[entry] = None
    return entry


def live() -> list[Entry]:
    """Return what is live and has processes, the oldest first."""
    objects = [(entry, entry.refer()) for entry in [*_entries]]
    return [entry for entry, one in objects if one is not None and one.pids and not one.done]


def runs() -> LiveRuns:
    """Return the live runs of this process, and its teams of ranks (``wb.ranks``), oldest first.

    Their text says how long each has lived, by which processes, and what ends it; ``run.stop()``
    ends one, ``wb.shutdown()`` all.

    >>> wb.runs()
    """
    return LiveRuns(live())


def say_others() -> None:
    """Say in one line, on stderr, which runs are live beside the one that begins now, but for those
    that began in the same cell of a notebook.
    """
    here = _cell()
    runs = [entry for entry in live() if entry.ending == "stop"]
    others = [entry for entry in runs if here is None or entry.cell != here]
    if others:
        verb, object_ = ("is", "it") if len(others) == 1 else ("are", "them")
        print(
            f"[workbench] {counted(len(others), 'other run')} {verb} live: {others[0].words()}"
            f"{', ...' * (len(others) > 1)}. wb.runs() lists, wb.shutdown() ends {object_}",
            file=sys.stderr,
        )


def goes_on_alone() -> bool:
    """Return whether a run goes on to which no reference is left: in a notebook, and at a prompt,
    where a run is live by what it shows.
    """
    if kept is not None:
        return kept
    return _shell() is not None or hasattr(sys, "ps1")


def end(chosen: Sequence[Entry], why: str) -> None:
    """End these now, and return when their processes have ended. ``why``: the words of their error.

    Raises WorkbenchError, which names them, where processes do not end.
    """
    mine = threading.current_thread()  # a run's own thread may call this, and cannot wait for it
    waited = [entry for entry in chosen if entry.thread is not mine]
    for entry in waited:
        entry.call_off(why)
    deadline = time.monotonic() + LONGEST
    while left := [entry for entry in waited if entry in _entries and entry.refer() is not None]:
        if time.monotonic() > deadline:
            names = "; ".join(entry.words() for entry in left)
            raise WorkbenchError(f"not ended within {LONGEST:.0f} s: {names}")
        time.sleep(0.002)


def end_all(why: str, but: Collection[Entry] = ()) -> None:
    """End all that is live or about to be, also what a study starts that has yet to stop; ``but``
    these go on.
    """
    deadline = time.monotonic() + STUDIES
    while True:
        end([entry for entry in [*_entries] if entry not in but], why)
        if not threads.launching() or time.monotonic() > deadline:
            return
        time.sleep(0.005)


os.register_at_fork(after_in_child=_entries.clear)
