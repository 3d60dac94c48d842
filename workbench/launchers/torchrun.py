"""Ranks started by torchrun, PyTorch's own launcher; on several hosts through a remote shell.

On one host: `torchrun --standalone --nproc-per-node N`. On several: one torchrun each, started by
`ssh HOST sh -s`, which meet at the first host's c10d rendezvous; each host gets an equal number of
ranks, and needs the same Python at the same place.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from dataclasses import dataclass
from typing import Literal

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.agents_parent import AGENT
from workbench.launchers.processes.needs import check_hosts, check_reachable, need_program
from workbench.launchers.processes.started_command import Command, CommandLauncher

TITLE = "torchrun"


@dataclass(frozen=True, kw_only=True)
class Config:
    hosts: tuple[str, ...] = ()  # names for the remote shell; none: this machine alone
    address: str = ""  # of the driver, as hosts reach it; with hosts
    port: int = 29400  # of the first host, at which the torchruns meet; with hosts
    remote: str = "ssh"  # a remote shell: what HOST sh -s is put behind
    numa_binding: Literal["", "node", "socket", "exclusive", "core-complex"] = ""  # torchrun's own


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where this launcher cannot start the experiment's ranks here."""
    check_hosts(exp, config.hosts, config.address)
    if config.hosts:
        need_program("torchrun", shlex.split(config.remote)[0], "options: remote names another one")
    if exp.ranks > 1 and config.port not in range(1, 65536):
        raise SpecError.at("launcher_options.port", "a port is 1 to 65535", config.port)


class Launcher(CommandLauncher):
    """One torchrun per host."""

    config: Config

    def command(self, count: int) -> list[str]:
        return self._torchrun(["--standalone", "--nproc-per-node", str(count)])

    def start(self, count: int, environment: dict[str, str]) -> None:
        if not self.config.hosts:
            return super().start(count, environment)
        shell = shlex.split(self.config.remote)
        ways = {host: [*shell, host, "sh", "-s"] for host in self.config.hosts}
        check_reachable(ways, f"{self.config.remote} HOST true")
        job = secrets.token_hex(4)
        for number in range(len(self.config.hosts)):
            remote, words = self._on_host(number, count, job)
            # By its input, so that the key is on no command line.
            variables = {**environment, "PYTHONPATH": ":".join(filter(None, sys.path[:1]))}
            lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
            script = "\n".join([*lines, f"exec {shlex.join(words)}", ""])
            self._commands.append(Command(remote, {}, script))

    def words(self, count: int) -> str:
        if not self.config.hosts:
            return super().words(count)
        remote, words = self._on_host(0, count, "ID")
        return shlex.join([*remote[:-2], *words])

    def _on_host(self, number: int, count: int, job: str) -> tuple[list[str], list[str]]:
        """Return the remote shell to a host, and what it is to run."""
        hosts = self.config.hosts
        words = self._torchrun(
            [
                "--nnodes",
                str(len(hosts)),
                "--node-rank",
                str(number),
                "--nproc-per-node",
                str(count // len(hosts)),
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                f"{hosts[0]}:{self.config.port}",
                "--rdzv-id",
                job,
                # c10d asks whether an endpoint's name is this host's, and DNS might not know.
                "--rdzv-conf",
                f"is_host={int(number == 0)}",
            ]
        )
        return [*shlex.split(self.config.remote), hosts[number], "sh", "-s"], words

    def _torchrun(self, options: list[str]) -> list[str]:
        """Return the command; it would leave a folder for logs, of which there are none."""
        bound = ["--numa-binding", self.config.numa_binding] if self.config.numa_binding else []
        words = [sys.executable, "-m", "torch.distributed.run", "--log-dir", os.devnull]
        return [*words, *options, *bound, *AGENT]
