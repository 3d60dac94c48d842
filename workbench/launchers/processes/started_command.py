"""Launchers that start their agents with a command: mpiexec, torchrun, srun.

    driver ─ guardian ─ mpiexec ─ ... ─ agents ─ ranks

The command runs below a guardian of its own (guardian.py), so that it ends with the driver, however
that ends, and with all that it has started on this machine. What the command itself says is kept,
and its last words are the reason where no agent calls; what ranks print comes through their agents.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.common import guardian, threads
from workbench.common.environment import without_ranks
from workbench.launchers.processes.elsewhere import AgentLauncher
from workbench.shared_memory.segments import how_it_ended

WORDS = 12  # last lines of a command that are kept
GENTLE = 1.5  # seconds for a command to end by itself, once its ranks have
# Without the package, which would take longer to import than all that this does.
_KEEPER = """
import os
import runpy

def serve(fd, life_lines):
    os.set_inheritable({fd}, False)
    os.execvp({words}[0], {words})

runpy.run_path({guardian!r})["main"]({fd}, {driver}, serve)
"""


class Command:
    """A command that runs while the driver does. ``script``: what it reads from its input."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], script: str = ""
    ) -> None:
        self.name = Path(words[0]).name
        mine, theirs = socket.socketpair()
        code = _KEEPER.format(
            words=list(words), guardian=guardian.__file__, fd=theirs.fileno(), driver=os.getpid()
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            env={**without_ranks(os.environ), **environment},
            stdin=subprocess.PIPE if script else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is the driver's business
        )
        theirs.close()
        self._line = mine
        if script:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
                stdin.write(script.encode())
        self._words: deque[str] = deque(maxlen=WORDS)
        self._reader = threads.start(self._read, f"workbench {self.name}", self._hang_up)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if text := line.decode(errors="replace").strip():
                self._words.append(text)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def killed(self) -> bool:
        return (self._process.poll() or 0) < 0

    @property
    def end(self) -> str:
        """Return how it ended, and its last words; "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        self._reader.join(1.0)
        output = f": {' / '.join([*self._words][-3:])}" if self._words else ""
        return f"{self.name} {how_it_ended(code)}{output}"

    @property
    def lines(self) -> list[str]:
        """Return the last lines of what it has said."""
        return [*self._words]

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, no longer than that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def close(self, gentle: float = GENTLE) -> None:
        """Wait ``gentle`` seconds for the command's end; then end it with all that it started."""
        self.wait(gentle)
        self._hang_up()
        try:
            self._process.wait(guardian.LONGEST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(1.0)
        self._line.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _hang_up(self) -> None:
        """Have the guardian end it, which reads that the driver has gone."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)


class CommandLauncher(AgentLauncher):
    """A launcher that starts its agents with one command: a subclass says which."""

    def __init__(self) -> None:
        super().__init__()
        self._commands: list[Command] = []

    def command(self, count: int) -> list[str]:
        """Return the words of the command that starts this number of agents."""
        raise NotImplementedError

    def start(self, count: int, environment: dict[str, str]) -> None:
        self._commands = [Command(self.command(count), environment)]

    def words(self, count: int) -> str:
        return shlex.join(self.command(count))

    def failure(self) -> str:
        return next((one.end for one in self._commands if not one.alive), "")

    @property
    def alive(self) -> bool:  # type: ignore[override]  # as it is now
        """False where a command was killed, or has ended before the agents could say how their
        ranks did; one that ends after its ranks is not a cause of anything.
        """
        gone = [one for one in self._ranks if one.silent]
        if gone and len(gone) == len(self._ranks):  # with the command, it seems: is it so?
            for one in self._commands:
                one.wait(GENTLE)
        over = [one for one in self._commands if not one.alive]
        return not over or not (gone or any(one.killed for one in over))

    @property
    def end(self) -> str:  # type: ignore[override]
        """Say how the command ended; mpiexec ends by itself, with all ranks, once an agent is
        killed: then also whose was the first to go.
        """
        gone = [one for one in self._ranks if one.silent]
        if not gone or any(one.killed for one in self._commands):
            return self.failure()
        first = min(gone, key=lambda one: one.gone_at)
        return f"the agent of rank {first.rank} is gone, and {self.failure()}"

    def close(self, ranks: int) -> None:
        """End what is left of the command."""
        super().close(ranks)
        deadline = time.monotonic() + GENTLE
        for one in self._commands:
            one.close(max(0.0, deadline - time.monotonic()))
        self._commands = []


def program(name: str) -> str | None:
    """Return the path of a program: beside this Python, or on PATH; None where there is none."""
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    return beside or shutil.which(name)
