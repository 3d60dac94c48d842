"""Where a rank is in the user's code, asked from outside: of one that answers nothing any more.

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

from workbench.source import FOLDERS, Source
from workbench.spec import Experiment

ASK = signal.SIGUSR1
PATIENCE = 1.0  # seconds for an answer, on a busy machine
STILL = 0.03  # seconds without another byte: that was all
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_OF_A_SOURCE = re.compile(r"<source of (?P<name>\w+), \w+>")


def listen(fd: int, rank: int) -> None:
    """From now on ASK has this process write its stacks there, and not end."""
    faulthandler.register(ASK, file=fd, all_threads=True)
    os.write(fd, f"rank {rank}\n".encode())


class Lookout:
    """The driver's end: one file for all ranks, who are asked one after the other."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("workbench stacks", os.MFD_CLOEXEC)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # where a run could not begin

    def stacks(self, rank: int, ask: Callable[[], None]) -> list[list[Place]]:
        """Where each thread of a rank is, innermost first; nothing if it does not listen, or is
        stopped. ``ask`` sends it ASK.
        """
        if f"rank {rank}\n" not in self._text(0):
            return []
        before = os.fstat(self.fd).st_size
        ask()
        deadline, size = time.monotonic() + PATIENCE, before
        while time.monotonic() < deadline:
            time.sleep(STILL)
            if before < size == os.fstat(self.fd).st_size:
                break
            size = os.fstat(self.fd).st_size
        return read(self._text(before))

    def _text(self, start: int) -> str:
        return os.pread(self.fd, os.fstat(self.fd).st_size, start).decode(errors="replace")


@dataclass(frozen=True)
class Place:
    """A line of code, and the function that it is in."""

    file: str
    line: int
    function: str

    @property
    def users_own(self) -> bool:
        """Is it neither ours nor of a library?"""
        if self.file.startswith("<"):
            return _OF_A_SOURCE.fullmatch(self.file) is not None
        libraries = (str(FOLDERS), str(Path(os.__file__).parent))
        return not self.file.startswith(libraries) and "/site-packages/" not in self.file

    def words(self, exp: Experiment) -> str:
        """ "line 4 of the source of MyTask, in loss: while True:"."""
        of = _OF_A_SOURCE.fullmatch(self.file)
        code = _codes(exp).get(of["name"], "") if of else _read(Path(self.file))
        lines = code.splitlines()
        text = lines[self.line - 1].strip() if self.line <= len(lines) else ""
        where = f"the source of {of['name']}" if of else Path(self.file).name
        return f"line {self.line} of {where}, in {self.function}{f': {text}' if text else ''}"


def read(text: str) -> list[list[Place]]:
    """Stacks as faulthandler writes them, the threads' in its order."""
    found: list[list[Place]] = []
    for line in text.splitlines():
        if frame := _FRAME.fullmatch(line):
            if found:
                found[-1].append(Place(frame["file"], int(frame["line"]), frame["function"]))
        elif "most recent call first" in line:
            found.append([])
    return found


def users_place(stacks: list[list[Place]]) -> Place | None:
    """The user's line that is nearest to where a thread is; None: no thread is in the user's code.

    A thread that stands in the user's code itself goes before one that has called a library there.
    """
    own = [
        (depth, place) for stack in stacks for depth, place in enumerate(stack) if place.users_own
    ]
    return min(own, key=lambda one: one[0])[1] if own else None


def _codes(exp: Experiment) -> dict[str, str]:
    """The sources that an experiment carries, by name."""
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
        return file.read_text(errors="replace")
    except OSError:
        return ""
