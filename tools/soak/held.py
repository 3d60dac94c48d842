"""Resources that this driver and its pool hold; the difference of two moments."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import processes, shared_memory
from workbench.launchers.processes import pool
from workbench.shared_memory.segments import process_state

PATIENCE = 60.0  # seconds that what ends by itself may take, on a busy machine
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
ONCE = ("tqdm_monitor",)  # threads that a library starts on first use, and never again
OF_RUNS = (
    "Run",
    "Store",
    "Collector",
    "_Rank",
    "_Lane",
    "Ring",
    "Tap",
    "Batch",
    "Control",
    "Segment",
    "Recorder",
    "RankProcess",
    "LocalRank",
    "WorkerGroup",
    "ForkServer",
    "Ranks",
    "Cell",
    "CellResult",
    "Result",
    "Experiment",
    "Costs",
    "Lookout",
)
LISTENS = "0A"  # the state of a socket that listens, in /proc/net/tcp
_NUMBERS = re.compile(r"\d+")
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Held:
    """Countable things by name; each name says whose it is."""

    things: Counter[str]
    spare: int  # processes of the pool that wait for orders

    def more_than(self, before: Held) -> dict[str, int]:
        """Return what there is more of than before, and how many."""
        return {name: count for name, count in sorted((self.things - before.things).items())}


def held() -> Held:
    """Of this moment, when what nothing refers to any more has been collected."""
    gc.collect()
    things = _objects()
    things.update(f"descriptor: {name}" for name in descriptors(os.getpid()).values())
    threads = [_plain(thread.name) for thread in threading.enumerate()]
    things.update(f"thread: {name}" for name in threads if name not in ONCE)
    things.update(f"native thread: {name}" for name in _native_threads())
    things.update(f"mapping: {name}" for name in _mappings(os.getpid()))
    things["ports that listen"] = len(_listening())
    things.update(f"/dev/shm: {name}" for name in shared_memory())
    things.update(f"temporary file: {_plain(name)}" for name in os.listdir(tempfile.gettempdir()))
    children, spare, pool = _children(), 0, pool_pid()
    parent_of_pool = children.get(pool, (0, ""))[0]  # the guardian
    for pid, (parent, words) in children.items():
        if pool and pid in (pool, parent_of_pool):
            things["the pool's process"] += 1
        elif pool and parent == pool and not _at_work(pid):
            spare += 1
        else:
            things[f"process: {words[:80]}"] += 1
    if pool:
        of_pool = Counter(f"pool's descriptor: {name}" for name in descriptors(pool).values())
        of_pool["pool's descriptor: socket"] -= spare  # the driver's end of each spare's
        things.update({name: count for name, count in of_pool.items() if count > 0})
        things.update(f"pool's mapping: {name}" for name in _mappings(pool))
    return Held(things, spare)


def settled(before: Held, most_spare: int, seconds: float = PATIENCE) -> dict[str, int]:
    """Return what there is still more of after some patience; nothing, once there is nothing."""
    deadline = time.monotonic() + seconds
    while True:
        now = held()
        more = now.more_than(before)
        if now.spare > most_spare:
            more["spare processes"] = now.spare - most_spare
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.05)


def descriptors(pid: int) -> dict[int, str]:
    """Return what each descriptor of a process is, without the numbers that differ each time."""
    result = {}
    for entry in _listed(f"/proc/{pid}/fd"):
        try:
            what = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:  # of the listing itself
            continue
        result[int(entry)] = _plain(re.sub(r":\[\d+\]| \(deleted\)|^/memfd:", "", what))
    return result


def megabytes(pid: int) -> float:
    """Resident memory that is this process's alone."""
    if pid == os.getpid():
        gc.collect()
        _libc.malloc_trim(0)
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(words[1]) - int(words[2])) * PAGE_MB


def pool_pid() -> int:
    """The process that starts ranks; 0 if there is none."""
    fork_server = pool._warm_pool
    return fork_server.pid if fork_server is not None and fork_server.alive else 0


def _plain(name: str) -> str:
    """Without numbers and random letters: "rank 3" and "rank 1" are the same kind of thing."""
    return _NUMBERS.sub("N", re.sub(r"(?<=workbench[-_])\w{8}\b", "*", name))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _objects() -> Counter[str]:
    """The driver's objects of runs, teams and what belongs to them, by class."""
    kinds = Counter(map(type, gc.get_objects()))
    return Counter(
        {f"object: {kind.__name__}": count for kind, count in kinds.items() if _is_a_runs(kind)}
    )


def _is_a_runs(kind: type) -> bool:
    return str(kind.__module__).startswith("workbench.") and kind.__name__ in OF_RUNS


def _native_threads() -> list[str]:
    """By name, those of Python among them. Pools of libraries grow once, to their size."""
    names = []
    for task in _listed("/proc/self/task"):
        try:
            names.append(_plain(Path(f"/proc/self/task/{task}/comm").read_text().strip()))
        except OSError:
            continue
    return [name for name in names if name.startswith("pt_")]


def _mappings(pid: int) -> list[str]:
    """Shared memory of ours that is mapped."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return []
    names = re.findall(r"/memfd:(workbench[^\n]*?)(?: \(deleted\))?$", text, re.M)
    return [_plain(name) for name in names]


def _listening() -> set[str]:
    """Sockets of this process that listen on a TCP port."""
    own = set()
    for entry in _listed("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            own.add(match[1])
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        listening |= {words[9] for line in lines if (words := line.split())[3] == LISTENS}
    return own & listening


def _children() -> dict[int, tuple[int, str]]:
    return {pid: facts for pid, facts in processes().items() if process_state(pid) not in "ZX"}


def _at_work(pid: int) -> bool:
    """Has a process of the pool been given orders? They come with shared memory."""
    return any(name.startswith("workbench") for name in descriptors(pid).values())
