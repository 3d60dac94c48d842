"""Ranks of a job that already runs, found by what its launcher wrote into their environment.

Nothing of the job has to know the workbench: torchrun, mpiexec and srun name each process's rank in
its environment, which Linux shows in /proc to the job's own user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.process_group.job_variables import place_in_job

_PROC = Path("/proc")


@dataclass(frozen=True)
class RankProcess:
    """One rank of a job, on this host. ``parent``: the process that started it; ``trace``: the
    folder that it records to, "" if it is not attached.
    """

    rank: int
    ranks: int
    pid: int
    parent: int
    command: str
    trace: str = ""


def running_ranks(pid: int | None = None) -> list[RankProcess]:
    """Return the ranks of the job that runs on this host, in order.

    ``pid``: the job's launcher (a torchrun or mpiexec, or a shell above it) or one of its ranks.
    Without it there must be one job. Raises WorkbenchError where there is none, or several.
    """
    if pid is not None and not (_PROC / str(pid)).exists():
        raise WorkbenchError(f"there is no process {pid} on this host")
    processes = _processes()
    jobs: dict[str, list[RankProcess]] = defaultdict(list)
    for process, job in _ranks(processes):
        jobs[job].append(process)
    if pid is not None:
        jobs = {
            job: ranks
            for job, ranks in jobs.items()
            if any(pid in _line_of(one.pid, processes) for one in ranks)
        }
    if not jobs:
        where = "on this host" if pid is None else f"at or below process {pid}"
        raise WorkbenchError(
            f"no rank of a job runs {where}: no Python process has RANK and WORLD_SIZE (or the "
            "variables of mpiexec or srun) in its environment. A job of another user is seen "
            "only by that user and by root"
        )
    if len(jobs) > 1:
        listed = "; ".join(
            f"process {ranks[0].parent} has {counted(len(ranks), 'rank')} of {ranks[0].command}"
            for ranks in jobs.values()
        )
        raise WorkbenchError(f"{len(jobs)} jobs run here, name one by its process: {listed}")
    (ranks,) = jobs.values()
    return sorted(ranks, key=lambda one: (one.rank, one.pid))


@dataclass(frozen=True)
class _Process:
    parent: int
    environment: Mapping[str, str]
    words: tuple[str, ...]


def _processes() -> dict[int, _Process]:
    """Return the Python processes, launchers and shells whose environment can be read, by pid."""
    processes = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            pairs = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state, parent = (
                (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            )
        except OSError:  # another user's, or it has just ended
            continue
        if state not in "ZX" and words[0]:
            environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            processes[int(folder.name)] = _Process(int(parent), environment, tuple(words[:-1]))
    return processes


def _ranks(processes: Mapping[int, _Process]) -> list[tuple[RankProcess, str]]:
    """Return each rank with a name of its job.

    What a rank starts (a data loader's workers, say) inherits its variables: the first Python
    process on the way down is the rank.
    """
    places = {pid: place for pid, one in processes.items() if (place := _place(one)) is not None}
    result = []
    for pid, (rank, ranks, job) in places.items():
        above = _line_of(pid, processes)[1:]
        if any(places.get(other) == (rank, ranks, job) for other in above):
            continue
        parent = processes[pid].parent
        command = " ".join(word for word in processes[pid].words[1:] if word != "-u")[:120]
        trace = processes[pid].environment.get("WORKBENCH_TRACE", "")
        result.append((RankProcess(rank, ranks, pid, parent, command, trace), job or str(parent)))
    return result


def _place(process: _Process) -> tuple[int, int, str] | None:
    """Return rank, number of ranks and the job's name of a Python process; None: it has none."""
    if not Path(process.words[0]).name.startswith(("python", "pypy")):
        return None
    variables = dict(process.environment)
    if variables.get("RANK", "").isdigit() and variables.get("WORLD_SIZE", "").isdigit():
        names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
        job = " ".join(variables.get(name, "") for name in names)
        return int(variables["RANK"]), int(variables["WORLD_SIZE"]), job
    place = place_in_job(variables)
    return None if place is None else (place.rank, place.ranks, "")


def _line_of(pid: int, processes: Mapping[int, _Process]) -> list[int]:
    """Return the process and those above it, nearest first."""
    line = []
    while pid in processes and pid not in line:
        line.append(pid)
        pid = processes[pid].parent
    return line
