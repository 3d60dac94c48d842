"""The parent of an agent, where a framework's own process (Ray's actor, Spark's task) is to start
it.

Such a process imports this module while its rank is to start, so it imports next to nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

AGENT = ("-m", "workbench.launchers.processes.agent")  # of a Python, as a module


def be_parent(variables: dict[str, str], fds: Sequence[int] = ()) -> int:
    """Run an agent with these variables and descriptors, which ends with this process. Returns its
    exit code.
    """
    words = [sys.executable, *AGENT, str(os.getpid())]
    own = {**os.environ, **variables}
    return subprocess.call(words, env=own, stdin=subprocess.DEVNULL, pass_fds=fds)


class Actor:
    """The agent's parent on a node of Ray's."""

    def serve(self, variables: dict[str, str]) -> int:
        """Start the agent and wait for its end. Returns its exit code."""
        return be_parent(variables)


class BarrierTask:
    """The work of a task of Spark's; it travels by name, with the agents' variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def __call__(self, _rows: Iterator[int]) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        yield be_parent({**self.variables, "RANK": str(context.partitionId())})
