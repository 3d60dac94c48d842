"""A server's rank: accepts the gradients of all workers, and grants their starts.

It waits for the gradient of any worker, which is also that worker's request to start its next
iteration. A slow, frozen or lost worker blocks no other: messages arrive and leave in the
background, and parameters leave from a buffer that is not written until they have been sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.checkpoints.rows import Rows
from workbench.common.errors import PeerLost, RunTimeout, timed_out
from workbench.process_group.direct import group_of, irecv, isend
from workbench.process_group.work import wait_any
from workbench.rank.batches import portion_size
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import ITERATION, STOP, STOP_ASKED
from workbench.training.parameter_servers.clocks import policy, policy_options
from workbench.training.parameter_servers.flat import Flat, Section
from workbench.training.parameter_servers.holding import keep_shard
from workbench.training.parameter_servers.members import owned_ranges, serving
from workbench.training.parameter_servers.memory import ServerMemory
from workbench.training.parameter_servers.service import Service
from workbench.training.parameter_servers.shard import Outcome, Shard
from workbench.training.parameter_servers.worker import (
    FAREWELL,
    GO,
    REGROUPS,
    SAVE_AND_STOP,
    STOP_HERE,
)
from workbench.transports.doorbell import together

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options

GRADIENT = 0  # tag of a push
LOOK = 0.1  # seconds between two checks of the user's wish to stop
_METRIC, _APPLY = CODE["metric"], CODE["apply"]


class Server:
    """One server's rank: a shard of every model, and the messages of its workers.

    Servers come before workers, also among the ranks of a later generation.
    """

    labels = "", ""  # names of the rows of gradients and of parameters

    def __init__(self, job: Job, config: Options) -> None:
        self.job, self.config = job, config
        self.servers = serving(job, config)
        self.workers = self.find_workers()
        self.control, self.metrics = job.group("control"), job.group("metrics")
        for group in (None, self.control, self.metrics):
            if not job.goes_on_from_memory:  # else its end concerns all
                group_of(group).spare(self.spared)
        self.lane = job.recorder.lane("server")
        # For each model: the module, its flat parameters, and the ranges that each server holds.
        self.models: list[tuple[torch.nn.Module, Flat, list[list[range]]]] = []
        self.shards = [self._shard(number) for number in range(config.models)]
        self.shard_of = {worker: shard for shard in self.shards for worker in shard.clock}
        self.inbox: dict[tuple[int, int], Any] = {}  # (worker, tag) -> the posted receive
        self.waiting: dict[int, int] = {}  # worker -> iteration asked for
        self.sending: list[tuple[Any, torch.Tensor]] = []  # parameters that are still being sent
        self.queue: list[tuple[int, int]] = []  # arrived (worker, tag), not handled yet
        self.silence = 0.0  # seconds since the last message
        self.patience = job.exp.timeout_ns * 1e-9  # the longest silence that is not an error
        self.newest = 0  # the latest iteration granted to any worker
        self.lost: set[int] = set()
        self.service = self.make_service()
        job.ready()

    def find_workers(self) -> range:
        """Return the ranks that push gradients: they follow the servers."""
        return range(len(self.servers), self.job.ranks)

    @property
    def spared(self) -> Iterable[int]:
        """The ranks without which this server goes on."""
        return self.workers

    def make_service(self) -> Service:
        """Return what this server does beside its workers' gradients."""
        return Service(self)

    def _shard(self, number: int) -> Shard:
        """Build this server's shard of model ``number``."""
        job, config = self.job, self.config
        job.of_model(number)
        model = job.model(keep=False).cpu()
        flat = Flat(model)
        ranges = owned_ranges(len(flat.values_N), job, config)
        self.models.append((model, flat, ranges))
        shard = self.make_shard(number, job.rank)
        self._mark("elements", len(shard.values_n))
        of = f" of model {number}" if number else ""
        keep_shard(job.parts, shard, self.rows(number, job.rank), of)
        return shard

    def rows(self, number: int, server: int) -> Rows:
        """Return the rows of model ``number`` that the server at this place holds."""
        _, flat, ranges = self.models[number]
        return Rows.of_ranges(len(flat.values_N), ranges[server])

    def make_shard(self, number: int, server: int) -> Shard:
        """Return a new shard with the keys of the server at this place."""
        job, config = self.job, self.config
        _, flat, ranges = self.models[number]
        section, room = Section(flat.values_N, ranges[server]), job.session.lender.empty_like
        return Shard(
            room(section.section_n).copy_(section.gather()),
            self.workers[number :: config.models],
            policy(config.consistency, policy_options(config, job.exp.options)),
            partial(job.optimizer, keep=False),
            stale=config.stale_gradients,
            skips=job.exp.bad_minibatch == "skip",
            drop_above=config.drop_above,
            busy=self._is_leaving,
            stretch=job.stretch,
            room=room,
            memory=job.memory if isinstance(job.memory, ServerMemory) else None,
        )

    # -- the loop --

    def run(self) -> None:
        """Serve until every worker has left, then assemble the models."""
        job = self.job
        job.checkpoints.lost = self.lost
        clock = self.service.begin()
        for shard in self.shards:
            shard.begin({worker: clock[worker] for worker in shard.clock})
        self.newest = max(clock.values())
        self.waiting = dict(clock)
        for worker in self.workers:
            farewell = torch.zeros(1, dtype=torch.int64)
            self.inbox[worker, FAREWELL] = irecv(farewell, worker, tag=FAREWELL)
            self._await_push(worker, clock[worker])
        job.started_ns = job.started_ns or now()
        self._let_finished_leave()
        self._let_start()
        while (keys := self._awaited()) or self.service.busy:
            works = [*(self.inbox[key] for key in keys), *self.service.works]
            done = wait_any(works, LOOK)
            arrived = [keys[i] for i in done if i < len(keys)]
            self.queue += [key for key in arrived if key not in self.queue]
            self._check_silence(bool(done or not keys))
            self.service.progress(finished=not keys)
            with together():  # a worker is woken once: its push was read, and it may go on
                if self.queue:
                    self._handle(*self.queue.pop(0))
                    self._let_finished_leave()
                self._heed_stop()
                self._let_start()
        self.service.say_over()  # the last worker may have left after the other servers said so
        job.ended_ns = now()
        if job.exp.recovers:  # a last checkpoint would wait for a server that is lost too
            self._check_workers()
        stop = job.control.words[STOP]
        if not stop or self._in_step():
            job.checkpoints.at_end(min(stop or job.exp.iterations, job.exp.iterations))
        self._check_workers()
        self._finish()
        self.service.wait_for_end()

    def _check_workers(self) -> None:
        """Raise PeerLost where all workers were lost."""
        if self.lost and self.lost == {*self.workers}:
            raise PeerLost(
                "every worker has ended: no worker is left to train",
                min(self.workers),
                how="ended",
                found_by=self.job.rank,
            )

    def _live(self) -> list[int]:
        """Return the workers that have not left."""
        return [worker for worker in self.workers if worker in self.shard_of[worker].clock]

    def _awaited(self) -> list[tuple[int, int]]:
        """Return the workers and tags whose messages are awaited."""
        return [key for key in self.inbox if key[0] in self.shard_of[key[0]].clock]

    def _check_silence(self, heard: bool) -> None:
        """Raise RunTimeout after a silence longer than the experiment allows."""
        self.silence = 0.0 if heard or self.job.control.clocks_stand() else self.silence + LOOK
        if self.silence > self.patience:
            late = [worker for worker in self._live() if worker not in self.waiting]
            due = ", ".join(str(self.job.session.run_rank(worker)) for worker in late)
            why = f"waits for worker {due}" if due else "lets no worker start, by its policy"
            raise RunTimeout(
                f"no gradient for {self.silence:.1f} s: server {self.job.run_rank} {why}. "
                f"{timed_out(self.patience)}",
                peer=self.job.run_rank,
                how="silent",
                found_by=self.job.run_rank,
            )

    def _within(self, iteration: int) -> int:
        """Return the last iteration instead of the one after it, which a worker asks for too."""
        return min(iteration, self.job.exp.iterations - 1)

    def _await_push(self, worker: int, iteration: int) -> None:
        """Post the receive of a worker's gradient."""
        self.job.recorder.where = Where(self._within(iteration))  # of the rows of its arrival
        shard = self.shard_of[worker]
        with self.job.label(self.labels[0]):
            self.inbox[worker, GRADIENT] = irecv(
                shard.inbox[worker], worker, tag=GRADIENT, stays=shard.reads_once
            )

    def _handle(self, worker: int, tag: int) -> None:
        """Handle a message of ``worker``: a push, a farewell, or its loss."""
        shard, message = self.shard_of[worker], self.inbox[worker, tag]
        if worker not in shard.clock:
            message.give_back()
            return
        try:
            message.wait()
        except PeerLost:
            if self.job.goes_on_from_memory:
                raise
            self.lost.add(worker)
            return self._record(shard, shard.leave(worker))
        if tag == FAREWELL:
            return self._record(shard, shard.leave(worker))
        self.service.forget_older()
        iteration = shard.clock[worker]
        others = sum(tag == GRADIENT for _, tag in self.queue)
        self._mark("queue", others, worker, Where(iteration, version=shard.version))
        outcomes = shard.take_in(worker, self._share(worker, iteration), message.arrived)
        message.give_back()
        self._record(shard, outcomes)
        if extra := shard.policy.slack.get(worker):
            self._mark("slack", extra, worker, Where(iteration, version=shard.version))
        self.waiting[worker] = shard.after(iteration)
        self._await_push(worker, shard.after(iteration))

    def _let_finished_leave(self) -> None:
        """Wait no more for workers that have done their last iteration."""
        for shard in self.shards:
            for done in [w for w, clock in shard.clock.items() if clock == self.job.exp.iterations]:
                shard.leave(done)

    def _share(self, worker: int, iteration: int) -> float:
        """Return this worker's share of the minibatch."""
        return self._samples(worker, iteration) / self.job.minibatches.size(iteration)

    def _samples(self, worker: int, iteration: int) -> int:
        """Return the number of samples in this worker's share of the minibatch."""
        number, models = worker - len(self.servers), self.config.models
        size = self.job.minibatches.size(iteration)
        mates = len(self.workers[number % models :: models])
        return portion_size(size, number // models, mates, self.config.shares)

    # -- starts --

    def _let_start(self) -> None:
        """Grant the start to every worker that waits for it and may."""
        stop, in_step = self.job.control.words[STOP], self._in_step()
        for worker, iteration in [*self.waiting.items()]:
            shard = self.shard_of[worker]
            if worker not in shard.clock:
                del self.waiting[worker]
            elif shard.keeps(worker):
                continue  # its push is not in yet: the update waits for others
            elif 0 < stop <= iteration:
                self._grant(worker, iteration, shard, SAVE_AND_STOP if in_step else STOP_HERE)
            elif self._waits_for_all(worker, iteration):
                continue
            elif shard.may_start(worker, iteration):
                self._grant(worker, iteration, shard, GO)
                shard.pulled[worker] = shard.version
                with self.job.label(self.labels[1]):
                    self.sending.append((isend(shard.values_n, worker), shard.values_n))
                self.newest = self.job.completed = max(self.newest, iteration)
        self.service.leave_at_boundary(self._live())

    def answer_all(self, iteration: int, words: dict[int, int]) -> None:
        """Send each worker its word, instead of a grant of this iteration, which all ask for."""
        for worker, word in words.items():
            self._grant(worker, iteration, self.shard_of[worker], REGROUPS[word])

    def _grant(self, worker: int, iteration: int, shard: Shard, word: int) -> None:
        """Send a worker its answer: ``word`` is GO, or why it does not begin."""
        del self.waiting[worker]
        self.job.recorder.where = Where(self._within(iteration), version=shard.version)
        words = [shard.version, word, *self.service.clocks(shard)]
        isend(torch.tensor(words), worker, group=self.control)

    def _heed_stop(self) -> None:
        """Turn the user's wish to stop into an iteration; synchronous workers all stop at the same
        one. Where all are about to regroup, the next generation does it.
        """
        words = self.job.control.words
        if self.job.rank == 0 and words[STOP] == STOP_ASKED and not self.service.regroups:
            words[STOP] = self.newest + 1 if self._in_step() else 1
        if self.job.rank == 0:
            self.job.checkpoints.heed(self.newest + 2)  # no worker can have begun it

    def _in_step(self) -> bool:
        """Return whether all workers are in the same iteration."""
        return any(shard.policy.synchronous for shard in self.shards)

    def _waits_for_all(self, worker: int, iteration: int) -> bool:
        """Return whether a start waits for more than this server's policy: a boundary, a
        checkpoint, or the copies of the last push.
        """
        if self.service.holds(iteration) or self._checkpoint_waits(iteration):
            return True
        return self.service.awaits(worker)

    def _checkpoint_waits(self, iteration: int) -> bool:
        """Return whether a checkpoint is due before this iteration, and some worker has not come to
        it. Write it once all have: then no gradient is on its way. After a recovery some may have
        begun that iteration before: then none is written.
        """
        if not self.job.checkpoints.due(iteration):
            return False
        live = self._live()
        if any(self.shard_of[worker].clock[worker] > iteration for worker in live):
            return False
        if any(self.waiting.get(worker) != iteration for worker in live):
            return True
        self.job.checkpoints.save(iteration)
        return False

    def _is_leaving(self, values_n: torch.Tensor) -> bool:
        """Return whether ``values_n`` is still being sent."""
        self.sending = [(work, sent) for work, sent in self.sending if not work.is_completed()]
        return any(sent is values_n for _, sent in self.sending)

    # -- recording --

    def _record(self, shard: Shard, outcomes: list[Outcome]) -> None:
        """Record the outcomes of gradients, and this server's progress."""
        for outcome in outcomes:
            where = Where(outcome.iteration, version=outcome.version)
            if outcome.applied:
                self.lane.context(where=where)
                self.lane.write(
                    _APPLY,
                    outcome.start_ns,
                    outcome.end_ns,
                    self.job.session.run_rank(outcome.worker),
                    value=outcome.staleness,
                )
            else:
                samples = self._samples(outcome.worker, outcome.iteration)
                self._mark("dropped", samples, outcome.worker, where)
        if outcomes and shard.clock:
            slowest = min(shard.clock.values())
            me = self.job.run_rank
            if slowest > self.job.control.rank_word(me, ITERATION):
                self.job.control.set_rank(me, ITERATION, slowest)
                self.job.strike(slowest, computes=False)

    def _mark(self, name: str, value: float, peer: int = -1, where: Where | None = None) -> None:
        """Record a metric of this server now."""
        moment, run_rank = now(), self.job.session.run_rank(peer) if peer >= 0 else -1
        self.lane.context(where=where or Where())
        self.lane.write(
            _METRIC, moment, moment, run_rank, name=self.job.recorder.name(name), value=value
        )

    # -- the end --

    def _finish(self) -> None:
        """Assemble the models on rank 0, and validate them."""
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
                section = Section(flat.values_N, held)
                if server == 0:
                    section.section_n.copy_(self.shards[number].values_n)
                else:
                    dist.recv(section.section_n, server, group=self.metrics, tag=number)
                section.scatter()
            job.of_model(number)
            job.finish(model.to(job.device), alone=True)
            prefix = f"model {number}/" if number else ""
            parameters |= {prefix + name: value for name, value in job.parameters.items()}
            metrics |= {prefix + name: value for name, value in job.metrics.items()}
        job.parameters, job.metrics = parameters, metrics
