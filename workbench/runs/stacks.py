"""``workbench stacks``: where each rank of a running job stands, read from outside by py-spy.

py-spy reads a process's memory; the job needs no change, no restart and no knowledge of us. A stack
is one moment, so each rank is read twice: one that has not moved in between may hang.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.common.errors import WorkbenchError
from workbench.common.names import named_ranks
from workbench.rank.stack_dumps import StackFrame
from workbench.runs.running_job import RankProcess

BETWEEN = 0.5  # seconds between the two looks
LIMIT = 60.0  # seconds for one look at one process, on a busy machine
_DISTRIBUTED = "torch/distributed/distributed_c10d.py"
_BACKWARD = ("torch/autograd/__init__.py", "torch/_tensor.py")


@dataclass(frozen=True)
class Stack:
    """One thread's frames, innermost first. ``active``: it ran on a core at that moment."""

    thread: str
    active: bool
    frames: tuple[StackFrame, ...]

    @property
    def operation(self) -> str:
        """The call of torch.distributed that the thread is in, or "backward"; "": neither."""
        for frame in reversed(self.frames):  # outermost first: the user's call, not its inner ones
            if frame.file.endswith(_DISTRIBUTED) and not frame.function.startswith("_"):
                return frame.function.rpartition(".")[2]
            if frame.file.endswith(_BACKWARD) and frame.function.endswith("backward"):
                return "backward"
        return ""

    @property
    def place(self) -> StackFrame | None:
        """The innermost line of the user's own code; the innermost of all if there is none."""
        frames = (frame for frame in self.frames if frame.users_own)
        return next(frames, self.frames[0] if self.frames else None)


@dataclass(frozen=True)
class RankStack:
    """One rank and its stacks. ``moved``: its stack changed between the two looks, or it ran."""

    process: RankProcess
    stacks: tuple[Stack, ...]
    moved: bool

    @property
    def main(self) -> Stack:
        """The main thread's stack."""
        named = (stack for stack in self.stacks if stack.thread == "MainThread")
        return next(named, self.stacks[0])

    @property
    def words(self) -> str:
        """Where it stands: "in all_reduce, at line 9 of train.py"."""
        place = self.main.place
        if place is None:
            return "in no Python code"
        inside = f"in {self.main.operation}, " if self.main.operation else ""
        function = "" if place.function == "<module>" else f", in {place.function}"
        return f"{inside}at line {place.line} of {Path(place.file).name}{function}"


def read_stacks(processes: Sequence[RankProcess]) -> list[RankStack]:
    """Return where these ranks stand. Raises WorkbenchError if py-spy is not there, or not
    allowed to.
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        raise WorkbenchError(
            "workbench stacks reads other processes by py-spy, which is not installed: "
            "pip install 'distributed-training-workbench[stacks]'"
        )
    with ThreadPoolExecutor(len(processes)) as pool:

        def look(process: RankProcess) -> tuple[Stack, ...]:
            return _look(spy, process)

        before = list(pool.map(look, processes))
        time.sleep(BETWEEN)
        after = list(pool.map(look, processes))
    return [
        RankStack(process, stacks, old != stacks or any(stack.active for stack in stacks))
        for process, old, stacks in zip(processes, before, after, strict=True)
    ]


def _look(spy: str, process: RankProcess) -> tuple[Stack, ...]:
    """Return the stacks of all threads of a process."""
    command = [spy, "dump", "--json", "--pid", str(process.pid)]
    name = f"rank {process.rank} (process {process.pid})"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise WorkbenchError(f"py-spy has not read {name} within {LIMIT:.0f} s") from None
    if done.returncode or not done.stdout.strip():
        if not Path(f"/proc/{process.pid}").exists():
            raise WorkbenchError(f"{name} has ended")
        remedy = ""
        if "permission" in done.stderr.lower():
            remedy = (
                ". Run this as the job's user; where the kernel or a container keeps ptrace from "
                "users (kernel.yama.ptrace_scope, CAP_SYS_PTRACE), as root: sudo"
            )
        reason = (done.stderr.strip().splitlines() or ["nothing"])[0]
        raise WorkbenchError(f"py-spy cannot read {name}: {reason}{remedy}")
    return tuple(_stack(thread) for thread in json.loads(done.stdout))


def _stack(thread: dict[str, Any]) -> Stack:
    frames = (
        StackFrame(frame["filename"], int(frame["line"]), frame["name"])
        for frame in thread["frames"]
    )
    return Stack(thread["thread_name"] or "", bool(thread["active"]), tuple(frames))


def findings(ranks: Sequence[RankStack], waits: Sequence[str] = ()) -> list[str]:
    """Return in sentences where each rank is, and which are missing where others wait. ``waits``:
    what the records of an attached job say of that (group_waits.py).
    """
    sentences = []
    first = ranks[0].process
    if missing := sorted(set(range(first.ranks)) - {one.process.rank for one in ranks}):
        sentences.append(
            f"{named_ranks(missing).capitalize()} of {first.ranks} {_is(missing)} not on this "
            "host, or ended."
        )
    groups = _grouped(ranks, lambda one: one.words)
    for where, members in groups.items():
        still = "" if any(one.moved for one in members) else f", and {_has(members)} not moved"
        numbers = [one.process.rank for one in members]
        sentences.append(f"{named_ranks(numbers).capitalize()} {_is(numbers)} {where}{still}.")
    return [*sentences, *(waits or _of_calls(ranks))]


def _of_calls(ranks: Sequence[RankStack]) -> list[str]:
    """Return in a sentence how the calls fit together that ranks are in."""
    calls = _grouped(ranks, lambda one: one.main.operation)
    outside = [one.process.rank for one in calls.pop("", [])]
    still = not any(one.moved for one in ranks)
    operation = next(iter(calls), "")
    if len(calls) == 1 and outside and operation != "backward":
        return [f"{operation} ends when {named_ranks(outside)} {_has(outside)} joined it."]
    if len(calls) == 1 and not outside and len(ranks) > 1 and still:
        return [
            f"All are in {operation}, and none moves. If these are calls of different groups, they "
            "may wait in a circle: workbench attach records which rank waits in which group."
        ]
    if len(calls) > 1 and still:
        return [
            f"No rank moves, and they are in different calls: {', '.join(sorted(calls))}. If these "
            "are calls of one group, the ranks disagree about what comes next."
        ]
    return []


def _grouped(
    ranks: Sequence[RankStack], key: Callable[[RankStack], str]
) -> dict[str, list[RankStack]]:
    groups: dict[str, list[RankStack]] = defaultdict(list)
    for one in ranks:
        groups[key(one)].append(one)
    return groups


def _is(items: Sequence[object]) -> str:
    return "is" if len(items) == 1 else "are"


def _has(items: Sequence[object]) -> str:
    return "has" if len(items) == 1 else "have"
