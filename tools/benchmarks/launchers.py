"""From a launcher's start to the first collective of four ranks, beside a plain program under it.

The plain program is what one writes without us: torch.distributed over Gloo, and one all-reduce. A
run builds a model, reads its samples and computes a gradient before its first collective. Both are
timed from the moment at which the driver starts the launcher until the last rank begins its first
collective, and so is the import of torch in the plain program. Each sample is a fresh driver, which
has imported what it needs. A launcher that cannot run here is left out: `make test-launchers`
installs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.launchers.local_slurm import local_slurm, why_no_slurm
from tests.processes import ROOT
from tools.benchmarks.figures import Figure

RANKS = 4
SAMPLES = 5
BEYOND_S = 0.5
LAUNCHERS = ("local", "torchrun", "mpiexec", "slurm", "ray", "spark")

_FIRST_COLLECTIVE = """
def first_collective(rank, meeting):
    import time
    import torch
    import torch.distributed as dist
    imported = time.monotonic_ns()
    dist.init_process_group("gloo", meeting, rank=rank, world_size=4)
    x = torch.ones(1)
    begin = time.monotonic_ns()
    dist.all_reduce(x)
    assert x.item() == 4
    dist.barrier()
    dist.destroy_process_group()
    return imported, begin
"""

PLAIN = f"""{_FIRST_COLLECTIVE}
import os, sys
names = "RANK PMI_RANK OMPI_COMM_WORLD_RANK SLURM_PROCID".split()
rank = next(int(os.environ[name]) for name in names if name in os.environ)
meeting = "env://" if "MASTER_ADDR" in os.environ else sys.argv[1]  # torchrun has a store
os.write(1, b"READY %d %d\\n" % first_collective(rank, meeting))
"""

# The drivers print seconds until torch is imported and until the first collective begins.
LOCAL_DRIVER = """
import os, subprocess, sys, time
begin = time.monotonic_ns()
ranks = [
    subprocess.Popen(sys.argv[1:], env={**os.environ, "RANK": str(rank)}, stdout=subprocess.PIPE)
    for rank in range(4)
]
moments = [tuple(map(int, one.communicate()[0].split()[1:])) for one in ranks]
print(*((max(one) - begin) / 1e9 for one in zip(*moments)))
"""

COMMAND_DRIVER = """
import re, subprocess, sys, time
begin = time.monotonic_ns()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=120)
moments = [tuple(map(int, one)) for one in re.findall(r"READY (\\d+) (\\d+)", done.stdout)]
assert len(moments) == 4, done.stdout + done.stderr
print(*((max(one) - begin) / 1e9 for one in zip(*moments)))
"""

# A batch job, as a run's is: its output is a file.
SLURM_DRIVER = """
import re, subprocess, sys, time
output, *words = sys.argv[1:]
begin = time.monotonic_ns()
options = ["--wait", "--nodes=2", "--ntasks-per-node=2", f"--output={output}"]
subprocess.run(["sbatch", *options, *words], check=True, capture_output=True, timeout=120)
moments = [tuple(map(int, one)) for one in re.findall(r"READY (\\d+) (\\d+)", open(output).read())]
assert len(moments) == 4, open(output).read()
print(*((max(one) - begin) / 1e9 for one in zip(*moments)))
"""

RAY_DRIVER = f"""{_FIRST_COLLECTIVE}
import sys, time
import ray
begin = time.monotonic_ns()
ray.init(address="local", num_cpus=5, include_dashboard=False, log_to_driver=False,
         logging_level="error")
@ray.remote(num_cpus=1)
class Plain:
    def work(self, rank, meeting):
        return first_collective(rank, meeting)
actors = [Plain.remote() for _ in range(4)]
moments = ray.get([one.work.remote(rank, sys.argv[1]) for rank, one in enumerate(actors)])
print(*((max(one) - begin) / 1e9 for one in zip(*moments)))
"""

SPARK_DRIVER = f"""{_FIRST_COLLECTIVE}
import sys, time
from pyspark.sql import SparkSession
begin = time.monotonic_ns()
builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
meeting = sys.argv[1]
def work(rows):
    from pyspark import BarrierTaskContext
    yield first_collective(BarrierTaskContext.get().partitionId(), meeting)
