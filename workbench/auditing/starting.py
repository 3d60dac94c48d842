"""Jobs that are audited: ranks of ours, forked from a process that stays; or a command's.

The process that stays imports torch once and serves every later audit of this driver. It ends with
the driver, however that ends: it reads the driver's end of a pipe. Each job has a session of its
own, which is killed as a whole when its audit is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from workbench.auditing.folder import ENDED, OVER, VARIABLE, read
from workbench.common import threads
from workbench.common.environment import without_ranks
from workbench.common.errors import WorkbenchError

_START = 90.0  # seconds to import torch, from a cold disk on a busy machine
_GENTLE = 5.0  # seconds for a command to end by itself
# Ranks of an audit share cores, and forks must not have a pool of threads.
CALM = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
}
_READ_EARLY = ("WORKBENCH_", "TORCH_", "OMP_", "MKL_", "OPENBLAS_", "PYTHON", "CUDA_", "LD_")


class Job(Protocol):
    """Processes that run the script."""

    @property
    def end(self) -> str:
        """How it ended, in words; "" while it runs."""
        ...

    def close(self) -> None:
        """End all of it."""
        ...


class Starter:
    """The process from which ranks are forked."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workbench.auditing.start_ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=without_ranks({**os.environ, **CALM, **environment}),
            start_new_session=True,  # a Ctrl-C is the driver's business
            encoding="utf-8",
        )
        self.driver = os.getpid()
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self.driver == os.getpid() and self._process.poll() is None

    def fork(self, job: Mapping[str, object]) -> int:
        """Have a job started; return its leader's process number. Raises WorkbenchError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            if _readable(self._process.stdout.fileno(), _START):
                return int(self._process.stdout.readline())
        self.close()
        raise WorkbenchError(
            "the process that starts the ranks of an audit did not come up: its error stands "
            "above. Can this Python import torch and workbench?"
        )

    def close(self) -> None:
        """End the process, and all jobs below it."""
        if self.driver != os.getpid():
            return
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.wait(_GENTLE)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()


_starters: dict[tuple[tuple[str, str], ...], Starter] = {}
_lock = threading.Lock()


def starter(environment: Mapping[str, str]) -> Starter:
    """Return the process for jobs with this environment, which torch reads when it is imported."""
    early = {n: v for n, v in environment.items() if n.startswith(_READ_EARLY)}
    key = tuple(sorted(early.items()))
    with _lock:
        known = _starters.get(key)
        if known is None or not known.is_alive:
            if known is None and len(_starters) >= 2:
                _starters.pop(next(iter(_starters))).close()
            known = _starters[key] = Starter(early)
        return known


def close_all() -> None:
    """End the processes that stay for the next audit."""
    with _lock:
        for one in _starters.values():
            one.close()
        _starters.clear()


threads.ends.append(close_all)


class LocalJob:
    """Ranks on this machine that run a script."""

    def __init__(
        self,
        folder: Path,
        script: str,
        args: Sequence[str],
        ranks: int,
        environment: Mapping[str, str],
    ) -> None:
        self._folder = folder
        job = {
            "folder": str(folder),
            "script": script,
            "args": [*args],
            "ranks": ranks,
            "environment": {**environment, VARIABLE: str(folder)},
            "cwd": os.getcwd(),
            "port": _free_port(),
        }
        self._leader = starter(environment).fork(job)

    @property
    def end(self) -> str:
        """How it ended, in words; "" while it runs."""
        path = self._folder / ENDED
        if path.exists():
            codes = read(path)
            bad = [f"rank {rank} with status {code}" for rank, code in enumerate(codes) if code]
            return f"the script ended: {', '.join(bad)}" if bad else "the script ended"
        try:
            os.kill(self._leader, 0)
        except ProcessLookupError:
            return "the ranks' processes were killed"
        return ""

    def close(self) -> None:
        """End all of it."""
        (self._folder / OVER).touch()
        with contextlib.suppress(OSError):
            os.killpg(self._leader, signal.SIGKILL)
        until = time.monotonic() + _GENTLE
        while time.monotonic() < until:
            try:
                os.killpg(self._leader, 0)
            except OSError:
                return
            time.sleep(0.005)


class CommandJob:
    """A command that starts the ranks, such as torchrun; they inherit its environment."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        self._folder = folder
        with (folder / "out").open("wb") as out:
            self._process = subprocess.Popen(
                [*words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **CALM, **_our_hook(folder), VARIABLE: str(folder)},
                start_new_session=True,
            )

    @property
    def end(self) -> str:
        """How it ended, in words; "" while it runs."""
        status = self._process.poll()
        return "" if status is None else f"the command ended with status {status}"

    def close(self) -> None:
        """End all of it: the ranks end by themselves, and the command with them."""
        (self._folder / OVER).touch()
        try:
            self._process.wait(_GENTLE)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GENTLE)
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _our_hook(folder: Path) -> dict[str, str]:
    """Return what lets torch load this version's hook, whichever is installed beside it."""
    hook = Path(__file__).parents[1] / "_autoload.py"
    if not hook.exists():  # a wheel has it beside the package alone
        return {}
    place = folder / "hook"
    place.mkdir()
    shutil.copyfile(hook, place / "_workbench_autoload.py")
    paths = [str(place), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])
