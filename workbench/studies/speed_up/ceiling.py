"""This machine's ceiling: how many times one process's work p processes do.

Measured, not read from a data sheet: each process works by itself, without a message, all at the
same time. Of pure computing (small matrices, in a core's own cache) the cores are the limit; of
copying memory the way to memory is, which all cores share. No training of p ranks on this machine
gets further than the first of them, and one that moves much memory not as far.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.common.errors import WorkbenchError
from workbench.recording.run_queue import LOOK, OwnTime

KINDS = ("compute", "copy")
SECONDS = 0.15  # of one measurement
ROUNDS = 3  # the best of them counts: a ceiling is what can be, and others share the machine
DEADLINE = 60.0  # seconds of its own for a process to come up or to answer
_KERNEL = Path(__file__).with_name("kernel.py")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class KernelProcesses:
    """Processes that wait for work of one kind (kernel.py); a context manager, which ends them."""

    def __init__(self, kind: str, most: int) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(_KERNEL), kind],
                text=True,
                bufsize=1,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,
                errors="replace",
            )
            for _ in range(most)
        ]

    def __enter__(self) -> KernelProcesses:
        for process in self.processes:
            self._line(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()

    def rate(self, many: int, seconds: float = SECONDS) -> float:
        """Return the work per second of the first ``many`` processes together."""
        for process in self.processes[:many]:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
        return sum(float(self._line(process)) for process in self.processes[:many])

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        clock = OwnTime([process.pid])
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(LOOK):
                if clock.seconds > DEADLINE:
                    raise WorkbenchError(
                        f"the process that measures what this machine can do (pid {process.pid}) "
                        f"said nothing within {DEADLINE:.0f} s"
                    )
        text = process.stdout.readline()
        if not text:
            raise WorkbenchError(
                f"the process that measures what this machine can do (pid {process.pid}) ended "
                f"with code {process.wait()}"
            )
        return text


def ceilings(ranks: Sequence[int], seconds: float = SECONDS) -> dict[str, dict[int, float]]:
    """Return kind -> number of processes -> how many times one process's work all do together.

    Takes ROUNDS * seconds for each number and kind. Raises WorkbenchError.
    """
    counts = sorted({1, *ranks})
    result: dict[str, dict[int, float]] = {}
    for kind in KINDS:
        best = dict.fromkeys(counts, 0.0)
        with KernelProcesses(kind, max(counts)) as kernels:
            kernels.rate(max(counts), seconds / 3)  # caches and clocks warm up
            for _ in range(ROUNDS):
                for many in counts:
                    best[many] = max(best[many], kernels.rate(many, seconds))
        result[kind] = {many: best[many] / best[1] for many in counts}
    return result


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def at(measured: Mapping[int, float], ranks: int) -> float | None:
    """Return a ceiling for this number of ranks; None if it was not measured."""
    return measured.get(ranks)
