"""A driver where shared memory and disks are small, as in a container: ``python -m`` this module.

It makes a mount namespace of its own, in which /dev/shm has 64 MB, a folder 1.6, and no file may
have more than 64. It says as JSON what became of runs there: what does not fit is refused in words
or left out, and nothing ends by a bus error.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import workbench as wb
from workbench.recording.events import CONTEXTS

MOST = 2**26  # bytes of a file, that of shared memory too
TIMEOUT = 90.0  # seconds for each part, on a busy machine
MOUNTED = (
    "mount -t tmpfs -o size=64m tmpfs /dev/shm && mount -t tmpfs -o size=1600k tmpfs {folder} && "
    "exec {python} -m tools.soak.small_memory {folder}"
)


def in_a_namespace(timeout: float = 3 * TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run this module where memory is small."""
    with tempfile.TemporaryDirectory() as folder:
        command = MOUNTED.format(folder=folder, python=sys.executable)
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=Path(__file__).parents[2],
        )


def main(folder: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
    report = {"trace": _trace(f"{folder}/trace"), "crowd": _crowd(), "too large": _too_large()}
    print(json.dumps(report | {"in /dev/shm": os.listdir("/dev/shm")}))


def _crowd() -> dict[str, Any]:
    """16 ranks that all send to all: 240 mailboxes of a megabyte."""
    exp = wb.Experiment(ranks=16, iterations=1, all_reduce="all_to_all", batch_size=16)
    result = wb.run(exp).wait(timeout=TIMEOUT, check=False)
    replicas = len(set(result.digests.values()))
    return {"ok": result.ok, "error": str(result.error), "replicas": replicas}


def _too_large() -> str:
    """Mailboxes of 256 MB."""
    exp = wb.Experiment(ranks=2, iterations=2, chunk_bytes=2**26)
    return str(wb.run(exp).wait(timeout=TIMEOUT, check=False).error)


def _trace(folder: str) -> dict[str, Any]:
    """A job of one rank, whose trace fills its disk."""
    import torch
    import torch.distributed as dist

    os.environ["WORKBENCH_TRACE"] = folder
    dist.init_process_group("workbench", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(64)
    for _ in range(2 * CONTEXTS):
        dist.all_reduce(x)
    right = bool((x == 1).all())
    dist.destroy_process_group()
    del os.environ["WORKBENCH_TRACE"]
    loaded = wb.load(folder, partial=True)
    problems = loaded.store.metadata.get("problems", "")
    return {"right": right, "rows": loaded.events.height, "problems": problems}


if __name__ == "__main__":
    main(*sys.argv[1:])
