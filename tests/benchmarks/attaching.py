"""What observing an unmodified job adds to its iterations: torch's own Gloo does the work.

Jobs of two ranks with and without it in turn, each with the median of its iterations; then the
median of the pairs, with the interval in which it lies.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.attaching.test_observing import attached
from tests.benchmarks.figures import Figure
from tests.benchmarks.recording import PAIRS, WITHIN
from tests.processes import values

RANKS, ITERATIONS, WARM = 2, 60, 10
MOST = 2.0  # percent
MODELS = {"LeNet": 64, "25 MB MLP": 32}  # samples per rank


def median_iteration(rank: int, n: int, model: str, observed: bool) -> float:
    """Return the seconds of the median iteration of DDP over Gloo."""
    if observed:
        attached("operations")
    dist.init_process_group("gloo", rank=rank, world_size=n)
    torch.manual_seed(0)
    if model == "LeNet":
        layers: list[nn.Module] = [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)]
        layers += [nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()]
        layers += [nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
        x = torch.randn(MODELS[model], 1, 28, 28)
    else:
        layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        x = torch.randn(MODELS[model], 1024)
    replica = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.01)
    seconds = []
    for _ in range(ITERATIONS):
        start = time.perf_counter()
        optimizer.zero_grad()
        replica(x).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM:])


def measure() -> list[Figure]:
    figures = []
    for model in MODELS:
        added, plain = [], []
        for pair in range(PAIRS):
            seconds = {}
            for observed in (True, False) if pair % 2 else (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    env = {"WORKBENCH_TRACE": folder} if observed else {}
                    body = values(median_iteration, RANKS, model, observed, backend="", env=env)
                seconds[observed] = max(body)
            added.append((seconds[True] / seconds[False] - 1) * 100)
            plain.append(seconds[False])
        low, high = (sorted(added)[at] for at in WITHIN)
        detail = f"95 %: {low:.1f} to {high:.1f} %; {statistics.median(plain) * 1e3:.1f} ms without"
        what = f"{model} under DDP over Gloo, observed"
        figures.append(Figure(what, statistics.median(added), MOST, "%", False, detail))
    return figures
