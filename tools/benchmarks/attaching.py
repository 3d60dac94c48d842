"""What observing an unmodified job adds to its iterations: torch's own Gloo does the work.

Two replicas of one model in the same processes, one of an observed group and one of a plain group,
trained in turn, an iteration each; then the median of what these pairs differ by, with the interval
in which it lies.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torchs

from tests.attaching.test_observing import attached
from tests.processes import values
from tools.benchmarks.figures import Figure

RANKS, WARM = 2, 20  # pairs of iterations before those that count
MOST = 2.0  # percent
MODELS = {"LeNet": (64, 1000), "25 MB MLP": (32, 200)}  # samples per rank, pairs of iterations
HOOKS = (torchs._global_optimizer_pre_hooks, torchs._global_optimizer_post_hooks)


def layers_of(model: str) -> list[nn.Module]:
    if model == "LeNet":
        layers: list[nn.Module] = [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)]
        layers += [nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()]
        layers += [nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh()]
        return [*layers, nn.Linear(84, 10)]
    return [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]


def pairs(rank: int, n: int, model: str) -> list[tuple[float, float]]:
    """Return the seconds of an iteration of DDP over Gloo: [observed, plain] by pair."""
    dist.init_process_group("gloo", rank=rank, world_size=n)
    plain = dist.group.WORLD
    attached("operations")
    observed = dist.new_group([*range(n)])
    assert type(plain).__name__ == "ProcessGroup" and type(observed).__name__ == "ObservedGroup"
    hooks = [dict(one) for one in HOOKS]
    samples, count = MODELS[model]
    x = torch.randn(samples, *((1, 28, 28) if model == "LeNet" else (1024,)))
    replicas = []
    for group in (observed, plain):
        torch.manual_seed(0)
        replica = DistributedDataParallel(nn.Sequential(*layers_of(model)), process_group=group)
        replicas.append((replica, torch.optim.SGD(replica.parameters(), lr=0.01)))

    def iteration(which: int) -> float:
        for place, own in zip(HOOKS, hooks, strict=True):  # of all optimizers: not of the plain one
            place.clear()
            place.update(own if which == 0 else {})
        replica, optimizer = replicas[which]
        start = time.perf_counter()
        optimizer.zero_grad()
        replica(x).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - start

    result = []
    for pair in range(WARM + count):
        seconds = [0.0, 0.0]
        for which in (0, 1) if pair % 2 else (1, 0):
            seconds[which] = iteration(which)
        result.append((seconds[0], seconds[1]))
    dist.barrier()
    dist.destroy_process_group()
    return result[WARM:]


def measure() -> list[Figure]:
    figures = []
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            by_rank = values(pairs, RANKS, model, backend="", env={"WORKBENCH_TRACE": folder})
        both = [
            [max(times) for times in zip(*one, strict=True)] for one in zip(*by_rank, strict=True)
        ]
        added = sorted((observed / plain - 1) * 100 for observed, plain in both)
        count = len(added)
        reach = 0.98 * math.sqrt(count)  # either side of the median, in order: with 95 %
        low, high = added[int(count / 2 - reach)], added[int(count / 2 + reach)]
        ms = statistics.median(plain for _, plain in both) * 1e3
        detail = f"{count} pairs; 95 %: {low:.2f} to {high:.2f} %; {ms:.1f} ms without"
        what = f"{model} under DDP over Gloo, observed"
        figures.append(Figure(what, statistics.median(added), MOST, "%", False, detail))
    return figures
