"""A worker's end: it asks its server for minibatches ahead of time, and trains on what has come.

request  the number of an iteration: both ends know which samples a worker's part of it has
answer   those samples as one batch (interface/form.py)

A request is made ``ahead`` iterations before its batch is trained on; so long its answer may
take without being waited for. What is stood still for is the input stall. The rows of both messages
are of the iteration in which was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.rank.batches import Minibatches, partition
from workbench.rank.data_source import reread
from workbench.rank.readiness import meet_at_end
from workbench.recording.events import CODE, now
from workbench.training.data_servers.form import Form

if TYPE_CHECKING:
    from workbench.rank.batches import Minibatch
    from workbench.rank.job import Job

FAREWELL = -1  # instead of an iteration: this worker asks for no more


class Examples:
    """One worker's examples.

    ``servers``: the first ranks; worker w asks server w mod their number.
    """

    def __init__(self, job: Job, servers: int, ahead: int) -> None:
        self.job, self.ahead = job, ahead
        self.group = job.group("data")
        self.worker, self.workers = job.rank - servers, job.ranks - servers
        self.server = self.worker % servers
        # Its own: the order of an epoch is worked out once, though requests run ahead into the
        # next one.
        self.minibatches = Minibatches(
            len(job.train), job.exp.batch_size, job.seed, buffer=job.exp.shuffle_buffer
        )
        self.form = Form.of(reread(job, lambda: job.batch(job.train, np.arange(1))))
        self.requests: dict[int, tuple[Any, torch.Tensor]] = {}  # iteration -> message, room for it
        self.next = 0  # the iteration to ask for next

    def share(self, minibatch: Minibatch) -> np.ndarray:
        """Return the ids of this worker's samples; there may be none."""
        return partition(minibatch.ids, self.worker, self.workers)

    def of(self, minibatch: Minibatch) -> tuple[Any, int]:
        """Return the batch of this worker's share of a minibatch, and how many of its samples
        count.

        A worker without a sample gets one that counts as nothing.
        """
        job, iteration = self.job, minibatch.iteration
        self._ask(iteration + self.ahead)
        work, bytes_N = self.requests.pop(iteration)
        start = now()
        work.wait()
        lane = job.recorder.lane("compute")
        lane.context(where=job.recorder.where)
        name, nbytes = job.recorder.name("examples"), bytes_N.numel()
        lane.write(CODE["pull"], start, now(), self.server, nbytes=nbytes, name=name)
        mine = self.share(minibatch)
        ids = mine if len(mine) else minibatch.ids[:1]
        batch = job.load(ids, lambda: self._unpacked(bytes_N, ids))
        job.recorder.mark(CODE["metric"], "stall", value=(now() - start) / 1e6)
        return batch, len(mine)

    def _unpacked(self, bytes_N: torch.Tensor, ids: np.ndarray) -> Any:
        """Return the batch that has come, corrupt where the experiment asks for that."""
        job, batch = self.job, self.form.unpack(bytes_N, len(ids))
        if job.corruption.of(job.recorder.where.iteration) is None:
            return batch
        return job.batch(job.corruption.samples(job.train, ids), ids)

    def close(self) -> None:
        """Receive what is still under way, and release the server."""
        for work, _ in self.requests.values():
            work.wait()
        _posted(dist.isend(torch.tensor([FAREWELL]), self.server, group=self.group)).wait()

    def _ask(self, last: int) -> None:
        """Request every iteration up to ``last`` that was not requested yet."""
        self.next = max(self.next, last - self.ahead)  # where training begins later than at 0
        for iteration in range(self.next, min(last + 1, self.job.exp.iterations)):
            size = len(partition(self.minibatches.ids(iteration), self.worker, self.workers))
            room = torch.empty(self.form.nbytes(max(size, 1)), dtype=torch.uint8)
            self.requests[iteration] = (
                _posted(dist.irecv(room, self.server, group=self.group)),
                room,
            )
            dist.isend(torch.tensor([iteration]), self.server, group=self.group)
            self.next = iteration + 1


def meet(job: Job) -> None:
    """Wait for all at the end, where each may be needed once more."""
    if job.goes_on_from_memory:
        meet_at_end(job, job.group("data"))


def _posted(work: dist.Work | None) -> dist.Work:
    """Return ``work`` as not None: torch returns None only to ranks outside the group."""
    assert work is not None
    return work
