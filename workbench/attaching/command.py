"""``workbench attach -- COMMAND``: what becomes the job, and what it needs for that.

The command does not start the job as a child: it becomes the job (``exec``). So the exit status,
the terminal, the signals and the process number are the job's own, whatever it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.common.errors import SpecError, WorkbenchError

ENGINE, OPERATIONS = "engine", "operations"
_BEFORE = 16_777_216  # bytes that a rank's records take at the least: lanes are reserved whole


@dataclass(frozen=True)
class Job:
    """A command that is to run attached. ``program``: the file that is executed."""

    program: str
    words: Sequence[str]
    environment: Mapping[str, str]
    trace: Path

    def become(self) -> None:
        """Replace this process by the job. Does not return."""
        os.execve(self.program, [*self.words], dict(self.environment))


def check_command(words: Sequence[str]) -> str:
    """Return the file that a command line runs. Raises SpecError for what cannot be attached to."""
    if not words:
        raise SpecError(
            "name the command that starts the job, after two dashes: "
            "workbench attach -- torchrun --nproc-per-node 4 train.py"
        )
    if words[0].startswith("-"):
        raise SpecError(
            f"there is no option {words[0]!r} (workbench attach --help lists them), and no program "
            "of that name: the command that starts the job follows after two dashes"
        )
    program = shutil.which(words[0])
    if program is None:
        raise SpecError(
            f"there is no program {words[0]!r} on PATH, nor a file of that name that can be "
            "executed: is the job's environment active?"
        )
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        raise SpecError(
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading the workbench in the job's "
            "processes: unset it"
        )
    return program


def prepare(words: Sequence[str], trace: Path, *, observe: bool) -> Job:
    """Return the job of this command line, which records into ``trace``.

    ``observe`` leaves the job's backend alone. Raises SpecError or WorkbenchError for what cannot
    be attached to, before anything starts.
    """
    program = check_command(words)
    folder = trace.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise WorkbenchError(
            f"the job's records cannot go to {folder}: {error.strerror}. Name another folder: "
            "--trace DIR"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK) or free < _BEFORE:
        why = "it is read-only" if free >= _BEFORE else f"only {free:,} bytes are free there"
        raise WorkbenchError(
            f"the job's records cannot go to {folder}: {why}. Name another folder: --trace DIR"
        )
    variables = {
        "WORKBENCH_TRACE": str(folder),
        "WORKBENCH_ATTACH": OPERATIONS if observe else ENGINE,
    }
    return Job(program, list(words), os.environ | variables, folder)
