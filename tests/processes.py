"""Real processes for tests: n ranks of a function or of a script, a deadline, nothing left behind.

A fork server imports torch once and forks the ranks, so that a rank starts in milliseconds. A
script ends here as ``python script.py`` does, through the whole end of the interpreter: its exit
code is the one that a user would see. A function's process ends faster, as multiprocessing's do.
The fork server ends with the test run.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """How one rank ended: exit code (minus the signal's number), what it returned and printed."""

    rank: int
    code: int
    value: Any
    out: str
    err: str
    seconds: float


def run(
    body: Callable[..., Any] | str,
    size: int,
    *args: Any,
    env: Mapping[str, str] | Callable[[int], Mapping[str, str]] = {},  # noqa: B006 (never changed)
    backend: str = "workbench",
    group_timeout: float = 60.0,
    timeout: float = 120.0,
    expendable: Collection[int] = (),
) -> list[Ended]:
    """Run ``body(rank, size, *args)`` in ``size`` processes that form a group; wait for all.

    ``body``: a function of a test module (it travels by name, ``args`` and its return value as
    JSON), or the text of a script, which makes its own group if it wants one. ``env``: further
    variables, or a function from rank to such. ``backend=""``: no group is made. ``expendable``
    ranks are not waited for, but killed in the end. Fails if another one is not done after
    ``timeout`` seconds.
    """
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(body, str):
            Path(folder, "script.py").write_text(body)
            what = {"script": f"{folder}/script.py"}
        else:
            place = Path(inspect.getfile(body)).relative_to(ROOT).with_suffix("")
            what = {"module": ".".join(place.parts), "function": body.__name__}
        tasks = []
        for rank in range(size):
            extra = env(rank) if callable(env) else env
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                **extra,
            }
            tasks.append(
                {
                    **what,
                    "rank": rank,
                    "size": size,
                    "args": args,
                    "env": variables,
                    "folder": folder,
                    "backend": backend,
                    "group_timeout": group_timeout,
                }
            )
        started = time.monotonic()
        codes = _fork_server().run(tasks, timeout, set(expendable))
        ended = [_gather(folder, rank, *codes[rank], started) for rank in range(size)]
    late = [rank for rank in ended if rank.code == _LATE]
    assert not late, f"not done after {timeout:.0f} s:\n" + "\n".join(_words(r) for r in ended)
    return ended


def values(body: Callable[..., Any] | str, size: int, *args: Any, **options: Any) -> list[Any]:
    """As ``run``; every rank must end with 0. Returns what each returned."""
    ended = run(body, size, *args, **options)
    assert all(rank.code == 0 for rank in ended), "\n".join(map(_words, ended))
    return [rank.value for rank in ended]


def command(
    words: Sequence[str], timeout: float = 120.0, **env: str
) -> subprocess.CompletedProcess:
    """Run a command in a session of its own; whatever of it is left after ``timeout`` is killed."""
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=_environment() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        _kill_all(process.pid)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


_LATE = 999


def ending_with_us(program: str) -> str:
    """Return the program, for ``python -c``, so that it ends when this process is killed, too."""
    ends = "from workbench.common.guardian import end_with"
    return f"{ends}\nend_with({os.getpid()})\n{program}"


def _words(ended: Ended) -> str:
    return f"rank {ended.rank}: exit code {ended.code}\n{ended.out[-2000:]}{ended.err[-6000:]}"


def _gather(folder: str, rank: int, code: int, end: float, started: float) -> Ended:
    def text(kind: str) -> str:
        path = Path(folder, f"{rank}.{kind}")
        return path.read_text(errors="replace") if path.exists() else ""

    value = json.loads(text("json") or "null")
    return Ended(rank, code, value, text("out"), text("err"), end - started)


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
    }


