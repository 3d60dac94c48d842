"""A worker's end: it asks its server for minibatches ahead of time, and trains on what has come.

request  the number of an iteration: both ends know which samples a worker's part of it has
answer   those samples as one batch (form.py)

A request is made ``ahead`` iterations before its batch is trained on; so long its answer may
take without being waited for. What is stood still for is the input stall. The rows of both messages
are of the iteration in which was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.batches import Minibatches, partition
from workbench.events import CODE, now
from workbench.inputs.form import Form

if TYPE_CHECKING:
    from workbench.job import Job, Step

FAREWELL = -1  # in place of an iteration: this worker asks for no more


class Examples:
    """What one worker trains on. ``servers``: the first ranks; worker w asks server w mod them."""

    def __init__(self, job: Job, servers: int, ahead: int) -> None:
        self.job, self.ahead = job, ahead
        self.group = job.group("data")
        self.worker, self.workers = job.rank - servers, job.ranks - servers
        self.server = self.worker % servers
        # Its own: the order of an epoch is worked out once, though requests run ahead into the
        # next one.
        self.minibatches = Minibatches(len(job.train), job.exp.batch_size, job.seed)
        self.form = Form.of(job.batch(job.train, np.arange(1)))
        self.asked: dict[int, tuple[Any, torch.Tensor]] = {}  # iteration -> message, room for it
        self.next = 0  # the iteration to ask for next

    def of(self, step: Step) -> tuple[Any, int]:
        """The batch of this worker's part of a minibatch, and how many of its samples count.

        A worker without a sample takes part with one that counts nothing.
        """
        job, iteration = self.job, step.iteration
        self._ask(iteration + self.ahead)
        work, bytes_N = self.asked.pop(iteration)
        start = now()
        work.wait()
        lane = job.recorder.lane("compute")
        lane.context(where=job.recorder.where)
        name, nbytes = job.recorder.name("examples"), bytes_N.numel()
        lane.write(CODE["pull"], start, now(), self.server, nbytes=nbytes, name=name)
        mine = partition(step.ids, self.worker, self.workers)
        ids = mine if len(mine) else step.ids[:1]
        batch = job.load(ids, lambda: self.form.unpack(bytes_N, len(ids)))
        job.recorder.mark(CODE["metric"], "stall", value=(now() - start) / 1e6)
        return batch, len(mine)

    def close(self) -> None:
        """Take in what is still under way, and let the server go."""
        for work, _ in self.asked.values():
            work.wait()
        _posted(dist.isend(torch.tensor([FAREWELL]), self.server, group=self.group)).wait()

    def _ask(self, last: int) -> None:
        """For every iteration up to ``last`` that was not asked for yet."""
        for iteration in range(self.next, min(last + 1, self.job.exp.iterations)):
            size = len(partition(self.minibatches.ids(iteration), self.worker, self.workers))
            room = torch.empty(self.form.nbytes(max(size, 1)), dtype=torch.uint8)
            self.asked[iteration] = _posted(dist.irecv(room, self.server, group=self.group)), room
            dist.isend(torch.tensor([iteration]), self.server, group=self.group)
            self.next = iteration + 1


def _posted(work: dist.Work | None) -> dist.Work:
    """torch gives no handle to a rank that is not in the group; all of ours are."""
    assert work is not None
    return work
