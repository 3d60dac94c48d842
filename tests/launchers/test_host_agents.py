"""One command per host starts the agents of all its ranks; the losses are those of local ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import workbench as wb
from tests.live import until
from tests.processes import command
from workbench.launchers.processes.agents_parent import AGENTS
from workbench.launchers.processes.started_command import Command, CommandLauncher

RANKS = ("0,2", "1")  # of each host
EXPERIMENT: dict[str, Any] = {"task": "mlp_layers", "ranks": 3, "batch_size": 12}


class Launcher(CommandLauncher):
    """Two hosts, told the ranks of all and their number: as the tasks of a Slurm job are."""

    def start(self, count: int, environment: dict[str, str]) -> None:
        for number in range(len(RANKS)):
            own = {"WORKBENCH_RANKS": ";".join(RANKS), "SLURM_NODEID": str(number)}
            self._commands.append(Command([sys.executable, *AGENTS], {**environment, **own}))

    def words(self, count: int) -> str:
        return "two hosts"


def parent(pid: int) -> int:
    """Return the process that has started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def hosts_of(run: wb.Run) -> list[int]:
    """Return by rank the process that has started its agent."""
    return [parent(parent(pid)) for _, pid in sorted(run.pids.items())]


def test_a_hosts_ranks_have_one_parent_and_the_losses_of_local_ranks() -> None:
    exp = wb.Experiment(**EXPERIMENT, iterations=1_000_000)
    run = wb.run(exp.replace(launcher=f"{__file__}:Launcher"))
    until(lambda: run.iteration > 1 or run.done)
    first, second, third = hosts_of(run)
    assert first == third != second
    run.stop()
    losses = run.wait(60).losses
    assert losses == wb.run(exp.replace(iterations=len(losses))).wait(60).losses


def test_ranks_that_are_none_are_refused() -> None:
    done = command([sys.executable, *AGENTS], WORKBENCH_RANKS="0,x")
    assert done.returncode and "such as 4,5,6,7, or those of each" in done.stderr, done
