"""A Slurm of two nodes on this machine, of real daemons."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=workbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
SlurmctldPort=26817
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=1
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port=26818 CPUs=8
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=26819 CPUs=8
PartitionName=debug Nodes=n0,n1 Default=YES State=UP
"""


def why_no_slurm() -> str:
    """Return why none can be started here; "" where it can."""
    missing = [one for one in PROGRAMS if not shutil.which(one)]
    if missing:
        return f"no {', '.join(missing)}"
    return "not root, as which Slurm runs" if os.geteuid() else ""


@contextmanager
def local_slurm() -> Iterator[None]:
    """Start it, with ``SLURM_CONF`` set. Raises RuntimeError where its nodes do not come."""
    before = os.environ.get("SLURM_CONF")
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as name:
        folder, host = Path(name), socket.gethostname()
        folder.chmod(0o755)
        (folder / "state").mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        conf = ["-D", "-f", f"{folder}/slurm.conf"]
        munge = {"key-file": "key", "socket": "munge.socket", "pid-file": "pid", "log-file": "log"}
        munged = ["munged", "--force", "--foreground", f"--seed-file={folder}/seed"]
        commands = [
            [*munged, *(f"--{option}={folder}/{file}" for option, file in munge.items())],
            ["slurmctld", *conf],
            *(["slurmd", *conf, "-N", node] for node in ("n0", "n1")),
        ]
        os.environ["SLURM_CONF"] = f"{folder}/slurm.conf"
        daemons = []
        try:
            for words in commands:
                quiet = subprocess.DEVNULL
                daemons.append(subprocess.Popen(words, stdout=quiet, stderr=quiet))
                time.sleep(0.5)
            _wait_for_nodes()
            yield
        finally:
            for one in reversed(daemons):
                one.terminate()
            for one in daemons:
                try:
                    one.wait(10)
                except subprocess.TimeoutExpired:
                    one.kill()
                    one.wait()
            if before is None:
                del os.environ["SLURM_CONF"]
            else:
                os.environ["SLURM_CONF"] = before


def _wait_for_nodes() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        words = ["sinfo", "--noheader", "--format=%T %D"]
        if subprocess.run(words, capture_output=True, text=True).stdout.strip() == "idle 2":
            return
        time.sleep(0.5)
    raise RuntimeError("Slurm's nodes were not idle within 60 s")
