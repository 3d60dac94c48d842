"""The parent of agents, where a framework's own process (Ray's actor, Spark's task) is to start
them: those of a host's ranks together, by one command.

Such a process imports this module while its ranks are to start, so it imports next to nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

AGENT = ("-m", "workbench.launchers.processes.agent")  # of a Python, as a module
# The agents of all ranks in WORKBENCH_RANKS, by one command per host.
AGENTS = ("-m", "workbench.launchers.processes.host_agents")


def be_parent(variables: dict[str, str], fds: Sequence[int] = ()) -> int:
    """Run an agent, or those of WORKBENCH_RANKS, with these variables and descriptors, which end
    with this process. Returns the exit code.
    """
    module = AGENTS if "WORKBENCH_RANKS" in variables else AGENT
    words = [sys.executable, *module, str(os.getpid())]
    own = {**os.environ, **variables}
    return subprocess.call(words, env=own, stdin=subprocess.DEVNULL, pass_fds=fds)


class Actor:
    """The agents' parent on a node of Ray's."""

    def serve(self, variables: dict[str, str]) -> int:
        """Start the agents and wait for their end. Returns their exit code."""
        return be_parent(variables)


class Stage:
    """The work of a task of Spark's; it travels by name, with the agents' variables. The first task
    of an executor starts the agents of all of them; the others keep their places until these end.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def __call__(self, _rows: Iterator[int]) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context, code = BarrierTaskContext.get(), 0
        executor = f"{socket.gethostname()} {os.getppid()}"  # its daemon, which has forked us
        here = [
            str(rank) for rank, one in enumerate(context.allGather(executor)) if one == executor
        ]
        if here[0] == str(context.partitionId()):
            code = be_parent({**self.variables, "WORKBENCH_RANKS": ",".join(here)})
        context.barrier()
        yield code
