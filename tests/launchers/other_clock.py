"""Ranks of two hosts, of which the second has a clock of its own: a launcher for tests."""

from __future__ import annotations

import sys

from workbench.launchers.processes.agents_parent import AGENT
from workbench.launchers.processes.started_command import Command, CommandLauncher


class Launcher(CommandLauncher):
    """Rank 1 on a host whose clock is ahead."""

    def command(self, count: int) -> list[str]:
        return [sys.executable, *AGENT]

    def start(self, count: int, environment: dict[str, str]) -> None:
        for rank in range(count):
            words = [sys.executable, *AGENT]
            own = {"RANK": str(rank), "WORKBENCH_HOST": f"host {rank}"}
            if rank == 1:
                shift = ["--monotonic", "1000", "--boottime", "1000"]
                words = ["unshare", "--time", "--fork", "--kill-child", *shift, *words]
            self._commands.append(Command(words, {**environment, **own}))
