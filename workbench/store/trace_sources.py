"""The content of a folder that WORKBENCH_TRACE names: its ranks, jobs and attempts.

    rank-<r>-<pid>[-restart-<k>][.<n>]     n: of containers whose processes have equal numbers

A job that torchrun restarts leaves several attempts, which are read as one run of several
generations. Several jobs that wrote to one folder are several runs.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.recording import events
from workbench.recording.events import NAMES_AT, NAMES_BYTES, PAGE
from workbench.shared_memory.ordering import fence
from workbench.store.regular_file import opened
from workbench.store.table import NameTable, Records

CLOCKS_S = 1.0  # by which the kernel's two clocks may differ
_NAME = re.compile(r"rank-(\d{1,5})-(\d{1,10})(?:-restart-\d{1,6})?(?:\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """The folder of one rank, that is of one process."""

    rank: int
    pid: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a rank's records. ``job``: "" before it has joined its group. ``agent``: the
    torchrun that started it, host, process and when that began; "" if none did. ``left``: the
    number of times that it can still restart ranks that fail.
    """

    job: str = ""
    attempt: int = 0
    host: str = ""
    born_ns: int = 0
    agent: str = ""
    left: int = 0


def find_sources(folder: Path) -> list[Source]:
    """Return what ranks have written in ``folder``, by rank."""
    return sorted(
        (
            Source(int(match[1]), int(match[2]), path)
            for path in folder.iterdir()
            if (match := _NAME.fullmatch(path.name)) and path.is_dir()
        ),
        key=lambda source: (source.rank, source.pid, source.folder.name),
    )


