"""Ranks as the tasks of a Slurm job, submitted through submitit where it is installed, else as a
batch script of ours, which `workbench run SPEC --launcher slurm --dry-run` prints.

The driver runs where you are, on a login node say; the job's tasks call it by its address. A job
may wait in the queue: the run begins when all its tasks have called. What ends a job (scancel, its
time limit, a node that fails) ends ranks, which the run then names.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.agents_parent import AGENT
from workbench.launchers.processes.elsewhere import AgentLauncher
from workbench.launchers.processes.needs import check_address, need_program

TITLE = "Slurm"
REMEDY = "run on a node from which jobs are submitted"
LOOK = 1.0  # seconds between two questions to Slurm, which has other users
GENTLE = 1.5  # seconds for a job to end by itself, once its ranks have
ANSWER = 30.0  # seconds for Slurm to answer
# Not over; after these a job's tasks may still call.
_GOES_ON = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "STOPPED")


@dataclass(frozen=True, kw_only=True)
class Config:
    address: str = "127.0.0.1"  # of the driver, as nodes reach it; 127.0.0.1: all on this machine
    nodes: int = 1  # over which ranks are spread evenly
    partition: str = ""  # left out: Slurm's default
    account: str = ""  # left out: yours
    time_limit: str = ""  # of the job, such as 1:00:00; left out: the partition's
    queue_seconds: float = 3600.0  # to wait for the job to start
    via: Literal["auto", "sbatch", "submitit"] = "auto"  # auto: submitit where it is installed
    folder: str = "slurm"  # for submitit's files, where all nodes see it


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where this launcher cannot start the experiment's ranks here."""
    for name in ("sbatch", "squeue", "scancel"):
        need_program("slurm", name, REMEDY)
    check_address(config.address)
    if config.nodes < 1 or exp.ranks % config.nodes:
        why = f"{exp.ranks} ranks are not spread evenly over {config.nodes} nodes"
        raise SpecError.at("launcher_options.nodes", why)
    if config.via == "submitit" and find_spec("submitit") is None:
        raise SpecError.at("launcher_options.via", "needs submitit: pip install submitit")
    for name in ("partition", "account", "time_limit"):
        if set(getattr(config, name)) - set(_PLAIN):  # it stands in a script
            why = "has letters that no name or time of Slurm's has"
            raise SpecError.at(f"launcher_options.{name}", why, getattr(config, name))


_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:"


class Launcher(AgentLauncher):
    """One job for all ranks."""

    config: Config
    alive = True  # how ranks end is told by their agents

    def __init__(self) -> None:
        super().__init__()
        self._job, self._looked, self._state = "", 0.0, ""

    def configure(self, config: Any, threads: int) -> None:
        super().configure(config, threads)
        self.patience = config.queue_seconds

    @property
    def _through_submitit(self) -> bool:
        via = self.config.via
        return via == "submitit" or (via == "auto" and find_spec("submitit") is not None)

    def words(self, count: int) -> str:
        """Return the batch script."""
        lines = [f"#SBATCH --{name}={value}" for name, value in self._job_options(count).items()]
        agent = shlex.join([sys.executable, *AGENT])
        # One task's end must not end the others: that is for the driver to decide.
        srun = f"exec srun --kill-on-bad-exit=0 --wait=0 {agent}"
        return "\n".join(["#!/bin/sh", *lines, "#SBATCH --output=/dev/null", srun, ""])

    def _job_options(self, count: int) -> dict[str, Any]:
        """Return what the job asks Slurm for."""
        config = self.config
        options = {
            "job-name": "workbench",
            "nodes": config.nodes,
            "ntasks-per-node": count // config.nodes,
            "cpus-per-task": self.threads,
            "partition": config.partition,
            "account": config.account,
            "time": config.time_limit,
        }
        return {name: value for name, value in options.items() if value}

    def start(self, count: int, environment: dict[str, str]) -> None:
        if self._through_submitit:
            self._job = self._submit(count, environment)
            return
        done = _slurm(["sbatch", "--parsable"], self.words(count), {**os.environ, **environment})
        if done.returncode:
            raise WorkbenchError(f"sbatch refused the job: {done.stderr.strip()}")
        self._job = done.stdout.strip().partition(";")[0]

    def _submit(self, count: int, environment: Mapping[str, str]) -> str:
        """Submit the job through submitit. Returns its number."""
        import submitit

        options = {
            name.replace("-", "_"): value for name, value in self._job_options(count).items()
        }
        options["srun_args"] = ["--kill-on-bad-exit=0", "--wait=0"]
        folder = Path(self.config.folder).expanduser()
        try:
            executor = submitit.SlurmExecutor(folder=folder)
            executor.update_parameters(**options)
            with _in_environment(environment):
                job = executor.submit(subprocess.call, [sys.executable, *AGENT])
        except Exception as error:  # of its own kinds, and sbatch's
            words = str(error).strip() or type(error).__name__
            raise WorkbenchError(f"submitit could not submit the job: {words}") from error
        return str(job.job_id)

    def failure(self) -> str:
        state = self._look()
        if state.partition(" ")[0] in _GOES_ON:
            return ""
        return f"Slurm's job {self._job} is over ({state or 'unknown to squeue'})"

    def _look(self) -> str:
        """Return the job's state and its reason, as squeue says; "": it knows of none."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            done = _slurm(["squeue", "--noheader", "--jobs", self._job, "--format", "%T %r"])
            self._state = done.stdout.strip()
        return self._state

    def close(self, ranks: int) -> None:
        """Cancel what is left of the job."""
        super().close(ranks)
        deadline = time.monotonic() + GENTLE
        while self._job and time.monotonic() < deadline:
            self._looked = 0.0
            if self._look().partition(" ")[0] in ("", "COMPLETED", "COMPLETING", "FAILED"):
                break
            time.sleep(0.2)
        if self._job:
            _slurm(["scancel", "--quiet", self._job])
        self._job = ""


def _slurm(
    words: list[str], script: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            input=script,
            env=None if environment is None else dict(environment),
            capture_output=True,
            text=True,
            timeout=ANSWER,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: {error}")


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables while submitit calls sbatch, which hands on its own environment."""
    with _one_at_a_time:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
