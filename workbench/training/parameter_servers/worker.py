"""A worker of a parameter server: in each iteration it asks to start, pulls, computes and pushes.

grant  (group "control", 16 bytes)  from every server: go on, or stop here; the clocks of all
                                    workers besides, where a server may be lost
pull   every server's share of the parameters
push   every server's share of the gradient; also the request to start the next iteration. A worker
       that leaves its share of a minibatch out pushes NaN: it counts for its clock, and no more
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist

from workbench.checkpoints.rows import Rows
from workbench.common.errors import WorkbenchError
from workbench.process_group.direct import irecv, isend
from workbench.rank.attempts import Attempt
from workbench.rank.bands import BUFFERS
from workbench.rank.batches import portion
from workbench.rank.take_over import Before
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import OUTDATED, SPARE
from workbench.store.recoveries import MODEL
from workbench.training.parameter_servers.clocks import policy, policy_options
from workbench.training.parameter_servers.flat import Flat, Section
from workbench.training.parameter_servers.holding import Carried, Pulled, PulledPart
from workbench.training.parameter_servers.leaving import receive_keys
from workbench.training.parameter_servers.members import owned_ranges, serving, wait_for_end
from workbench.training.parameter_servers.taking_over import Regain, Served

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options

FAREWELL = 1  # tag of the message of a worker that leaves before its last iteration
# Second word of a grant; the first is the version. SAVE_AND_STOP: all stop at the same iteration.
# REGROUP_HERE: all leave their group, to form another; TAKE_KEYS: and this server's keys come too.
GO, STOP_HERE, SAVE_AND_STOP, REGROUP_HERE, TAKE_KEYS = range(5)
REGROUPS = REGROUP_HERE, TAKE_KEYS  # by whether the server gives its keys to this worker


class Worker:
    """One worker's rank: a replica of its model, trained with the servers' parameters."""

    def __init__(self, job: Job, config: Options) -> None:
        self.job, self.config, self.shares = job, config, config.shares
        self.run_ranks = serving(job, config)
        self.servers = range(len(self.run_ranks))
        number = job.rank - len(self.servers)
        job.of_model(number % config.models)
        if job.number:  # should it be lost, no report says so
            job.tell({f"{MODEL} {job.run_rank}": str(job.number)})
        self.workers = self.find_workers()
        mates = range(job.number, len(self.workers), config.models)
        self.place, self.mates = mates.index(number), len(mates)
        self.control = job.group("control")
        job.group("metrics")
        if config.replicas > 1:
            job.group("replicas", self.servers)  # all ranks make a group, in the same order
        self.model = job.model(keep=False)  # its parameters are pulled in every iteration
        room = job.session.lender.empty_like  # servers read gradients in place
        self.flat = Flat(self.model, room)
        self.ranges = owned_ranges(len(self.flat.values_N), job, config)
        self.values = [Section(self.flat.values_N, one) for one in self.ranges]
        self.grads = [Section(self.flat.grads_N, one, room) for one in self.ranges]
        if job.memory is not None:
            copies = [one for one in (*self.values, *self.grads) if not one.is_view]
            job.memory.set(BUFFERS, sum(one.section_n.nbytes for one in copies))
            job.memory.watch(self.model.parameters())
        self.versions = [0] * len(self.servers)
        self.clocks: list[list[int]] = []  # of all workers, as each server tells them
        self.pulled: Pulled | None = None
        self.acknowledged = -1  # the last iteration whose push all servers have
        self._prepare_to_recover()

    def find_workers(self) -> range:
        """Return the ranks that push gradients: they follow the servers."""
        return range(len(self.servers), self.job.ranks)

    def run(self) -> None:
        """Train until the last iteration, or until a server stops this worker."""
        job = self.job
        done = 0
        job.wait_until_all_are_ready()  # a rank that ends earlier leaves the others without groups
        self._say_spare()
        if job.ranks > len(os.sched_getaffinity(0)):
            _go_behind_servers()
        for minibatch in job.iterations():
            done = minibatch.iteration
            if not self._granted(minibatch.iteration):
                break
            self._pull(minibatch.iteration)
            mine = portion(minibatch.ids, self.place, self.mates, self.shares)
            share = len(mine) / len(minibatch.ids)
            self.flat.grads_N.zero_()
            with Attempt(job, minibatch, self.model, mine) as attempt:
                loss = job.forward(self.model, job.load(mine if len(mine) else minibatch.ids[:1]))
                job.backward(loss, weight=share)  # so the gradients sum to the mean
            if attempt.skipped:
                self.flat.grads_N.fill_(math.nan)
            else:
                job.report(loss, len(mine))  # before servers learn of the gradient: see take_over
            self._push()
            done = minibatch.iteration + 1
        self._leave(done)

    def _say_spare(self) -> None:
        """Announce that the run goes on without this worker, unless its end concerns all."""
        if not self.job.goes_on_from_memory:
            self.job.control.set_rank(self.job.run_rank, SPARE, 1)

    def _leave(self, done: int) -> None:
        """Leave after so many iterations, once the servers need no worker any more."""
        job = self.job
        if done < job.exp.iterations:
            send_farewell(self.servers)
        if job.goes_on_from_memory:
            job.completed = min(job.completed, self.acknowledged + 1) if done else job.completed
            wait_for_end(job, self.run_ranks[0])

    def _prepare_to_recover(self) -> None:
        """Have this worker's latest pull ready for the next generation, and its own way back."""
        job, past = self.job, self.job.past
        job.take_over, job.served = self._take_over, True
        if not job.goes_on_from_memory:
            return
        before = past.carried if past is not None else None
        if self.config.restored_from == "pull":
            kept = before.pulled if isinstance(before, Carried) else None
            self.pulled = kept or Pulled(torch.empty_like(self.flat.values_N, device="cpu"))
        job.carried = Carried(job.team.generation, pulled=self.pulled)

    def _take_over(self, job: Any, before: Before | None) -> int:
        """Go on with the iteration that some server lacks this worker's push of."""
        owned = dict(zip(self.run_ranks, self.ranges, strict=True))
        options = policy_options(self.config, self.job.exp.options)
        synchronous = policy(self.config.consistency, options).synchronous
        initial_N = self.flat.values_N.cpu()
        regain = Regain(owned, initial_N, synchronous, self.config.restored_from)
        return Served(job, before, regain, None).take_over()

    def _granted(self, iteration: int) -> bool:
        """Wait for every server's grant; return False where the run ends here."""
        job, known = self.job, self.acknowledged + 1
        job.completed = known if known else iteration  # the grant is what acknowledges a push
        count = len(self.workers) if job.goes_on_from_memory else 0  # all clocks
        grants = [torch.zeros(2 + count, dtype=torch.int64) for _ in self.servers]
        works = [
            irecv(grant, server, group=self.control)
            for server, grant in zip(self.servers, grants, strict=True)
        ]
        for work in works:  # of all servers: an answer says that the last push is in
            work.wait()
        words = [int(grant[1]) for grant in grants]
        if stops := {*words} & {STOP_HERE, SAVE_AND_STOP}:
            if SAVE_AND_STOP in stops:
                job.checkpoints.at_end(iteration)
            return False
        self.versions = [int(grant[0]) for grant in grants]
        self.clocks = [grant[2:].tolist() for grant in grants]
        self.acknowledged, job.completed = iteration - 1, iteration
        if {*words} & {*REGROUPS}:
            self._leave_group(words)
        recorder = job.recorder
        recorder.where = Where(iteration, version=self.versions[0])
        recorder.mark(CODE["clock"], "", value=iteration)
        return True

    def _leave_group(self, words: Sequence[int]) -> NoReturn:
        """Leave the group, as all others do: with the keys of servers that go, where this rank is
        to keep them.
        """
        for server, word in zip(self.servers, words, strict=True):
            if word == TAKE_KEYS:
                receive_keys(self.job, server, self.control)
        raise WorkbenchError(OUTDATED, how="aborted")

    def _pull(self, iteration: int) -> None:
        """Receive every server's share of the parameters."""
        job, start = self.job, now()
        works = [
            irecv(part.section_n, server)
            for server, part in zip(self.servers, self.values, strict=True)
        ]
        for server, work in zip(self.servers, works, strict=True):
            work.wait()
            self.values[server].scatter()
            self._note("pull", server, start)
        if self.pulled is not None:
            workers = [job.team.members[worker] for worker in self.workers]
            total, parts = len(self.flat.values_N), {}
            for server, rank in enumerate(self.run_ranks):
                rows = Rows.of_ranges(total, self.ranges[server])
                clock = dict(zip(workers, self.clocks[server], strict=True))
                parts[rank] = PulledPart(rows, self.versions[server], clock)
            self.pulled.keep(self.flat.values_N, iteration, job.team.generation, parts)

    def _push(self) -> None:
        """Send every server its share of the gradient."""
        start = now()
        works = [
            isend(part.gather(), server)
            for server, part in zip(self.servers, self.grads, strict=True)
        ]
        for server, work in zip(self.servers, works, strict=True):
            work.wait()
            self._note("push", server, start)

    def _note(self, kind: str, server: int, start: int) -> None:
        """Record the outer row of a push or a pull that ends now."""
        lane, where = self.job.recorder.lane("compute"), self.job.recorder.where
        lane.context(where=Where(where.iteration, version=self.versions[server]))
        values_n = self.values[server].section_n
        nbytes = values_n.numel() * values_n.element_size()
        lane.write(CODE[kind], start, now(), self.run_ranks[server], nbytes=nbytes)


def _go_behind_servers() -> None:
    """Have this thread, when it is woken, wait for a core until others sleep or their turn is over.

    A server wakes a worker in the middle of its work, and where there are more ranks than cores it
    would lose its own to it; all workers wait for the server.
    """
    with contextlib.suppress(OSError):  # not allowed here
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def send_farewell(servers: Iterable[int]) -> None:
    """Tell servers that this worker leaves before its last iteration."""
    for server in servers:
        dist.send(torch.zeros(1, dtype=torch.int64), server, tag=FAREWELL)
