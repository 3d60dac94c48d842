"""``python -m tools.benchmarks [NAME ...]``: every benchmark, or those named."""

from __future__ import annotations

import importlib
import os
import sys

from rich.console import Console

from tools.benchmarks.figures import show

MODULES = (
    "starting",
    "launchers",
    "attaching",
    "hosts",
    "between_hosts",
    "recovery",
    "checkpoints",
    "recording",
    "collecting",
    "record",
    "all_reduce",
    "memcpy",
    "microseconds",
    "mpi",
    "elephas",
    "choosing",
    "operations",
    "gpu",
    "ddp",
    "overlap",
    "fusion",
    "sharding",
    "parameter_server",
    "p2p",
    "pipeline",
    "bubble",
    "learning",
    "live_view",
    "stage",
    "scenes",
    "click",
    "jupyter",
)


def main() -> None:
    console = Console()
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}. Medians, worst rank.")
    for name in sys.argv[1:] or MODULES:
        module = importlib.import_module(f"tools.benchmarks.{name}")
        show(str(module.__doc__).splitlines()[0], module.measure(), console)


if __name__ == "__main__":
    main()
