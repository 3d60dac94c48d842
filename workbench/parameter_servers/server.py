"""A server of a parameter server: takes the gradients of all workers in, and lets workers start.

It waits for the gradient of any worker, which is at once that worker's wish to start its next
iteration. A worker that is slow, frozen or gone holds up nobody here: messages come in and leave in
the background, parameters from a buffer that is not written to until they have left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.batches import portion
from workbench.control import ITERATION, STOP, STOP_ASKED
from workbench.errors import PeerLost, RunTimeout
from workbench.events import CODE, Where, now
from workbench.parameter_servers.clocks import policy
from workbench.parameter_servers.flat import Flat, Part
from workbench.parameter_servers.placement import place
from workbench.parameter_servers.shard import Shard, Taken
from workbench.parameter_servers.worker import FAREWELL, GO, STOP_HERE
from workbench.work import wait_any

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.strategies.parameter_server import Config

GRADIENT = 0  # tag of a push
LOOK = 0.1  # seconds after which it looks whether the user wants to stop
_METRIC, _APPLY = CODE["metric"], CODE["apply"]


class Server:
    """One server's rank: a shard of every model, and the messages of their workers."""

    def __init__(self, job: Job, config: Config) -> None:
        self.job, self.config = job, config
        self.workers = range(config.servers, job.ranks)
        self.control, self.metrics = job.group("control"), job.group("metrics")
        for group in (dist.group.WORLD, self.control, self.metrics):
            group.spare(self.workers)  # type: ignore[union-attr]
        self.lane = job.recorder.lane("server")
        # Of each model: itself, its parameters as a vector, and which of them each server holds.
        self.models: list[tuple[torch.nn.Module, Flat, list[list[range]]]] = []
        self.shards = [self._shard(number) for number in range(config.models)]
        self.shard_of = {worker: shard for shard in self.shards for worker in shard.clock}
        self.inbox: dict[tuple[int, int], Any] = {}  # (worker, tag) -> the message to come
        self.waiting = dict.fromkeys(self.workers, 0)  # worker -> the iteration it would start
        self.sending: list[tuple[Any, torch.Tensor]] = []  # parameters that have not left yet
        self.queue: list[tuple[int, int]] = []  # messages that are in and not heard yet, in order
        self.silence = 0.0  # seconds in which nobody was heard of
        self.patience = job.exp.timeout_ns * 1e-9  # the longest silence that is no error
        self.newest = 0  # the latest iteration that anybody was let start
        self.lost: set[int] = set()

    def _shard(self, number: int) -> Shard:
        job, config = self.job, self.config
        job.of_model(number)
        model = job.model().cpu()
        flat = Flat(model)
        ranges = place(len(flat.values_N), config.servers, config.placement)
        self.models.append((model, flat, ranges))
        values_n = Part(flat.values_N, ranges[job.rank]).gather().clone()
        self._mark("elements", len(values_n))
        made = policy(
            config.consistency,
            {"staleness": config.staleness, "staleness_max": config.staleness_max,
             "mode": config.dssp_mode},
        )  # fmt: skip
        return Shard(
            values_n, self.workers[number :: config.models], made, job.optimizer,
            stale=config.stale_gradients, drop_above=config.drop_above,
            busy=self._is_leaving, stretch=job.stretch,
        )  # fmt: skip

    # -- the loop --

    def run(self) -> None:
        job = self.job
        for worker in self.workers:
            last_word = torch.zeros(1, dtype=torch.int64)
            self.inbox[worker, FAREWELL] = dist.irecv(last_word, worker, tag=FAREWELL)
            self._await_push(worker, 0)
        job.started_ns = now()
        self._let_start()
        while keys := [key for key in self.inbox if key[0] in self.shard_of[key[0]].clock]:
            here = [keys[i] for i in wait_any([self.inbox[key] for key in keys], LOOK)]
            self.queue += [key for key in here if key not in self.queue]
            self._be_patient(bool(here))
            if self.queue:
                self._hear(*self.queue.pop(0))
            self._heed_stop()
            self._let_start()
        job.ended_ns = now()
        if self.lost == {*self.workers}:
            raise PeerLost("every worker has ended: nobody is left to train", min(self.workers))
        self._finish()

    def _be_patient(self, heard: bool) -> None:
        """Raise RunTimeout when nobody was heard of for as long as the experiment allows."""
        self.silence = 0.0 if heard or self.job.control.clocks_stand() else self.silence + LOOK
        if self.silence > self.patience:
            live = [worker for worker in self.workers if worker in self.shard_of[worker].clock]
            due = ", ".join(str(worker) for worker in live if worker not in self.waiting)
            why = f"waits for worker {due}" if due else "lets nobody start, by its policy"
            raise RunTimeout(
                f"no gradient for {self.silence:.1f} s: server {self.job.rank} {why}. "
                "Raise timeout= if this is expected."
            )

    def _await_push(self, worker: int, iteration: int) -> None:
        self.job.recorder.where = Where(iteration)  # of the rows that tell of its coming
        room = self.shard_of[worker].inbox[worker]
        self.inbox[worker, GRADIENT] = dist.irecv(room, worker, tag=GRADIENT)

    def _hear(self, worker: int, tag: int) -> None:
        """A message of ``worker`` is in, or none will come."""
        shard = self.shard_of[worker]
        if worker not in shard.clock:
            return
        try:
            self.inbox[worker, tag].wait()
        except PeerLost:
            self.lost.add(worker)
            return self._record(shard, shard.leave(worker))
        if tag == FAREWELL:
            return self._record(shard, shard.leave(worker))
        iteration = shard.clock[worker]
        others = sum(tag == GRADIENT for _, tag in self.queue)
        self._mark("queue", others, worker, Where(iteration, version=shard.version))
        share = self._samples(worker, iteration) / self.job.minibatches.size(iteration)
        self._record(shard, shard.take_in(worker, share))
        if extra := shard.policy.slack.get(worker):
            self._mark("slack", extra, worker, Where(iteration, version=shard.version))
        self.waiting[worker] = iteration + 1
        self._await_push(worker, iteration + 1)
        for done in [w for w, clock in shard.clock.items() if clock == self.job.exp.iterations]:
            shard.leave(done)

    def _samples(self, worker: int, iteration: int) -> int:
        """Of this worker's part of the minibatch."""
        number, models = worker - self.config.servers, self.config.models
        size = self.job.minibatches.size(iteration)
        mates = len(self.workers[number % models :: models])
        return len(portion(range(size), number // models, mates, self.config.shares))

    # -- starts --

    def _let_start(self) -> None:
        """Grant the start to every worker that waits for it and may."""
        stop = self.job.control.words[STOP]
        for worker, iteration in [*self.waiting.items()]:
            shard = self.shard_of[worker]
            if worker not in shard.clock:
                del self.waiting[worker]
            elif 0 < stop <= iteration:
                self._tell(worker, iteration, shard, STOP_HERE)
            elif shard.may_start(worker, iteration):
                self._tell(worker, iteration, shard, GO)
                shard.pulled[worker] = shard.version
                self.sending.append((dist.isend(shard.values_n, worker), shard.values_n))
                self.newest = max(self.newest, iteration)

    def _tell(self, worker: int, iteration: int, shard: Shard, word: int) -> None:
        del self.waiting[worker]
        self.job.recorder.where = Where(iteration, version=shard.version)
        dist.isend(torch.tensor([shard.version, word]), worker, group=self.control)

    def _heed_stop(self) -> None:
        """Make the user's wish to stop an iteration: where workers go in step, the same for all."""
        words = self.job.control.words
        if self.job.rank == 0 and words[STOP] == STOP_ASKED:
            in_step = any(shard.policy.synchronous for shard in self.shards)
            words[STOP] = self.newest + 1 if in_step else 1

    def _is_leaving(self, values_n: torch.Tensor) -> bool:
        self.sending = [(work, sent) for work, sent in self.sending if not work.is_completed()]
        return any(sent is values_n for _, sent in self.sending)

    # -- the record --

    def _record(self, shard: Shard, taken: list[Taken]) -> None:
        for one in taken:
            where = Where(one.iteration, version=one.version)
            if one.applied:
                self.lane.context(where=where)
                self.lane.write(_APPLY, one.start_ns, one.end_ns, one.worker, value=one.staleness)
            else:
                self._mark("dropped", self._samples(one.worker, one.iteration), one.worker, where)
        if taken and shard.clock:
            slowest = min(shard.clock.values())
            if slowest > self.job.control.rank_word(self.job.rank, ITERATION):
                self.job.control.set_rank(self.job.rank, ITERATION, slowest)
                self.job.strike(slowest, computes=False)

    def _mark(self, name: str, value: float, peer: int = -1, where: Where | None = None) -> None:
        moment = now()
        self.lane.context(where=where or Where())
        self.lane.write(
            _METRIC, moment, moment, peer, name=self.job.recorder.name(name), value=value
        )

    # -- the end --

    def _finish(self) -> None:
        """Rank 0 puts the models together again and validates them."""
        job = self.job
        job.recorder.where = Where()
        if job.rank != 0:
            for number, shard in enumerate(self.shards):
                dist.send(shard.values_n, 0, group=self.metrics, tag=number)
            return
        parameters: dict[str, torch.Tensor] = {}
        metrics: dict[str, float] = {}
        for number, (model, flat, ranges) in reversed([*enumerate(self.models)]):
            for server, held in enumerate(ranges):
                part = Part(flat.values_N, held)
                if server == 0:
                    part.part_n.copy_(self.shards[number].values_n)
                else:
                    dist.recv(part.part_n, server, group=self.metrics, tag=number)
                part.scatter()
            job.of_model(number)
            job.finish(model.to(job.device), alone=True)
            prefix = f"model {number}/" if number else ""
            parameters |= {prefix + name: value for name, value in job.parameters.items()}
            metrics |= {prefix + name: value for name, value in job.metrics.items()}
        job.parameters, job.metrics = parameters, metrics
