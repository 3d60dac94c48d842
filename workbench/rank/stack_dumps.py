"""A rank's position in the user's code, read from outside, even if the rank no longer responds.

At a signal faulthandler writes every thread's stack into a file in memory that the driver has too.
Nothing of Python's runs for that, so a loop without an end is found whatever it is in.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.experiment.spec import Experiment
from workbench.user_code.source import FOLDERS, Source

ASK = signal.SIGUSR1
PATIENCE = 5.0  # seconds for an answer, on a busy machine
STILL = 0.03  # seconds without another byte: that was all
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/")  # of another Python, too
_OF_A_SOURCE = re.compile(r"<source of (?P<name>\w+), \w+>")


def listen(fd: int, rank: int) -> None:
    """Make ASK write this process's stacks there from now on, and not end it."""
    faulthandler.register(ASK, file=fd, all_threads=True)
    os.write(fd, f"rank {rank}\n".encode())


class Lookout:
    """The driver's end: one file for all ranks, which it asks one after the other."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("workbench stacks", os.MFD_CLOEXEC)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # where a run could not begin

    def place(self, rank: int, ask: Callable[[], None]) -> StackFrame | None:
        """Return where a rank is in the user's code; None: nowhere, or it does not listen, or is
        stopped. ``ask`` sends it ASK.

        On busy cores a rank may lose its turn halfway through its answer. One without a line of the
        user's counts only if a second answer is the same.
        """
        if f"rank {rank}\n" not in self._text(0):
            return None
        deadline = time.monotonic() + PATIENCE
        before: list[list[StackFrame]] | None = None
        while time.monotonic() < deadline:
            stacks = self._answer(ask, deadline)
            if (place := users_place(stacks)) or (stacks and stacks == before):
                return place
            before = stacks
        return None

    def _answer(self, ask: Callable[[], None], deadline: float) -> list[list[StackFrame]]:
        """Return where each thread is, innermost first, as far as it is written by the deadline."""
        before = os.fstat(self.fd).st_size
        ask()
        size = before
        while time.monotonic() < deadline:
            time.sleep(STILL)
            if before < size == os.fstat(self.fd).st_size:
                break
            size = os.fstat(self.fd).st_size
        return read(self._text(before))

    def _text(self, start: int) -> str:
        return os.pread(self.fd, os.fstat(self.fd).st_size, start).decode(errors="replace")


@dataclass(frozen=True)
class StackFrame:
    """A line of code, and the function that it is in."""

    file: str
    line: int
    function: str

    @property
    def users_own(self) -> bool:
        """Whether the code is the user's: neither ours nor a library's."""
        if self.file.startswith("<"):
            return _OF_A_SOURCE.fullmatch(self.file) is not None
        if self.file.startswith((str(FOLDERS), str(Path(os.__file__).parent))):
            return False
        return _LIBRARY.search(self.file) is None

    def words(self, exp: Experiment) -> str:
        """Describe the place: "line 4 of the source of MyTask, in loss: while True:"."""
        of = _OF_A_SOURCE.fullmatch(self.file)
        code = _codes(exp).get(of["name"], "") if of else _read(Path(self.file))
        lines = code.splitlines()
        text = lines[self.line - 1].strip() if self.line <= len(lines) else ""
        where = f"the source of {of['name']}" if of else Path(self.file).name
        return f"line {self.line} of {where}, in {self.function}{f': {text}' if text else ''}"


def read(text: str) -> list[list[StackFrame]]:
    """Read stacks as faulthandler writes them, letter by letter, the threads in its order; of a
    line without an end nothing is known.
    """
    result: list[list[StackFrame]] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        if frame := _FRAME.fullmatch(line):
            if result:
                result[-1].append(StackFrame(frame["file"], int(frame["line"]), frame["function"]))
        elif "most recent call first" in line:
            result.append([])
    return result


def users_place(stacks: list[list[StackFrame]]) -> StackFrame | None:
    """Return the user's line that is nearest to where a thread is; None: no thread is in the user's
    code.

    A thread that stands in the user's code itself goes before one that has called a library there.
    """
    frames = [
        (depth, place) for stack in stacks for depth, place in enumerate(stack) if place.users_own
    ]
    return min(frames, key=lambda one: one[0])[1] if frames else None


def _codes(exp: Experiment) -> dict[str, str]:
    """Return the sources that an experiment carries, by name."""
    fields = {name: getattr(exp, name) for name in type(exp).model_fields}
    return {one.name: one.code for one in _sources(fields)}


def _sources(value: Any) -> Iterator[Source]:
    if isinstance(value, Source):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _sources(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _sources(one)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace", encoding="utf-8")
    except OSError:
        return ""
