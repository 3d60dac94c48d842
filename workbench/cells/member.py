"""The driver's end of one rank that runs cells: its process, and the pipes that it prints into."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.cells.output import Lines
from workbench.launchers.processes.pool import ForkServer
from workbench.launchers.processes.rank_handle import LocalRank


class Member(LocalRank):
    """A fresh process. ``out``, ``err``: what it prints."""

    def __init__(self, rank: int, home: ForkServer) -> None:
        (process,) = home.take(1)  # first: where there is none nothing is open yet
        super().__init__(rank, process, home)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        self.out, self.err = (Lines(read) for read, _ in pipes)
        self._writes = [write for _, write in pipes]

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send it a message; with the first one go the ends of the pipes that it prints into."""
        super().order(message, fds=[*fds, *self._writes])
        self._close_writes()

    @property
    def end(self) -> str:
        return f"(process {self.pid}) {super().end}"

    def close(self) -> None:
        super().close()
        self.out.close()
        self.err.close()
        self._close_writes()

    def _close_writes(self) -> None:
        while self._writes:
            os.close(self._writes.pop())
