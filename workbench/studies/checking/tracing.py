"""Trace a user's function while it runs: its line, its current wait, writes outside its tensors.

Only a check pays for this: a traced line costs about a microsecond.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

from workbench.messaging.communicator import Communicator
from workbench.transports.arrays import flat_array

GUARD = 64  # elements before and after each tensor that must stay as they are
GUARD_BYTE = 0xA5
MOST_OUTPUT = 4_000  # characters of what a rank prints that are kept


class LineTracer:
    """Traces the lines of the user's own code, in the files for which ``is_own`` returns True.

    ``line`` and ``function``: the current position, or the last one. ``watch`` is called before
    each
    line and names the damage that the previous line did, or returns "".
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._known: dict[str, bool] = {}
        self.line, self.function = -1, ""
        self.watch: Callable[[], str] = lambda: ""
        self.broken: tuple[str, int] | None = None  # the damage, and the line that did it

    @contextmanager
    def followed(self, watch: Callable[[], str]) -> Iterator[None]:
        self.line, self.function, self.watch, self.broken = -1, "", watch, None
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)
            self._look()

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        is_own = self._known.get(file)
        if is_own is None:
            is_own = self._known[file] = self._is_own(file)
        return self._line if is_own else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._look()
        if event == "line":
            self.line, self.function = frame.f_lineno, frame.f_code.co_name
        return self._line

    def _look(self) -> None:
        if self.broken is None and (damage := self.watch()):
            self.broken = damage, self.line

    def standing(self, thread: int) -> tuple[int, str]:
        """Return the line and function that ``thread`` is in; called from another thread."""
        frame = sys._current_frames().get(thread)
        while frame is not None and not self._known.get(frame.f_code.co_filename):
            frame = frame.f_back
        return (frame.f_lineno, frame.f_code.co_name) if frame else (-1, "")


class GuardedTensor:
    """A flat tensor with guard words before and after it."""

    def __init__(self, name: str, values: np.ndarray, *, may_change: bool = True) -> None:
        n, itemsize = len(values), values.itemsize
        self.name, self.may_change, self._before = name, may_change, values
        self._memory = np.full((n + 2 * GUARD) * itemsize, GUARD_BYTE, np.uint8)
        whole = torch.from_numpy(self._memory.view(values.dtype))
        self.tensor = whole[GUARD : GUARD + n]
        self.array: np.ndarray = self._memory.view(values.dtype)[GUARD : GUARD + n]
        self.array[:] = values
        edge = GUARD * itemsize
        self._edges = self._memory[:edge].data, self._memory[len(self._memory) - edge :].data
        self._right = bytes([GUARD_BYTE]) * edge

    def broken(self) -> str:
        """Return where memory outside the tensor was overwritten, or ""."""
        if self._edges[0] != self._right:
            return f"before the start of {self.name}"
        return f"behind the end of {self.name}" if self._edges[1] != self._right else ""

    def changed(self) -> bool:
        """Return whether an input that must stay as it is was changed."""
        return not self.may_change and self.array.tobytes() != self._before.tobytes()


class TracingCommunicator(Communicator):
    """A communicator that knows its current operation, and the line that sent each message."""

    lines: LineTracer
    doing = ""

    def fresh(self) -> None:
        self.sent_from: dict[int, list[int]] = {}  # receiver -> the line of every slot sent to it

    @contextmanager
    def _in(self, operation: str) -> Iterator[None]:
        before, self.doing = self.doing, operation
        try:
            yield
        finally:
            self.doing = before

    def _note(self, tensors: list[Any], to: int, slot: int) -> None:
        slots = sum(len(self._pieces(flat_array(tensor), slot)) for tensor in tensors)
        self.sent_from.setdefault(to, []).extend([self.lines.line] * slots)

    def send(self, x: Any, *, to: int, slot: int = 0, **place: Any) -> None:
        self._note([x], to, slot)
        with self._in("send"):
            super().send(x, to=to, slot=slot, **place)

    def post(self, x: Any, *, to: int, slot: int = 0, **place: Any) -> None:
        self._note([x], to, slot)
        with self._in("post"):
            super().post(x, to=to, slot=slot, **place)

    def recv(self, into: Any, *, frm: int | None, **place: Any) -> int:
        with self._in("recv"):
            return super().recv(into, frm=frm, **place)

    def exchange(
        self, x: Any, *, to: int, into: Any, frm: int, slot: int = 0, **place: Any
    ) -> None:
        self._note(x if isinstance(x, list) else [x], to, slot)
        with self._in("exchange"):
            super().exchange(x, to=to, into=into, frm=frm, slot=slot, **place)

    def relay(self, mine: Any, *, frm: int, to: int, slot: int = 0, **place: Any) -> None:
        self._note([mine], to, slot)
        with self._in("relay"):
            super().relay(mine, frm=frm, to=to, slot=slot, **place)


class OutputBuffer:
    """A rank's stdout and stderr: keeps the first characters and counts the others."""

    encoding, errors = "utf-8", "replace"

    def __init__(self) -> None:
        self.kept, self.characters = "", 0
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            self.kept += text[: max(0, MOST_OUTPUT - len(self.kept))]
            self.characters += len(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def take(self) -> tuple[str, int]:
        with self._lock:
            text_and_count = self.kept, self.characters
            self.kept, self.characters = "", 0
        return text_and_count