def is_living(source: Source) -> bool:
    """Return whether the process that made this folder is alive.

    A later process may have its number.
    """
    try:
        stat = (
            Path(f"/proc/{source.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        result = source.folder.stat().st_mtime
    except OSError:
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) / os.sysconf("SC_CLK_TCK")
    return stat[0] not in "ZX" and time.time() - age < result + CLOCKS_S


def origin(header: memoryview) -> Origin:
    """Read the first pages of a rank's trace."""
    names = NameTable(lambda _: 0, header)
    names.read()
    words = header[:PAGE].cast("q")
    job, host = (names.text(words[word] - 1) for word in (events.H_JOB, events.H_HOST))
    attempt, born = max(words[events.H_ATTEMPT] - 1, 0), words[events.H_BORN]
    pid, began = words[events.H_AGENT], words[events.H_AGENT_BORN]
    agent = f"{host} {pid} {began}" if began else ""
    job = job if words[events.H_ATTEMPT] > 0 else ""
    return Origin(job, attempt, host, born, agent, words[events.H_LEFT])


def origin_of(source: Source) -> Origin:
    """Return the origin that a folder names; an empty one where the folder cannot be read."""
    try:
        with opened(source.folder / "trace") as file:
            data = os.pread(file.fileno(), PAGE, 0)
            fence()  # the names are at least as new as what counts them
            data += os.pread(file.fileno(), NAMES_AT + NAMES_BYTES - PAGE, PAGE)
    except OSError:
        return Origin()
    if len(data) < NAMES_AT + NAMES_BYTES or int.from_bytes(data[:8], "little") != events.MAGIC:
        return Origin()
    return origin(memoryview(data))


def linked(origins: Sequence[Origin]) -> list[Origin]:
    """Return these origins with one job and one count of attempts for each torchrun.

    A store counts the attempts of a job. torchrun makes another one when rank 0 is another agent's
    from now on, and for every attempt with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which it takes for
    agents to join a job that goes on. An agent works for one job: stores whose ranks had an agent
    in common were of the same. Their attempts follow each other by the time that their ranks began.
    """
    jobs = {one.job: one.job for one in origins if one.job}

    def root(job: str) -> str:
        while jobs[job] != job:
            job = jobs[job]
        return job

    agents: dict[str, str] = {}
    born: dict[tuple[str, int], int] = {}
    for one in origins:
        if one.job:
            key = one.job, one.attempt
            born[key] = min(born.get(key, one.born_ns), one.born_ns)
        if one.job and one.agent:
            jobs[root(one.job)] = root(agents.setdefault(one.agent, one.job))
    numbers: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for key in sorted(born, key=lambda key: (born[key], key[1])):
        numbers[key] = counts.get(root(key[0]), 0)
        counts[root(key[0])] = numbers[key] + 1
    return [
        replace(one, job=root(one.job), attempt=numbers[one.job, one.attempt]) if one.job else one
        for one in origins
    ]


class Attempts:
    """The rows of several attempts as one table's: each has its generation, and a lane's count goes
    on from where the former attempt's ended.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._clock = 0  # by which the first rank's is behind the time of day
        self.shifts: dict[int, int] = {}  # of ranks' clocks, in ns, where they differ from that

    def align(self, rank: int, words: memoryview) -> None:
        """Note the clock of a rank, by the words of its header: in a time namespace of its own, as
        restored containers have, or on another host, it counts from another moment. All of a job
        have one time of day; clocks that differ by less than that may are taken as one.
        """
        born, here = words[events.H_BORN], words[events.H_BORN_HERE]
        if born and here:
            self._clock = self._clock or born - here
            shift = born - here - self._clock
            self.shifts[rank] = shift if abs(shift) > CLOCKS_S * 1e9 else 0

    def number(
        self, rank: int, generation: int, lane: int, rows: Records, contexts: Records
    ) -> None:
        """Change ``rows`` and ``contexts`` in place; a rank's generations come one by one."""
        newest, base, top = self._counts.get((rank, lane), (generation, 0, 0))
        if newest != generation:
            newest, base = generation, top
        contexts["generation"] += generation
        for name in ("start_ns", "end_ns"):
            rows[name] += self.shifts.get(rank, 0)
        rows["seq"] += base
        self._counts[rank, lane] = newest, base, max(top, int(rows["seq"].max(initial=0)))


@dataclass(frozen=True)
class Traces:
    """One job's sources, each with its generation, in the order in which they are to be read.

    ``jobs``: how many the folder has; ``apart``: folders of processes that joined no group.
    """

    sources: Sequence[tuple[Source, int]]
    origins: Sequence[Origin]
    jobs: int
    apart: Sequence[str]


def traces(folder: Path, job: int) -> Traces:
    """Return the traces of job number ``job``, counted by age: 0 the oldest, -1 the newest.

    Raises WorkbenchError if there is nothing to read, or no such job.
    """
    sources = _sources(folder)
    origins = linked([origin_of(source) for source in sources])
    result = [*zip(sources, origins, strict=True)]
    born: dict[str, int] = {}
    for _, one in result:
        born[one.job] = min(born.get(one.job, one.born_ns), one.born_ns)
    jobs = sorted(born.keys() - {""}, key=lambda name: born[name]) or [""]
    if not isinstance(job, int) or not -len(jobs) <= job < len(jobs):
        raise WorkbenchError(
            f"{folder} holds the records of {len(jobs)} jobs; job={job!r} is none of them: write 0 "
            f"(the oldest) to {len(jobs) - 1}, or -1 for the newest"
        )
    of_job = [(source, one) for source, one in result if one.job == jobs[job]]
    attempts = sorted({one.attempt for _, one in of_job})
    number = {attempt: i for i, attempt in enumerate(attempts)}
    of_job.sort(key=lambda pair: (pair[1].attempt, pair[0].rank))
    for (first, a), (second, b) in itertools.pairwise(of_job):
        if (first.rank, a.attempt) == (second.rank, b.attempt):
            raise WorkbenchError(
                f"{folder}: expected one run, found rank {first.rank} of several: "
                f"{first.folder.name}, {second.folder.name}. Move the folders of one run into a "
                "folder of their own."
            )
    return Traces(
        [(source, number[one.attempt]) for source, one in of_job],
        [one for _, one in of_job],
        len(jobs),
        [source.folder.name for source, one in result if not one.job and jobs != [""]],
    )


def _sources(folder: Path) -> list[Source]:
    sources = find_sources(folder) if folder.is_dir() else []
    if not sources:
        result = len(list(folder.iterdir())) if folder.is_dir() else 0
        what = counted(result, "other file") if result else "nothing"
        raise WorkbenchError(
            f"{folder}: expected a folder that WORKBENCH_TRACE named (rank-<r>-<pid>/trace ...), "
            f"found {what}. Nothing to read."
        )
    return sources