def _kill_all(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class ForkServer:
    """The driver's end: hand over tasks, hear how each process ended. ``module``: the server's."""

    def __init__(self, module: str = "tests.processes") -> None:
        mine, theirs = socket.socketpair()
        self._ends: dict[int, int] = {}  # exit code by pid, of those that ``fork`` started
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            cwd=ROOT,
            env=_environment(),
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.socket = mine
        atexit.register(self.close)

    def run(
        self, tasks: list[dict[str, Any]], timeout: float, expendable: set[int]
    ) -> list[tuple[int, float]]:
        """(exit code, when it ended) by rank."""
        self.socket.sendall(json.dumps(tasks).encode() + b"\n")
        pids = self._hear(60.0)["pids"]
        rank_of = {pid: rank for rank, pid in enumerate(pids)}
        codes: dict[int, tuple[int, float]] = {}
        deadline = time.monotonic() + timeout
        late: set[int] = set()
        while len(codes) < len(pids):
            waiting = set(range(len(pids))) - codes.keys()
            left = deadline - time.monotonic()
            if waiting <= expendable | late or left <= 0:
                if left <= 0 and not late:  # where does it hang?
                    late = waiting - expendable
                    for rank in late:
                        os.kill(pids[rank], signal.SIGUSR1)
                    time.sleep(0.5)
                for rank in waiting:
                    _kill_all(pids[rank])
                left = 10.0
            message = self._hear(left)
            if message.get("pid") in rank_of:
                rank = rank_of[message["pid"]]
                codes[rank] = (_LATE if rank in late else message["code"], message["end"])
        for pid in pids:  # what a rank started and left
            _kill_all(pid)
        return [codes[rank] for rank in range(len(pids))]

    def fork(self, task: dict[str, Any]) -> int:
        """Start a process that is not waited for, and return its pid."""
        self.socket.sendall(json.dumps([task]).encode() + b"\n")
        while True:  # others may end meanwhile
            message = self._hear(60.0)
            if "pids" in message:
                return int(message["pids"][0])
            self._ends[message["pid"]] = message["code"]

    def code(self, pid: int) -> int | None:
        """Return the exit code of a process that ``fork`` started; None while it runs."""
        while message := self._hear(0.0):
            self._ends[message["pid"]] = message["code"]
        return self._ends.get(pid)

    def _hear(self, seconds: float) -> dict[str, Any]:
        """The next message, or nothing in that time. One line a message, each sent whole."""
        if not select.select([self.socket], [], [], max(0.0, seconds))[0]:
            return {}
        return dict(json.loads(_line(self.socket)))

    def close(self) -> None:
        self.socket.close()
        self.process.wait(10)


@functools.cache
def _fork_server() -> ForkServer:
    return ForkServer()


def _line(sock: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            return b""
        data += byte
    return bytes(data)


# -- in the fork server --


def serve(fd: int) -> dict[str, Any] | None:
    """Fork what is asked for, until the driver is gone. In a forked process: return its task."""
    driver = socket.socket(fileno=fd)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    living: set[int] = set()
    while True:
        readable, _, _ = select.select([driver, wake_read], [], [])
        if wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            while living:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                living.discard(pid)
                message = {
                    "pid": pid,
                    "code": os.waitstatus_to_exitcode(status),
                    "end": time.monotonic(),
                }
                driver.sendall(json.dumps(message).encode() + b"\n")
        if driver in readable:
            line = _line(driver)
            if not line:
                for pid in living:
                    _kill_all(pid)
                return None
            pids = []
            for task in json.loads(line):
                if (pid := os.fork()) == 0:
                    os.setpgid(0, 0)
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for end in (wake_read, wake_write, driver.detach()):
                        os.close(end)
                    return dict(task)
                with contextlib.suppress(OSError):
                    os.setpgid(pid, pid)
                pids.append(pid)
            living |= set(pids)
            driver.sendall(json.dumps({"pids": pids}).encode() + b"\n")


def _perform(task: dict[str, Any]) -> None:
    """Be one rank."""
    import faulthandler
    import runpy
    import threading
    import traceback
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    folder, rank = task["folder"], task["rank"]
    for kind, descriptor in (("out", 1), ("err", 2)):
        with open(f"{folder}/{rank}.{kind}", "wb") as file:
            os.dup2(file.fileno(), descriptor)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.update(task["env"])
    torch.set_num_threads(1)
    if "script" in task:
        sys.argv = [task["script"]]
        runpy.run_path(task["script"], run_name="__main__")
        return
    body = getattr(importlib.import_module(task["module"]), task["function"])
    if task["backend"]:
        import workbench  # noqa: F401 (makes the backend known)

        limit = timedelta(seconds=task["group_timeout"])
        dist.init_process_group(task["backend"], timeout=limit)
    try:
        value = body(rank, task["size"], *task["args"])
        Path(folder, f"{rank}.json").write_text(json.dumps(value))
        if dist.is_initialized():
            dist.destroy_process_group()
        code = 0
    except SystemExit as ends:
        code = int(ends.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking down torch's modules would cost more than most tests


if __name__ == "__main__":
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import polars  # noqa: F401
    import pytest  # noqa: F401
    import torch._dynamo  # 2 s of a core for each rank that makes an optimizer
    import torch.distributed  # noqa: F401

    import workbench.process_group.group  # noqa: F401 (every rank needs these: import them once)

    work = serve(int(sys.argv[1]))
    if work is not None:
        _perform(work)
