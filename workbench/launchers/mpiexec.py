"""Ranks started by mpiexec, of MPICH or of Open MPI; on several hosts as these start processes.

The ranks need no MPI themselves: a rank's number comes from PMI_RANK or OMPI_COMM_WORLD_RANK, all
else from the driver. mpiexec would end all ranks with the first that is killed; here each of its
processes is an agent, which stays, so that the run says which rank it has lost.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.agents_parent import AGENT
from workbench.launchers.processes.needs import check_hosts, check_reachable, need_program
from workbench.launchers.processes.started_command import CommandLauncher

TITLE = "mpiexec"
REMEDY = "pip install 'distributed-training-workbench[mpi]' brings MPICH's; or apt install mpich"


@dataclass(frozen=True, kw_only=True)
class Config:
    program: str = "mpiexec"  # its name or path, such as mpirun.openmpi
    hosts: tuple[str, ...] = ()  # as mpiexec reaches them; none: this machine alone
    address: str = ""  # of the driver, as hosts reach it; with hosts
    bind_to: Literal["", "none", "hwthread", "core", "socket", "numa"] = ""  # mpiexec's --bind-to
    map_by: Literal["", "hwthread", "core", "socket", "numa"] = ""  # mpiexec's --map-by
    between_hosts: Literal["", "mpi", "gloo"] = (
        ""  # carries chunks; "": MPI where all ranks have it
    )


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where this launcher cannot start the experiment's ranks here."""
    path = need_program("mpiexec", config.program, REMEDY)
    check_hosts(exp, config.hosts, config.address)
    if config.between_hosts == "mpi" and find_spec("mpi4py") is None:
        raise SpecError.at(
            "launcher_options.between_hosts",
            "MPI between hosts needs the package mpi4py, which is not installed here: "
            "pip install 'distributed-training-workbench[mpi]'",
            "mpi",
        )
    if not flavor(path):
        raise SpecError.at(
            "launcher",
            f"{path} is neither MPICH's nor Open MPI's: {REMEDY}",
            "mpiexec",
        )


@cache
def flavor(path: str) -> str:
    """Return whose mpiexec it is: "mpich", "openmpi", or "" for another's."""
    words = [path, "--version"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=30, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    output = done.stdout + done.stderr
    if "HYDRA" in output:
        return "mpich"
    return "openmpi" if any(name in output for name in ("Open MPI", "OpenRTE", "PRRTE")) else ""


class Launcher(CommandLauncher):
    """One mpiexec for all hosts."""

    config: Config

    def start(self, count: int, environment: dict[str, str]) -> None:
        if self.config.hosts:
            ways = {host: [*self._on([host], 1), "sh", "-s"] for host in self.config.hosts}
            check_reachable(ways, f"{shlex.join(self._on(['HOST'], 1))} true")
        between = self.config.between_hosts
        own = {"WORKBENCH_BETWEEN_HOSTS": between} if between else {}
        super().start(count, {**environment, **own})

    def command(self, count: int) -> list[str]:
        config = self.config
        words = self._on(config.hosts, count)
        path = words[0]
        bound = {"bind-to": config.bind_to, "map-by": config.map_by}
        if flavor(path) == "mpich":
            for name, value in bound.items():
                words += [f"-{name}", value] if value else []
        else:
            for name, value in bound.items():
                words += [f"--{name}", value] if value else []
            words += ["-x", "WORKBENCH_AGENT", "-x", "OMP_NUM_THREADS"]
            words += ["-x", "WORKBENCH_BETWEEN_HOSTS"] if config.between_hosts else []
        return [*words, sys.executable, *AGENT]

    def _on(self, hosts: Sequence[str], count: int) -> list[str]:
        """Return the words that start so many processes on these hosts, an equal number on each."""
        path = need_program("mpiexec", self.config.program, REMEDY)
        words, by_mpich = [path, "-n", str(count)], flavor(path) == "mpich"
        if hosts:
            places = [f"{host}:{count // len(hosts)}" for host in hosts]
            words += ["-hosts" if by_mpich else "--host", ",".join(places)]
        if by_mpich:
            return words
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [*words, "--oversubscribe", *root]
