"""What observing an unmodified job adds to its iterations: torch's own Gloo does the work.

Two replicas of one model in the same processes, one of an observed group and one of a plain group,
trained in turn; 31 pairs of medians, then the median of the pairs, with the interval in which it
lies.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torchs

from tests.attaching.test_observing import attached
from tests.benchmarks.figures import Figure
from tests.benchmarks.recording import PAIRS, WITHIN
from tests.processes import values

RANKS, EACH = 2, 16  # iterations of either, of which a pair has the medians
MOST = 2.0  # percent
MODELS = {"LeNet": 64, "25 MB MLP": 32}  # samples per rank
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
    x = torch.randn(MODELS[model], *((1, 28, 28) if model == "LeNet" else (1024,)))
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
    for pair in range(PAIRS + 1):  # the first warms up
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(EACH):
            for which in (0, 1) if (pair + number) % 2 else (1, 0):
                seconds[which].append(iteration(which))
        result.append((statistics.median(seconds[0]), statistics.median(seconds[1])))
    dist.barrier()
    dist.destroy_process_group()
    return result[1:]


def measure() -> list[Figure]:
    figures = []
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            by_rank = values(pairs, RANKS, model, backend="", env={"WORKBENCH_TRACE": folder})
        both = [
            [max(times) for times in zip(*one, strict=True)] for one in zip(*by_rank, strict=True)
        ]
        added = sorted((observed / plain - 1) * 100 for observed, plain in both)
        low, high = (added[at] for at in WITHIN)
        ms = statistics.median(plain for _, plain in both) * 1e3
        detail = f"{PAIRS} pairs; 95 %: {low:.2f} to {high:.2f} %; {ms:.1f} ms without"
        what = f"{model} under DDP over Gloo, observed"
        figures.append(Figure(what, statistics.median(added), MOST, "%", False, detail))
    return figures
