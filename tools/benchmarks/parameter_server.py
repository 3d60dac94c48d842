"""Push and pull of three workers at one server, recording on, against torch.distributed.rpc.

Ours is the strategy as a user runs it (``asp``); the other is PyTorch's tutorial of a parameter
server: each worker pushes its gradient by ``rpc_sync``, the server steps, and the worker pulls the
parameters by another. Both compute the same: the sum of one large parameter and its gradient. They
run in turns, and the medians of their rounds are compared. Each side is warm: its processes have
done a round that does not count.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import workbench as wb
from tools.benchmarks.figures import Figure

MB, WORKERS, ROUNDS = 1 << 20, 3, 5
ITERATIONS = {1 * MB: 100, 25 * MB: 12}  # of every worker a round, by the size of the parameters
FASTER = {1 * MB: 2.5, 25 * MB: 2}  # times as many a second
DEADLINE = 300.0  # seconds for one measurement


class OneParameter:
    """A task that computes next to nothing: its loss is the sum of one large parameter."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def model(self) -> nn.Module:
        model = nn.Module()
        model.values = nn.Parameter(torch.zeros(self.nbytes // 4))
        return model

    def dataset(self, split: str) -> Dataset[tuple[torch.Tensor, ...]]:
        return TensorDataset(torch.zeros(WORKERS * 1000))

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return model.values.sum()


def experiment(nbytes: int) -> wb.Experiment:
    return wb.Experiment(
        strategy="parameter_server",
        options={"servers": 1, "consistency": "asp"},
        task=f"{Path(__file__)}:OneParameter",
        task_options={"nbytes": nbytes},
        ranks=1 + WORKERS,
        iterations=2 * ITERATIONS[nbytes],  # a round to get warm, and one that counts
        batch_size=WORKERS,
        threads=1,
        lr=1e-6,
    )


class Remote:
    """The tutorial's server."""

    def __init__(self, nbytes: int) -> None:
        self.model = OneParameter(nbytes).model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.lock = threading.Lock()

    def push(self, gradient: torch.Tensor) -> None:
        with self.lock:
            self.model.values.grad = gradient
            self.optimizer.step()

    def pull(self) -> torch.Tensor:
        return self.model.values.detach()


_remote: Remote | None = None


def _push(gradient: torch.Tensor) -> None:
    assert _remote is not None
    _remote.push(gradient)


def _pull() -> torch.Tensor:
    assert _remote is not None
    return _remote.pull()


def serve_or_work(rank: int, port: int, nbytes: int, orders: Any) -> None:
    """One process: rank 0 serves, the others work a round whenever they are told to."""
    global _remote
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # rpc's own use of torch.distributed
    _remote = Remote(nbytes)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=1 + WORKERS, rpc_backend_options=options)
    task = OneParameter(nbytes)
    model = task.model()
    while rank and orders.recv():
        start = time.monotonic()
        for _ in range(ITERATIONS[nbytes]):
            model.values.data.copy_(rpc.rpc_sync("rank0", _pull))
            model.zero_grad(set_to_none=False)
            task.loss(model, []).backward()
            rpc.rpc_sync("rank0", _push, (model.values.grad,))
        orders.send((start, time.monotonic()))
    rpc.shutdown()


class Tutorial:
    """The processes of the tutorial; ``round`` is one round's seconds."""

    def __init__(self, nbytes: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed"])
        store = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        port = store.port
        del store
        pipes = [context.Pipe() for _ in range(1 + WORKERS)]
        self.orders = [mine for mine, _ in pipes[1:]]
        self.processes = [
            context.Process(target=serve_or_work, args=(rank, port, nbytes, theirs))
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()

    def round(self) -> float:
        self._signal(signal.SIGCONT)
        try:
            return self._round()
        finally:  # their transport polls without a pause, which would take the cores from us
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            os.kill(process.pid, number)

    def _round(self) -> float:
        for order in self.orders:
            order.send(True)
        spans = []
        for order in self.orders:
            if not order.poll(DEADLINE):
                raise TimeoutError(f"a round of the tutorial took over {DEADLINE:.0f} s")
            spans.append(order.recv())
        return max(end for _, end in spans) - min(start for start, _ in spans)

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        for order in self.orders:
            order.send(False)
        for process in self.processes:
            process.join(10)
            process.kill()


def ours(nbytes: int) -> tuple[float, float, float]:
    """Seconds a push and pull, of the second half of a run's updates and of the first; and
    recording's share of the ranks' time.
    """
    run = wb.run(experiment(nbytes))
    run.wait(DEADLINE, progress=False)
    ends = run.events.filter(kind="apply")["end_ns"].sort()
    half = len(ends) // 2
    begun, warm, last = (ends[at] * 1e-9 for at in (WORKERS - 1, half - 1, len(ends) - 1))
    return (last - warm) / half, (warm - begun) / (half - WORKERS), run.overhead().share


def measure() -> list[Figure]:
    figures = []
    for nbytes, iterations in ITERATIONS.items():
        each = iterations * WORKERS
        tutorial = Tutorial(nbytes)
        tutorial.round()
        ours(nbytes)
        rounds = [(*ours(nbytes), tutorial.round() / each) for _ in range(ROUNDS)]
        tutorial.close()
        warm, cold, shares, theirs = zip(*rounds, strict=True)
        rates = [1 / statistics.median(took) for took in (warm, theirs, cold)]
        what = f"push and pull, {nbytes // MB} MB, 1 server, {WORKERS} workers"
        detail = "{:,.0f} a second, rpc {:,.0f}; our first half {:,.0f}".format(*rates)
        figures += [
            Figure(what, rates[0] / rates[1], FASTER[nbytes], "× rpc", True, detail),
            Figure("recording", statistics.median(shares) * 100, 1, "% of the time", False),
        ]
    return figures
