"""A rank that forks at ``init_process_group``, once per run that the judge asks for.

The parent stays where it is and never joins a group. Each child goes on with the script over a
store of its own, writes what it saw, and ends. A child that takes too long is killed, and dies with
its parent. The parent ends when the driver has ended, or wants no more.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from workbench.auditing.folder import Driver, read, wait_for, write
from workbench.auditing.messages import Ask, Seen, message_of
from workbench.auditing.ranks.lift import lift
from workbench.common.guardian import end_with

AHEAD = 2  # runs at a time


def install(folder: str) -> None:
    """Have this process fork where its script makes the first process group."""
    place = Path(folder)
    if not wait_for(place / "settings", 0):
        return
    gc.freeze()  # all that is here is torch's: no search for modules need look through it
    settings = read(place / "settings")
    if settings["lift"]:
        lift()
    original = dist.init_process_group
    c10d = dist.distributed_c10d
    places = [dist, c10d, sys.modules.get("torch.distributed.device_mesh")]
    places = [one for one in places if getattr(one, "init_process_group", None) is original]

    @wraps(original)
    def init_process_group(*args: Any, **options: Any) -> Any:
        for one in places:
            one.init_process_group = original  # type: ignore[union-attr]
        return _forked(original, place, settings, *args, **options)

    for one in places:
        one.init_process_group = init_process_group  # type: ignore[union-attr]


def _forked(
    original: Callable[..., Any],
    folder: Path,
    settings: dict[str, Any],
    backend: Any = None,
    init_method: Any = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    **options: Any,
) -> Any:
    """Fork for each run; return in children only, with their group made."""
    rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
    size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
    number, ask = Forks(folder, rank, size).serve()
    if ask.alone:
        size = 1
    if backend and "nccl" in str(backend) and not torch.cuda.is_available():
        backend = "gloo"
    from workbench.auditing.ranks.probe import Probe

    Probe(folder, number, rank, size, ask, settings)
    common = FileStore(str(folder / f"store{number}"), size)
    return original(backend, store=common, rank=rank, world_size=size, **options)


@dataclass
class _Child:
    number: int
    ask: Ask
    began: float


class Forks:
    """The runs of one rank."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        self._driver = Driver(folder)
        self._children: dict[int, _Child] = {}

    def serve(self) -> tuple[int, Ask]:
        """Fork a child per run that is asked for. Returns in the children only: number and run."""
        cuda = bool(torch.cuda._initialized)
        write(self.folder / f"hello.{self.rank}", {"size": self.size, "cuda": cuda})
        number = 0
        while self._driver.goes_on:
            path = self.folder / f"ask{number}"
            if len(self._children) < AHEAD and path.exists():
                ask = Ask.of(read(path))
                if not (ask.alone and self.rank) and self._fork(number, ask):
                    return number, ask
                number += 1
                continue
            for pid in [*self._children]:
                self._look_after(pid)
            time.sleep(0.003)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        sys.stdout.flush()
        os._exit(0)

    def _fork(self, number: int, ask: Ask) -> bool:
        """Fork; return whether this is the child."""
        sys.stdout.flush(), sys.stderr.flush()
        parent, pid = os.getpid(), os.fork()
        if pid:
            self._children[pid] = _Child(number, ask, time.monotonic())
            return False
        end_with(parent)
        if ask.alone:
            os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1")
        log = os.open(self.folder / f"log{number}.{self.rank}", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1), os.dup2(log, 2)
        faulthandler.enable()
        return True

    def _look_after(self, pid: int) -> None:
        """Take note of a child's end; end one that is late, or whose rest no one needs."""
        child = self._children[pid]
        ended, status = os.waitpid(pid, os.WNOHANG)
        late = time.monotonic() > child.began + child.ask.seconds
        known = self._is_known(child)
        if not ended:
            if not late and not known:
                return
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        del self._children[pid]
        mine = self.folder / f"run{child.number}.{self.rank}"
        if not mine.exists():
            why = "raised no error, and ended by itself"
            if late:
                why = f"had not ended after {child.ask.seconds:.0f} s, and was killed"
            elif os.WIFSIGNALED(status):
                why = f"was ended by signal {os.WTERMSIG(status)}"
            words = "" if known else f"the process {why}{self._last_words(child.number)}"
            write(mine, message_of(Seen(error=words)))
        if child.number == 0:
            for name in read(mine)["modules"]:  # need not be imported once per run
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def _last_words(self, number: int) -> str:
        """Return the last line that a run printed, after a colon; "" where there is none."""
        path = self.folder / f"log{number}.{self.rank}"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = [one.strip() for one in text.splitlines() if one.strip()]
        return f": {lines[-1]}" if lines else ""

    def _is_known(self, child: _Child) -> bool:
        """Return whether all losses of a run that wants no more are known."""
        wanted = [self.folder / f"run{child.number}.{rank}" for rank in child.ask.until]
        return bool(wanted) and all(one.exists() for one in wanted)
