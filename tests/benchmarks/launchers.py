"""From a launcher's start to the first collective of four ranks, beside a plain program under it.

The plain program imports torch in four processes, which is what any job does first; what a run
takes beyond that is ours. Each sample is a fresh driver, which has imported what it needs. A
launcher that cannot run here is left out: `make test-launchers` installs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.launchers.local_slurm import local_slurm, why_no_slurm
from tests.processes import ROOT

RANKS = 4
SAMPLES = 5
BEYOND_S = 0.5
PRINTED = "READY"  # before the moment that a process is ready
PLAIN = f"import os, time, torch; os.write(1, b'{PRINTED} %d\\n' % time.monotonic_ns())\n"

OURS = """
import json, sys, time
import torch
import workbench as wb
launcher, options = sys.argv[1], json.loads(sys.argv[2])
if launcher == "ray":
    import ray
if launcher == "spark":
    import pyspark.sql
exp = wb.Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=2, batch_size=64,
    launcher=launcher, launcher_options=options,
)
begin = time.monotonic_ns()
run = wb.run(exp)
run.wait(240, progress=False)
print((run.events.filter(kind="collective")["start_ns"].min() - begin) / 1e9)
"""

PLAIN_COMMAND = """
import re, subprocess, sys, time
begin = time.monotonic_ns()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=240, check=True)
moments = [int(one) for one in re.findall(r"READY (\\d+)", done.stdout)]
assert len(moments) == 4, done.stdout + done.stderr
print((max(moments) - begin) / 1e9)
"""

PLAIN_RAY = """
import time
import ray
begin = time.monotonic_ns()
ray.init(address="local", num_cpus=5, include_dashboard=False, log_to_driver=False,
         logging_level="error")
@ray.remote(num_cpus=1)
class Plain:
    def ready(self):
        import time, torch
        return time.monotonic_ns()
actors = [Plain.remote() for _ in range(4)]
print((max(ray.get([one.ready.remote() for one in actors])) - begin) / 1e9)
"""

PLAIN_SPARK = """
import time
from pyspark.sql import SparkSession
begin = time.monotonic_ns()
builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
def ready(rows):
    import time, torch
    yield time.monotonic_ns()
stage = session.sparkContext.parallelize(range(4), 4).barrier().mapPartitions(ready)
print((max(stage.collect()) - begin) / 1e9)
session.stop()
"""


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as name:
        plain = Path(name) / "plain.py"
        plain.write_text(PLAIN)
        for launcher, (words, options) in _available(str(plain), name).items():
            with local_slurm() if launcher == "slurm" else contextlib.nullcontext():
                pairs = [
                    (_seconds(words), _seconds([OURS, launcher, json.dumps(options)]))
                    for _ in range(SAMPLES)
                ]
            own, ours = (statistics.median(one) for one in zip(*pairs, strict=True))
            beyond = statistics.median(b - a for a, b in pairs)
            detail = f"a plain program {own:.2f} s, a run's first collective {ours:.2f} s"
            figures.append(Figure(f"{launcher}: beyond", beyond, BEYOND_S, "s", False, detail))
    return figures


def _available(plain: str, folder: str) -> dict[str, tuple[list[str], dict[str, object]]]:
    """Return what runs the plain program, and the options of a run, by launcher."""
    python, count = sys.executable, str(RANKS)
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    result: dict[str, tuple[list[str], dict[str, object]]] = {
        "torchrun": ([PLAIN_COMMAND, *torchrun, plain], {})
    }
    if mpiexec := shutil.which("mpiexec", path=_path()):
        result["mpiexec"] = ([PLAIN_COMMAND, mpiexec, "-n", count, python, plain], {})
    if find_spec("ray"):
        result["ray"] = ([PLAIN_RAY], {})
    if find_spec("pyspark") and shutil.which("java"):
        result["spark"] = ([PLAIN_SPARK], {})
    if not why_no_slurm():
        srun = ["srun", "-n", count, "-N", "2", python, plain]
        options: dict[str, object] = {"via": "sbatch", "nodes": 2, "folder": folder}
        result["slurm"] = ([PLAIN_COMMAND, *srun], options)
    return result


def _seconds(words: list[str]) -> float:
    """Run a driver, and return what it prints last."""
    environment = {
        **os.environ,
        "PATH": _path(),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.split()[-1])


def _path() -> str:
    """Return where programs are: first those that pip brought."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
