"""The agents of a host, by one command: ``python -m tools.benchmarks.host_agents 4,5,6,7``.

    launcher ── one command ── this process ─ an agent per rank ─ ranks

It imports torch once, for all ranks of the host, and forks an agent for each: so hosts with many
ranks fit onto two cores. Users' launchers start an agent per rank, which schedulers then see.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

from workbench.common import guardian
from workbench.launchers.processes import agent
from workbench.launchers.processes.fork_server import preload


def main() -> int:
    """Start the agents and wait for them. Returns the first exit code that is not 0."""
    words = sys.argv.pop(1).split(",")
    preload()
    here, agents = os.getpid(), list[int]()
    for word in words:
        pid = os.fork()
        if pid == 0:
            _be_an_agent(here, word)
        agents.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in agents]
    return next((abs(code) for code in codes if code), 0)


def _be_an_agent(parent: int, rank: str) -> NoReturn:
    """Be the agent of a rank, which ends with its parent; below it, be the rank."""
    code = 1
    try:
        guardian.end_with(parent)
        os.environ["RANK"] = rank
        code = agent.main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
