"""The memory that a run reserves and holds: predicted from its numbers, measured of its
processes.

A mailbox is reserved whole when a rank first has something for a peer (``transports/``): four slots
of chunk_bytes each. Its pages are taken from then on, although a process counts them as its own
only as they are touched; so mailboxes are foretold before a run, and weighed as files during it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, NamedTuple

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import is_by_name, known_traits
from workbench.transports.sizes import mailbox_bytes
from workbench.user_code import source

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TRACE_BYTES = 6_000_000  # of a rank: its header and some four lanes' rings


def foretold(given: Mapping[str, Any]) -> int:
    """Return the most bytes that an Experiment of these fields reserves for messages between its
    ranks and for its recording, without its model and its processes.
    """
    if given.get("backend", "workbench") != "workbench":
        return 0
    ranks = whole(given.get("ranks"), 4)
    chunk_bytes = whole(given.get("chunk_bytes"), 262_144)
    algorithm = str(given.get("all_reduce", "ring"))
    boxes = 2 * _collective_pairs(algorithm, ranks)  # of two groups: gradients, and figures
    boxes += 2 * ranks  # other operations' trees and rings
    boxes += _message_pairs(str(given.get("strategy")), given.get("options"), ranks)
    return boxes * mailbox_bytes(chunk_bytes) + ranks * TRACE_BYTES


def whole(value: Any, default: int) -> int:
    """Return ``value`` if it is a whole number; other values are refused elsewhere."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _collective_pairs(algorithm: str, ranks: int) -> int:
    """Return the directed pairs of ranks between which an all-reduce sends messages."""
    from workbench.formulas import ALGORITHMS

    if algorithm not in ALGORITHMS or ranks < 2:  # "auto" may take any
        return ranks * (ranks - 1)
    return _pairs(algorithm, ranks)


@lru_cache(256)
def _pairs(algorithm: str, ranks: int) -> int:
    from workbench.formulas import ALGORITHMS

    schedule = ALGORITHMS[algorithm].schedule
    if schedule is None:
        return ranks * (ranks - 1)
    try:
        transfers = schedule(ranks)
    except ValueError:  # it does not run on so many
        return 0
    return len({(one.source, one.target) for one in transfers})


def _message_pairs(strategy: str, options: Any, ranks: int) -> int:
    values = options if isinstance(options, Mapping) else {}
    # A path is a visitor's: its file is neither read nor run here.
    match known_traits(strategy).messages if is_by_name(strategy) else "":
        case "neighbors":
            usual = {
                one.name: one.default
                for one in fields(source.load("strategies", strategy, "Config"))
            }
            near = "ring" in {**usual, **values}.values()
            return 2 * ranks if near else ranks * (ranks - 1)
        case "servers":
            servers = whole(values.get("servers"), 1)
            return 2 * servers * max(ranks - servers, 0)
        case "roles":
            roles = sum(whole(values.get(name), 1) for name in ("servers", "learners", "replays"))
            return 2 * roles * max(ranks - 1, 0)
        case "stages":
            return 2 * ranks
    return 0


class ModelSize(NamedTuple):
    """The size of a task's model, with its samples."""

    nbytes: int  # at the least
    tensors: int = 0  # of parameters


def size_of_model(exp: Experiment, enough: int) -> ModelSize:
    """Return the size of a task's model and samples, without making them: by ``size`` in its file,
    and, where that is not above ``enough`` bytes, by the shapes of its model; 0 where the task has
    no such options.

    Raises SpecError for a model that cannot be made or has too many parts, and for a task that says
    nothing of its size and whose model cannot be made without memory.
    """
    from workbench.tasks._blueprint import blueprint, is_ours  # with torch

    if not isinstance(exp.task, str) or exp.task not in source.available("tasks"):
        return ModelSize(0)
    names = source.names_defined(source.text_of("tasks", exp.task), exp.task)
    values, parts = 0, list[int]()
    try:
        task = source.load("tasks", exp.task, "Task")(**exp.task_options)
        if "size" in names:
            values = whole(source.load("tasks", exp.task, "size")(**exp.task_options), 0)
    except (TypeError, ValueError, ImportError):  # the task's own check says what is wrong
        return ModelSize(0)
    width = 8 if exp.dtype == "float64" else 4
    if values * width <= enough and not source.places_of(exp.task):  # those would be read
        try:
            parts = [one.numel() for one in blueprint(task).parameters()]
        except SpecError:
            if is_ours(task) or "size" not in names:
                raise
    return ModelSize(max(values, sum(parts)) * width, len(parts))


def held(pids: Iterable[int], enough: int = 0) -> int:
    """Return the bytes that these processes hold, shared memory counted once, with everything that
    they have reserved. Where an upper bound that is quick to compute is not above ``enough``,
    return that bound.
    """
    pids = [*pids]
    reserved = _reserved(pids)
    if (most := sum(map(_resident, pids)) + reserved) <= enough:
        return most
    parts = [_own_part(pid) for pid in pids]
    shared = sum(shared for _, shared in parts)
    return sum(private for private, _ in parts) + max(shared, reserved)


def _reserved(pids: Iterable[int]) -> int:
    """Return the bytes of memory files that these processes hold open, touched or not."""
    sizes: dict[int, int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended
            continue
        for one in descriptors:
            try:
                file = os.stat(f"/proc/{pid}/fd/{one}")
            except OSError:
                continue
            if file.st_dev == _memory_files() and file.st_nlink == 0:
                sizes[file.st_ino] = file.st_blocks * 512
    return sum(sizes.values())


@cache
def _memory_files() -> int:
    """Return the device of files without a name, in memory (``memfd_create``)."""
    fd = os.memfd_create("workbench", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):  # it has ended
        return 0


def _own_part(pid: int) -> tuple[int, int]:
    """Return the proportional set size, without shared memory, and of shared memory.

    A page that n processes share counts for an n-th in each.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            facts = {line.split(":")[0]: line.split()[1] for line in file if line.startswith("Pss")}
    except OSError:
        return 0, 0
    whole, shared = (int(facts.get(name, 0)) * 1024 for name in ("Pss", "Pss_Shmem"))
    return whole - shared, shared
