"""What a process's groups share: where records go, who steers, which algorithm runs.

torch creates process groups on its own account (sub-groups of a device mesh, of FSDP, ...) and
gives them nothing of ours, so this one thing is the process's, not the caller's. In a Run the
launcher sets it; in anybody's script it comes from the environment:

    WORKBENCH_TRACE       folder in which every rank keeps its records     (default: nothing is
    recorded)
    WORKBENCH_ALL_REDUCE  ring, naive, one_shot, auto                      (default: auto)
    WORKBENCH_CHUNK       bytes of a slot                                  (default: 262144)
    WORKBENCH_VERIFY      1: a checksum with every slot                    (default: 0)
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.control import Control
from workbench.errors import SpecError
from workbench.events import Recorder

DEFAULT_SLOT = 262_144


class Session:
    """Settings of this process. ``functions`` holds a user's own algorithms by name."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        control: Control | None = None,
        slot_bytes: int = DEFAULT_SLOT,
        all_reduce: str = "auto",
        generation: int = 0,
        native: bool = False,
        functions: dict[tuple[str, str], Callable[..., Any]] | None = None,
    ) -> None:
        self.recorder, self.control, self.slot_bytes = recorder, control, slot_bytes
        self.all_reduce, self.generation = all_reduce, generation
        # Every operation in the group inside, for comparison; operations are recorded, chunks are
        # not.
        self.native = native
        self._functions = dict(functions or {})
        self.driver: Any = None  # moves the messages of all groups; made with the first one
        self.lost: set[int] = set()  # world ranks that have ended and whom the groups could spare
        self._labels = threading.local()
        self.next_group = (
            ""  # the name of the group that is made next, if it is to have a certain one
        )

    def algorithm(self, operation: str, name: str) -> Callable[..., Any]:
        """The function of ``collectives/<operation>_<name>.py``, or the user's own of that name."""
        if (operation, name) not in self._functions:
            module = importlib.import_module(f"workbench.collectives.{operation}_{name}")
            self._functions[operation, name] = getattr(module, operation)
        found: Callable[..., Any] = self._functions[operation, name]
        return found

    @contextmanager
    def label(self, text: str) -> Iterator[None]:
        """Name the collectives that this thread starts inside ("bucket 0")."""
        self._labels.text = text
        try:
            yield
        finally:
            self._labels.text = ""

    def current_label(self) -> str:
        return getattr(self._labels, "text", "")

    def group_name(self, torch_name: str, whole: bool) -> str:
        """What a new process group is called in the records."""
        given, self.next_group = self.next_group, ""
        return given or ("default" if whole else torch_name)


_current: Session | None = None


def use(session: Session) -> None:
    """Make this the process's session (the launcher does, before any group is made)."""
    global _current
    _current = session


def session(rank: int = 0) -> Session:
    """The process's session; on first use made from the environment, for world rank ``rank``."""
    global _current
    if _current is None:
        _current = _from_environment(rank)
    return _current


def last_words() -> None:
    """Leave in the records that this process ends by itself, and what it raised if it did."""
    if _current is not None:
        error = getattr(sys, "last_value", None)  # what the interpreter has just printed
        told = [type(error).__name__, *str(error).strip().splitlines()[:1]] if error else []
        _current.recorder.end(": ".join(told))


def _from_environment(rank: int) -> Session:
    folder = os.environ.get("WORKBENCH_TRACE")
    recorder = Recorder.into_folder(Path(folder), rank) if folder else Recorder.off(rank)
    chosen = os.environ.get("WORKBENCH_ALL_REDUCE", "auto")
    here = Path(__file__).parent / "collectives"
    names = sorted(file.stem.removeprefix("all_reduce_") for file in here.glob("all_reduce_*.py"))
    if chosen not in ("auto", *names):
        raise SpecError(f"WORKBENCH_ALL_REDUCE={chosen!r}: there is {', '.join(names)} and auto")
    return Session(
        recorder, slot_bytes=int(os.environ.get("WORKBENCH_CHUNK", DEFAULT_SLOT)), all_reduce=chosen
    )
