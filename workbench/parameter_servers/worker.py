"""A worker of a parameter server: may I start, pull, compute, push, once an iteration.

grant  (group "control", 16 bytes)  from every server: go on, or stop here
pull   every server's part of the parameters
push   every server its part of the gradient: at once the wish to start the next iteration
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.batches import portion
from workbench.control import SPARE
from workbench.events import CODE, Where, now
from workbench.parameter_servers.flat import Flat, Part
from workbench.parameter_servers.placement import place

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.strategies.parameter_server import Config

FAREWELL = 1  # tag of a worker's last word if it leaves before its last iteration
GO, STOP_HERE = 0, 1  # what a grant says, beside the version


class Worker:
    def __init__(self, job: Job, config: Config) -> None:
        self.job, self.servers, self.shares = job, range(config.servers), config.shares
        number = job.rank - config.servers
        job.of_model(number % config.models)
        mates = range(job.number, job.ranks - config.servers, config.models)
        self.place, self.mates = mates.index(number), len(mates)
        self.control = job.group("control")
        job.group("metrics")
        self.model = job.model()
        self.flat = Flat(self.model)
        ranges = place(len(self.flat.values_N), config.servers, config.placement)
        self.values = [Part(self.flat.values_N, one) for one in ranges]
        self.grads = [Part(self.flat.grads_N, one) for one in ranges]
        self.versions = [0] * config.servers

    def run(self) -> None:
        job, done = self.job, -1
        job.control.set_rank(job.rank, SPARE, 1)
        for step in job.steps():
            if not self._granted(step.iteration):
                break
            self._pull()
            mine = portion(step.ids, self.place, self.mates, self.shares)
            share = len(mine) / len(step.ids)
            self.flat.grads_N.zero_()
            loss = job.forward(self.model, job.load(mine if len(mine) else step.ids[:1]))
            job.backward(loss, weight=share)  # so that a minibatch's gradients add up to its mean
            self._push()
            job.report(loss, len(mine))
            done = step.iteration
        if done < job.exp.iterations - 1:
            for server in self.servers:
                dist.send(torch.zeros(1, dtype=torch.int64), server, tag=FAREWELL)

    def _granted(self, iteration: int) -> bool:
        """Wait until every server lets this iteration start. False: the run ends here."""
        told = [torch.zeros(2, dtype=torch.int64) for _ in self.servers]
        works = [
            _posted(dist.irecv(grant, server, group=self.control))
            for server, grant in zip(self.servers, told, strict=True)
        ]
        for work, grant in zip(works, told, strict=True):
            work.wait()
            if grant[1] == STOP_HERE:
                return False
        self.versions = [int(grant[0]) for grant in told]
        recorder = self.job.recorder
        recorder.where = Where(iteration, version=self.versions[0])
        recorder.mark(CODE["clock"], "", value=iteration)
        return True

    def _pull(self) -> None:
        start = now()
        works = [
            _posted(dist.irecv(part.part_n, server))
            for server, part in zip(self.servers, self.values, strict=True)
        ]
        for server, work in zip(self.servers, works, strict=True):
            work.wait()
            self.values[server].scatter()
            self._note("pull", server, start)

    def _push(self) -> None:
        start = now()
        works = [
            _posted(dist.isend(part.gather(), server))
            for server, part in zip(self.servers, self.grads, strict=True)
        ]
        for server, work in zip(self.servers, works, strict=True):
            work.wait()
            self._note("push", server, start)

    def _note(self, kind: str, server: int, start: int) -> None:
        """The outer row of a push or a pull that ends here."""
        lane, where = self.job.recorder.lane("compute"), self.job.recorder.where
        lane.context(where=Where(where.iteration, version=self.versions[server]))
        part = self.values[server].part_n
        nbytes = part.numel() * part.element_size()
        lane.write(CODE[kind], start, now(), server, nbytes=nbytes)


def _posted(work: dist.Work | None) -> dist.Work:
    """torch gives no handle to a rank that is not in the group; all of ours are."""
    assert work is not None
    return work
