"""``workbench`` as a process that begins with everything imported, which takes 5 to 8 s of a core.

A template imports panel, torch and the web app once, and forks each process, which then runs the
program as ``python -c`` does, through the whole end of the interpreter. That all is imported in
time where nothing has been is the subject of tests that start the command itself
(tests/interface/test_serving_commands.py, tests/browser).
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.processes import ForkServer, serve


class Forked:
    """A process of the template: as ``subprocess.Popen``, whose names these are."""

    def __init__(
        self, program: str, words: Sequence[str], env: Mapping[str, str], log: Path
    ) -> None:
        log.touch()
        task = {"program": program, "words": [*words], "env": {**env}, "log": str(log)}
        self.pid = _template().fork(task)

    def poll(self) -> int | None:
        return _template().code(self.pid)

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _template() -> ForkServer:
    return ForkServer("tests.forked")


def _perform(task: dict[str, Any]) -> None:
    """Be one process: with its own environment, output and words."""
    import tempfile

    from workbench.common.guardian import end_with

    end_with(os.getppid())
    with open(task["log"], "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(task["env"])
    tempfile.tempdir = None  # as TMPDIR says now
    sys.argv = ["-c", *task["words"]]
    exec(compile(task["program"], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    import gc

    import plotly.graph_objs  # noqa: F401
    import torch.distributed  # noqa: F401

    import workbench.cli
    import workbench.interface.app.serving  # noqa: F401

    gc.freeze()  # else the first collection of each process copies all pages
    work = serve(int(sys.argv[1]))
    if work is not None:
        _perform(work)
