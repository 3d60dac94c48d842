"""The process from which ranks of an audit are forked: it imports torch once, for all of them.

    python -m workbench.auditing.start_ranks

It reads lines of JSON from its input, a job each, forks a leader per job, which forks the ranks,
and answers with the leader's process number. It ends with its input, and its jobs with it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.auditing.folder import ENDED, write
from workbench.common.guardian import end_with

# What scripts import sooner or later: once here, or once in each rank.
_LATE = ("torch", "torch.distributed", "torch._dynamo", "workbench.auditing.ranks.probe")


def serve() -> None:
    """Fork a leader for each job that is read, until the input ends."""
    for name in _LATE:
        importlib.import_module(name)
    importlib.import_module("workbench.auditing.ranks.forks")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaders are not waited for
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            lead(job)
        print(pid, flush=True)


def lead(job: Mapping[str, Any]) -> None:
    """Fork the ranks of a job, in a session of their own, and wait for their end."""
    end_with(os.getppid())
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    log = os.open(Path(job["folder"], "out"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 1), os.dup2(log, 2)
    children = []
    for rank in range(job["ranks"]):
        pid = os.fork()
        if pid == 0:
            os._exit(_run(job, rank))
        children.append(pid)
    status = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    write(Path(job["folder"], ENDED), status)
    os._exit(0)


def _run(job: Mapping[str, Any], rank: int) -> int:
    """Run the script as a rank, as torchrun would; return its exit status."""
    end_with(os.getppid())
    from workbench.auditing.ranks.forks import install

    size = str(job["ranks"])
    os.environ |= job["environment"]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    os.environ |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job["port"])}
    os.chdir(job["cwd"])
    script = str(job["script"])
    sys.argv = [script, *job["args"]]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    status = 0
    try:
        install(job["folder"])
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        sys.excepthook(*sys.exc_info())
        status = 1
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    return status


if __name__ == "__main__":
    serve()
