"""The two sides of AD-PSGD: active ranks ask for an average, passive ranks answer.

request, reply   the parameters of one, then those of the other       (group "default")
farewell         an active rank will not ask again                    (group "control")
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.process_group.direct import group_of
from workbench.process_group.work import wait_any
from workbench.recording.events import CODE, OPTIMIZER, now

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

LOOK = 0.1  # seconds after which a passive rank's thread looks whether the rank has failed


class Active:
    """Asks one neighbor per iteration, and computes while the answer is under way."""

    def __init__(self, job: Job, graph: Graph, x_N: torch.Tensor) -> None:
        self.job, self.x_N, self.neighbors = job, x_N, graph.out_of(job.rank)
        self.control = job.group("control")
        self.reply_N = torch.empty_like(x_N)
        self.works: list[dist.Work | None] = []

    def start(self, iteration: int) -> None:
        """Send the parameters, which must not change until ``averaged``."""
        if self.neighbors:
            draw = np.random.default_rng([self.job.exp.seed, self.job.rank, iteration])
            peer = int(draw.choice(self.neighbors))
            with self.job.label("parameters"):
                self.works = [dist.irecv(self.reply_N, peer), dist.isend(self.x_N, peer)]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Wait for the answer, and take the mean before the block runs."""
        for work in self.works:
            assert work is not None
            work.wait()
        if self.works:
            with self.job.computing(OPTIMIZER, "mix"):
                self.x_N.add_(self.reply_N).div_(2)
        yield

    def end(self) -> None:
        """Send every neighbor a farewell."""
        for peer in self.neighbors:
            dist.send(torch.zeros(1, dtype=torch.int64), peer, group=self.control)


class Passive:
    """Answers requests in a thread while it trains.

    ``shared_N`` are its parameters. The model computes on a copy, so that a forward and its
    backward see the same values; the update is then applied to the current ``shared_N``.
    """

    def __init__(self, job: Job, graph: Graph, x_N: torch.Tensor) -> None:
        self.job, self.x_N, self.shared_N = job, x_N, x_N.clone()
        self.lock = threading.Lock()
        self.error: Exception | None = None
        self.neighbors = graph.into(job.rank)
        self.control = job.group("control")
        for group in (None, self.control):
            # After a farewell a posted receive remains that no message will match.
            group_of(group).spare(self.neighbors)
        self.lane = job.recorder.lane("server")
        self.theirs = {rank: torch.empty_like(x_N) for rank in self.neighbors}
        self.thread = threading.Thread(target=self._answer, daemon=True, name="workbench answers")
        self.thread.start()

    def start(self, iteration: int) -> None:
        """Copy the shared parameters into the model."""
        with self.lock:
            self.x_N.copy_(self.shared_N)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Hold the shared parameters while the block updates them."""
        with self.lock:
            self.x_N.copy_(self.shared_N)
            yield
            self.shared_N.copy_(self.x_N)
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Wait until all active neighbors have sent their farewell."""
        self.thread.join()
        if self.error is not None:
            raise self.error
        self.x_N.copy_(self.shared_N)

    # -- the thread --

    def _answer(self) -> None:
        torch.set_num_threads(1)
        try:
            self._serve()
        except Exception as error:  # of this rank, wherever it is
            self.error = error

    def _serve(self) -> None:
        """Answer requests until every neighbor has sent its farewell."""
        words = [torch.zeros(1, dtype=torch.int64) for _ in self.neighbors]
        farewells: dict[int, Any] = {
            rank: dist.irecv(word, rank, group=self.control)
            for rank, word in zip(self.neighbors, words, strict=True)
        }
        requests = {rank: self._await(rank) for rank in self.neighbors}
        while farewells:
            ranks = [*farewells]
            works = [requests[rank] for rank in ranks] + [farewells[rank] for rank in ranks]
            for at in wait_any(works, LOOK):
                rank = ranks[at % len(ranks)]
                works[at].wait()
                if at >= len(ranks):
                    del farewells[rank]
                else:
                    self._average_with(rank)
                    requests[rank] = self._await(rank)

    def _await(self, rank: int) -> Any:
        with self.job.label("parameters"):
            return dist.irecv(self.theirs[rank], rank)

    def _average_with(self, rank: int) -> None:
        """Send the parameters back, and take the mean, in one critical section."""
        with self.lock, torch.no_grad():
            reply_N = self.shared_N.clone()
            with self.job.label("parameters"):
                dist.isend(reply_N, rank)
            start = now()
            self.shared_N.add_(self.theirs[rank]).div_(2)
            self.lane.context(where=self.job.recorder.where)
            name = self.job.recorder.name("mix")
            self.lane.write(CODE["optimizer"], start, now(), rank, name=name)
