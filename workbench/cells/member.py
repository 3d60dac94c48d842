"""The driver's end of one rank that runs cells: its process, its pipes, its trace."""

from __future__ import annotations

import os
from typing import Any

from workbench.cells.output import Lines
from workbench.launchers.processes.pool import ForkServer
from workbench.launchers.processes.rank_handle import LocalRank
from workbench.shared_memory.segments import Segment


class Member(LocalRank):
    """A process with its orders. ``out``, ``err``: what it prints."""

    def __init__(
        self, rank: int, home: ForkServer, control: Segment, trace: Segment, orders: dict[str, Any]
    ) -> None:
        (process,) = home.take(1)  # first: where there is none nothing is open yet
        super().__init__(rank, process, home)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        self.out, self.err = (Lines(read) for read, _ in pipes)
        fds = [control.fd, trace.fd, *(write for _, write in pipes)]
        self.order({"work": "cells", "rank": rank, **orders}, fds=fds)
        for _, write in pipes:
            os.close(write)
        trace.close()  # the collector reads its memory

    @property
    def end(self) -> str:
        return f"(process {self.pid}) {super().end}"

    def close(self) -> None:
        super().close()
        self.out.close()
        self.err.close()
