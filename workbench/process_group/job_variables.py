"""The rank of a script that mpiexec or srun has started, and where its job's ranks meet.

torchrun says RANK, WORLD_SIZE and MASTER_ADDR; other launchers have names of their own, and none
for the address. Where RANK is missing, so that ``init_process_group`` could only fail, ``adopt``
fills in torch's names:

| started by | rank, ranks | on this host |
| --- | --- | --- |
| Open MPI's mpiexec | OMPI_COMM_WORLD_RANK, _SIZE | OMPI_COMM_WORLD_LOCAL_RANK, _SIZE |
| MPICH's mpiexec | PMI_RANK, PMI_SIZE | MPI_LOCALRANKID, MPI_LOCALNRANKS |
| srun | SLURM_PROCID, SLURM_STEP_NUM_TASKS | SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE |

They meet at rank 0's store. Ranks of one host ask for its port by the job's name
(transports/meeting_place.py); tasks of several hosts of Slurm derive it from the job's number;
those of mpiexec are told by MPI itself, if mpi4py is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any, NamedTuple

from workbench.common.errors import WorkbenchError
from workbench.transports.meeting_place import ask, meeting_place, tell

MPICH, OPEN_MPI, SLURM = "mpiexec (MPICH)", "mpiexec (Open MPI)", "srun"
_PORTS = 20_000  # that Slurm's jobs are spread over, from this number on
Environment = MutableMapping[str, str]


class JobMember(NamedTuple):
    """A process's place in its job. ``local``: its number and the number of ranks on its host."""

    launcher: str
    rank: int
    ranks: int
    local: tuple[int, int]

    @property
    def words(self) -> str:
        return f"rank {self.rank} of {self.ranks}, started by {self.launcher}"


def place_in_job(environ: Environment) -> JobMember | None:
    """Return this process's place in its job; None: no launcher that is known has started it.

    mpiexec comes before Slurm, in whose jobs it starts ranks that inherit the variables of the
    script; Slurm comes before PMI alone, which srun may set too.
    """

    def number(*names: str) -> int:
        return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), -1)

    ompi = "OMPI_COMM_WORLD_"
    variables = [
        (OPEN_MPI, (f"{ompi}RANK", f"{ompi}SIZE", f"{ompi}LOCAL_RANK", f"{ompi}LOCAL_SIZE")),
        (MPICH, ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
    ]
    for launcher, names in variables:
        if min(values := [number(name) for name in names]) >= 0:
            return JobMember(launcher, values[0], values[1], (values[2], values[3]))
    rank, ranks = number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS")
    if min(rank, ranks) >= 0:
        return JobMember(SLURM, rank, ranks, (number("SLURM_LOCALID"), _tasks_here(environ)))
    return None


def adopt(environ: Environment, timeout: timedelta = timedelta(minutes=30)) -> None:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun
    would. Returns when rank 0 is there to be met. Raises WorkbenchError.
    """
    place = place_in_job(environ)
    if place is None or "RANK" in environ:
        return
    if "MASTER_ADDR" not in environ or "MASTER_PORT" not in environ:
        environ.update(_meet(place, environ, timeout.total_seconds()))
    environ["RANK"], environ["WORLD_SIZE"] = str(place.rank), str(place.ranks)
    environ.setdefault("LOCAL_RANK", str(place.local[0]))
    environ.setdefault("LOCAL_WORLD_SIZE", str(place.local[1]))


_kept: list[Any] = []  # the store, which lives as long as rank 0's process


def _meet(place: JobMember, environ: Environment, seconds: float) -> dict[str, str]:
    """Return where the job's ranks meet."""
    if place.local[1] == place.ranks:
        port: int | None
        job = _job(place, environ)
        if place.rank == 0:
            _kept.append(store := meeting_place(place.ranks))
            tell(job, port := store.port, place.ranks, seconds)
        elif (port := ask(job, seconds)) is None:
            raise WorkbenchError(
                f"{place.words}: rank 0 has not called init_process_group within {seconds:.0f} s"
            )
        return _address("127.0.0.1", port, served=True)
    if place.launcher == SLURM:
        job_id, step = (int(environ.get(f"SLURM_{n}_ID", "0")) for n in ("JOB", "STEP"))
        port = _PORTS + (job_id * 31 + step) % _PORTS
        return _address(first_host(environ.get("SLURM_STEP_NODELIST", "")), port)
    return _address(*_address_by_mpi(place), served=True)


_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def _address(host: str, port: int, *, served: bool = False) -> dict[str, str]:
    """Return torch's variables. ``served``: rank 0 has opened the store already."""
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if served else {}
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port), **agent}


def _address_by_mpi(place: JobMember) -> tuple[str, int]:
    """Return address and port of rank 0's store, which it broadcasts by MPI."""
    remedy = (
        f"{place.words} on several hosts, which does not say where rank 0 is: pass MASTER_ADDR "
        "and MASTER_PORT (mpiexec -genv MASTER_ADDR HOST, or -x MASTER_ADDR)"
    )
    try:
        from mpi4py import MPI
    except ImportError:
        raise WorkbenchError(f"{remedy}, or install mpi4py") from None
    world = MPI.COMM_WORLD
    if world.size != place.ranks:
        raise WorkbenchError(
            f"{remedy}. (mpi4py here belongs to another MPI: it counts {world.size} ranks)"
        )
    mine = None
    if place.rank == 0:
        host = _own_address()
        _kept.append(store := meeting_place(place.ranks, host))
        mine = [host, store.port]
    host, port = world.bcast(mine)
    return str(host), int(port)


def _own_address() -> str:
    """Return an address of this host by which others reach it: that of Gloo's interface, where one
    is named; of the host's name, unless that leads back to the host (as Debian's 127.0.1.1 does);
    of the way out of it.
    """
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        if name := os.environ.get("GLOO_SOCKET_IFNAME"):
            request = struct.pack("256s", name.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        host = socket.gethostbyname(socket.gethostname())
        if not host.startswith("127."):
            return host
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing; no machine has that address
            return str(probe.getsockname()[0])
        return host


def _job(place: JobMember, environ: Environment) -> str:
    """Return a name that all ranks of this job on this host know, and no others."""
    if place.launcher == SLURM:
        return f"slurm-{environ.get('SLURM_JOB_ID')}.{environ.get('SLURM_STEP_ID')}"
    if place.launcher == OPEN_MPI and (space := environ.get("PMIX_NAMESPACE")):
        return f"pmix-{space}"
    return f"pmi-{_started_by()}"


def _started_by() -> str:
    """Return the nearest process above this one that is not a rank, and when it began: mpiexec's on
    this host, whatever shells there are in between.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_rank = b"PMI_RANK=" in file.read()
            with open(f"/proc/{pid}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            break
        if not is_rank:
            return f"{pid}-{words[19].decode()}"
        pid = int(words[1])
    return str(pid)


def first_host(nodes: str) -> str:
    """Return the first host of a list of Slurm's, such as "n[03-07,9],m1": "n03"."""
    match = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
    return "" if match is None else f"{match[1]}{match[2] or ''}"


def _tasks_here(environ: Environment) -> int:
    """Return the tasks of this step on this node, from "2(x2),1": 2, 2 and 1."""
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if (match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)) is not None:
            counts += [int(match[1])] * int(match[2] or 1)
    node = int(environ.get("SLURM_NODEID", "0") or 0)
    return counts[node] if node < len(counts) else -1
