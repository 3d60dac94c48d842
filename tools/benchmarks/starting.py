"""From nothing to the first collective of four ranks: in a fresh interpreter, and from the warm
pool.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from tools.benchmarks.figures import Figure

SCRIPT = """
import time
begin = time.monotonic_ns()
import json
import workbench as wb
exp = wb.Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=2, batch_size=64
)
found = []
for _ in range(4):
    run = wb.run(exp)
    run.wait(60, progress=False)
    first = run.events.filter(kind="collective")["start_ns"].min()
    found.append((first - begin) / 1e9)
    time.sleep(0.5)
    begin = time.monotonic_ns()
print(json.dumps(found))
"""


def measure() -> list[Figure]:
    cold, warm = [], []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
        )
        first, *later = json.loads(done.stdout)
        cold.append(first)
        warm += later
    return [
        Figure("first run's first collective", statistics.median(cold), 4, "s", False, "4 ranks"),
        Figure(
            "a warm run's first collective", statistics.median(warm), 0.1, "s", False, "4 ranks"
        ),
    ]
