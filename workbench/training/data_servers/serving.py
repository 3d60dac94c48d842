"""A server of training data: it reads the samples that workers ask for, and sends them.

It reads and answers one request at a time, in the order in which they come; what was read leaves in
the background. It trains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.process_group.work import wait_any
from workbench.rank.batches import Minibatches, partition
from workbench.rank.boundaries import agree
from workbench.rank.data_source import is_down, reread, wait
from workbench.rank.furthest import attend
from workbench.rank.preemption import leave_if_told
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import (
    CHECKPOINT,
    CHECKPOINT_ASKED,
    ITERATION,
    STOP,
    STOP_ASKED,
)
from workbench.training.data_servers.asking import FAREWELL, meet
from workbench.training.data_servers.form import Form

if TYPE_CHECKING:
    from workbench.rank.job import Job

LOOK = 0.1  # seconds after which it looks whether the user wants to stop


class Server:
    """One server's rank, one of the first ``servers``: it serves every ``servers``-th worker."""

    def __init__(self, job: Job, servers: int, ahead: int) -> None:
        self.job, self.group, self.ahead = job, job.group("data"), ahead
        self.first, self.workers = servers, job.ranks - servers
        self.minibatches = Minibatches(
            len(job.train), job.exp.batch_size, job.seed, buffer=job.exp.shuffle_buffer
        )
        self.form = Form.of(reread(job, lambda: job.batch(job.train, np.arange(1))))
        self.lane = job.recorder.lane("server")
        self.newest = -1  # the latest iteration that was answered to any worker
        self.inbox: dict[int, tuple[Any, torch.Tensor]] = {}  # worker's rank -> its next request
        self.leaving: list[Any] = []  # answers that have not left yet

    def run(self) -> None:
        job = self.job
        if job.team.state == "memory":
            attend(job)
        for rank in range(self.first + job.rank, job.ranks, self.first):
            self._await(rank)
        while self.inbox:
            ranks = [*self.inbox]
            ready = wait_any([self.inbox[rank][0] for rank in ranks], LOOK)
            self._heed_stop()
            leave_if_told(job, self.newest)
            for at in ready:
                work, message = self.inbox.pop(ranks[at])
                work.wait()
                if (iteration := int(message)) != FAREWELL:
                    job.recorder.where = Where(max(0, iteration - self.ahead))
                    self._note("queue", len(ready) - 1, ranks[at])
                    self._answer(ranks[at], iteration)
                    self._await(ranks[at])
        for work in self.leaving:
            work.wait()
        meet(job)

    def _await(self, rank: int) -> None:
        message = torch.empty(1, dtype=torch.int64)
        self.inbox[rank] = dist.irecv(message, rank, group=self.group), message

    def _answer(self, rank: int, iteration: int) -> None:
        """Read a worker's part of a minibatch and send it off."""
        job = self.job
        if iteration > self.newest:
            self.newest = iteration
            job.control.set_rank(job.rank, ITERATION, iteration)
            job.strike(iteration, computes=False)
        whole = self.minibatches.ids(iteration)
        ids = partition(whole, rank - self.first, self.workers)
        start = now()
        packed = self.form.pack(self._read(ids if len(ids) else whole[:1]))
        job.stretch(start)
        self.lane.context(where=job.recorder.where)
        self.lane.write(CODE["load"], start, now(), rank, nbytes=packed.numel())
        self.leaving = [work for work in self.leaving if not work.is_completed()]
        self.leaving.append(dist.isend(packed, rank, group=self.group))
        # A step of one iteration goes as far as the slowest rank is: that is never this one.
        job.control.set_rank(job.rank, ITERATION, self.newest + 1)

    def _read(self, ids: np.ndarray) -> Any:
        """Return samples; while their source is down the workers train on what they have, write a
        checkpoint if the experiment has any, and wait.
        """
        job = self.job
        try:
            return job.batch(job.train, ids)
        except Exception as error:
            if not is_down(error):
                raise
            words = job.control.words
            if job.exp.checkpoint is not None and words[CHECKPOINT] >= 0:
                words[CHECKPOINT] = CHECKPOINT_ASKED
            return wait(job, error, lambda: job.batch(job.train, ids))

    def _heed_stop(self) -> None:
        """Pass on the user's wish to stop, as an iteration that no worker can have begun."""
        if self.job.rank == 0 and self.job.control.words[STOP] == STOP_ASKED:
            agree(self.job, STOP, self.newest + 2)

    def _note(self, name: str, value: float, peer: int) -> None:
        moment = now()
        self.lane.context(where=self.job.recorder.where)
        number = self.job.recorder.name(name)
        self.lane.write(CODE["metric"], moment, moment, peer, name=number, value=value)
