"""mpiexec on two hosts: this machine under two names, whose ranks share no memory.

MPI has TCP alone between them, as between machines: it would find out that they are one.
"""

from __future__ import annotations

import sys

from workbench.launchers.mpiexec import Config as Config
from workbench.launchers.mpiexec import Launcher as Mpiexec

APART = {
    "MPIR_CVAR_NOLOCAL": "1",
    "UCX_TLS": "tcp,self",
    "FI_PROVIDER": "tcp",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
}


def on_two_hosts(words: list[str]) -> list[str]:
    """Return ``mpiexec -n COUNT ... PYTHON ...`` with half of the ranks on each host."""
    path, option, count, *rest = words
    at = rest.index(sys.executable)
    halves = [
        [option, str(int(count) // 2), *rest[:at], "env", f"WORKBENCH_HOST={name}", *rest[at:]]
        for name in "ab"
    ]
    return [path, *halves[0], ":", *halves[1]]


class Launcher(Mpiexec):
    def start(self, count: int, environment: dict[str, str]) -> None:
        super().start(count, {**environment, **APART})

    def command(self, count: int) -> list[str]:
        return on_two_hosts(super().command(count))