moments = session.sparkContext.parallelize(range(4), 4).barrier().mapPartitions(work).collect()
print(*((max(one) - begin) / 1e9 for one in zip(*moments)))
session.stop()
"""

OUR_DRIVER = """
import json, sys, time
import torch
from workbench import Experiment, run as start
launcher, options = sys.argv[1], json.loads(sys.argv[2])
if launcher == "ray":
    import ray
if launcher == "spark":
    import pyspark.sql
exp = Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=2, batch_size=64,
    launcher=launcher, launcher_options=options,
)
begin = time.monotonic_ns()
run = start(exp)
run.wait(240, progress=False)
moments = run.events.filter(kind="collective").group_by("rank").min()["start_ns"]
print((moments.max() - begin) / 1e9)
"""


@dataclass(frozen=True)
class Sample:
    """Seconds from the launcher's start: until a plain program has imported torch, until its first
    collective, and until a run's.
    """

    imported: float
    plain: float
    ours: float


def measure() -> list[Figure]:
    figures = []
    for launcher in LAUNCHERS:
        if samples := samples_of(launcher, SAMPLES):
            imported, plain, ours = (
                statistics.median(getattr(one, name) for one in samples)
                for name in ("imported", "plain", "ours")
            )
            beyond = statistics.median(one.ours - one.plain for one in samples)
            detail = f"plain {plain:.2f} s (torch imported {imported:.2f} s), ours {ours:.2f} s"
            figures.append(Figure(f"{launcher}: beyond", beyond, BEYOND_S, "s", False, detail))
    return figures


def samples_of(launcher: str, count: int) -> list[Sample]:
    """Measure a launcher so many times, a plain program and a run in turn; none where it cannot run
    here.
    """
    with _ready(launcher) as (plain, options):
        samples = []
        for _ in range(count if plain else 0):
            imported, own = _seconds([*plain, _meeting_place()])
            (ours,) = _seconds([OUR_DRIVER, launcher, json.dumps(options)])
            samples.append(Sample(imported, own, ours))
        return samples


@contextlib.contextmanager
def _ready(launcher: str) -> Iterator[tuple[list[str], dict[str, object]]]:
    """Yield the driver of the plain program and its words, without the meeting place, and a run's
    options; no words where the launcher cannot run here.
    """
    python, count = sys.executable, str(RANKS)
    options: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        plain = Path(folder) / "plain.py"
        plain.write_text(PLAIN)
        words: list[str] = []
        match launcher:
            case "local":
                words = [LOCAL_DRIVER, python, str(plain)]
            case "torchrun":
                torchrun = [python, "-m", "torch.distributed.run", "--standalone"]
                words = [COMMAND_DRIVER, *torchrun, "--nproc-per-node", count, str(plain)]
            case "mpiexec" if mpiexec := shutil.which("mpiexec", path=_path()):
                words = [COMMAND_DRIVER, mpiexec, "-n", count, python, str(plain)]
            case "slurm" if not why_no_slurm():
                stack.enter_context(local_slurm())
                job = Path(folder) / "job.sh"
                job.write_text(f'#!/bin/sh\nexec srun {python} {plain} "$1"\n')
                output = Path(folder) / "output"
                options = {"via": "sbatch", "nodes": 2}
                words = [SLURM_DRIVER, str(output), str(job)]
            case "ray" if find_spec("ray"):
                words = [RAY_DRIVER]
            case "spark" if find_spec("pyspark") and shutil.which("java"):
                words = [SPARK_DRIVER]
        yield words, options


def _meeting_place() -> str:
    """Return an address at which no plain program has met."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


def _seconds(words: list[str]) -> list[float]:
    """Run a driver, and return what it prints last."""
    environment = {
        **os.environ,
        "PATH": _path(),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users do not compile us for every process
    done = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [float(one) for one in done.stdout.splitlines()[-1].split()]


def _path() -> str:
    """Return where programs are: first those that pip brought."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
