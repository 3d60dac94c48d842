"""A task whose ranks are killed at a certain point: between two lines that no clock would hit.

``strikes``: JSON, a list of {"rank", "point", "generation", "by"}: ``rank`` is killed when rank
``by`` comes to the point. Each strikes once: a file in ``folder`` says that it has. The model and
the data are those of the task ``base``.

A point is "meet <n>", "met <n>", "connect <n>", "published <n>" or "connected <n>" of the n-th
group that this process makes in that generation ("*": the next one), or "finish", "finished",
"report", "report last" (once all others have finished), "leave", "left", "exchange". A rank that
has killed another goes on once the driver knows of it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from workbench.process_group import context
from workbench.process_group.session import session
from workbench.shared_memory.control_block import DONE, LOST, STATE
from workbench.user_code.source import load


class Task:
    def __new__(cls, base: str, strikes: str, folder: str, options: dict[str, Any]) -> Any:
        if dist.is_initialized():  # else this is the driver
            _install(json.loads(strikes), Path(folder))
        return load("tasks", base, "Task")(**options)

    def __init__(self, base: str, strikes: str, folder: str, options: dict[str, Any]) -> None:
        raise NotImplementedError  # there is only what the base makes


class Game(Task):
    """The same, of a task with an environment."""

    def environment(self) -> Any:
        raise NotImplementedError


def _install(strikes: list[dict[str, Any]], folder: Path) -> None:
    """Put the points in place."""
    from workbench.rank import job, main, take_over

    me, groups = session().run_rank(dist.get_rank()), dict[int, int]()

    def at(point: str) -> None:
        for number, one in enumerate(strikes):
            here = one["point"] in (point, f"{point.partition(' ')[0]} *")
            if here and (one["by"], one["generation"]) == (me, session().generation):
                _strike(one, me, folder / f"struck-{number}")

    def group(point: str) -> None:
        at(f"{point} {groups[session().generation]}")

    meet, gloo = context.meet, context.InnerGloo

    def meeting(*args: Any, **named: Any) -> Any:
        groups[session().generation] = groups.get(session().generation, 0) + 1
        group("meet")
        result = meet(*args, **named)
        group("met")
        return result

    def connecting(store: Store, rank: int, *args: Any, **named: Any) -> Any:
        group("connect")
        keys = _Publishing(store, rank, lambda: group("published"))
        result = gloo(keys, rank, *args, **named)
        result.published = keys  # Gloo calls it
        group("connected")
        return result

    context.meet, context.InnerGloo = meeting, connecting  # type: ignore[assignment,misc]
    for module, name, before, after in (
        (job.Job, "finish", "finish", "finished"),
        (main, "_outcome", "report", ""),
        (main, "_outcome", "report last", ""),
        (main, "leave", "leave", "left"),
        (take_over, "exchange", "exchange", ""),
    ):
        setattr(module, name, _around(getattr(module, name), at, before, after))


def _around(function: Any, at: Any, before: str, after: str) -> Any:
    def call(*args: Any, **named: Any) -> Any:
        at(before)
        result = function(*args, **named)
        at(after)
        return result

    return call


class _Publishing(Store):
    """A store that tells when its user has set its own key, and asks for those of the others."""

    def __init__(self, store: Store, rank: int, published: Any) -> None:
        super().__init__()
        self._store, self._own, self._published = store, f"/{rank}", published

    def set(self, key: str, value: Any) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def check(self, keys: list[str]) -> bool:
        return self._store.check(keys)

    def wait(self, keys: list[str], timeout: Any) -> None:
        if not all(key.endswith(self._own) for key in keys):
            self._published()
        self._store.wait(keys, timeout)


def _strike(one: dict[str, Any], me: int, mark: Path) -> None:
    """Kill a rank, once."""
    control, world = session().control, dist.group.WORLD
    assert control is not None
    if one["point"].endswith("last"):
        others = {*range(control.ranks)} - {me}
        _until(lambda: all(control.rank_word(rank, STATE) == DONE for rank in others))
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    if one["rank"] == me:
        os.kill(os.getpid(), signal.SIGKILL)
    peers = world.members.peers  # type: ignore[union-attr]
    os.kill(next(peer.pid for peer in peers if peer.rank == one["rank"]), signal.SIGKILL)
    _until(lambda: control.words[LOST] > session().generation)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(1e-3)
