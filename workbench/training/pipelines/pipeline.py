"""A pipeline's rank: cuts the model with the other ranks, and follows its row of the schedule.

    rank = replica * K + place        K ranks per pipeline; replicas share the minibatch (data axis)

With a flush an iteration ends with the row: the gradients of all microbatches are complete,
replicas sum theirs, and every stage makes one update. Without a flush (PipeDream) one row spans the
whole run: an iteration begins with the forward of its first microbatch, and a stage updates after
the last backward of an iteration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.rank.batches import Minibatch
from workbench.rank.data_source import reread
from workbench.rank.job import Job
from workbench.rank.memory import Memory
from workbench.rank.shared_passes import SharedPass
from workbench.recording.events import CODE, Where, now
from workbench.training.buddies.copies import Buddies
from workbench.training.pipelines.cutting import agree
from workbench.training.pipelines.feeding import Feeding
from workbench.training.pipelines.loss_stub import arguments
from workbench.training.pipelines.relay import Cuts, Relay
from workbench.training.pipelines.schedule import Action, Schedule
from workbench.training.pipelines.stage import Stage, Tensors
from workbench.training.pipelines.validating import validate
from workbench.training.splitting.cut import Cut
from workbench.training.splitting.sliced import hollow, shapes, stage_module
from workbench.training.splitting.traced import Traced, trace

if TYPE_CHECKING:
    from workbench.training.pipelines.options import Options

_KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight_grad"}


class Pipeline:
    """One rank of a pipeline. ``run`` trains."""

    stages: dict[int, Stage]  # of this rank
    optimizers: dict[int, torch.optim.Optimizer]

    def __init__(self, job: Job, config: Options, schedule: Schedule) -> None:
        self.job, self.schedule = job, schedule
        self.ranks, self.microbatches = schedule.ranks, config.microbatches
        self.mates: dist.ProcessGroup | None = None  # the same stages in the other replicas
        job.group("metrics")
        self.world, self.share = self._take_place()
        self.place = self.world.index(job.rank)
        self.row = schedule.rows[self.place]
        self.memory = job.memory = self._memory()
        self.memory.counts_activations = True  # of stages
        self.pads = job.exp.pads_ns
        self.buddies = Buddies(job, config.buddy_every)
        self._build(config)
        group = self._messages()
        self.relay = Relay(job, self.world, schedule.rank_of, self._cuts, group)
        self.feeding = Feeding(
            job,
            self.share,
            config.microbatches,
            first=0 in self.stages,
            last=schedule.stages - 1 in self.stages,
            longest=self.ranks + 1,
        )
        modules = [stage.module for stage in self.stages.values()]
        self.shared = SharedPass(job, torch.nn.ModuleList(modules))
        self.backwards: dict[tuple[int, int], int] = {}  # done, by stage and iteration
        for part in self.feeding.split(job.minibatches.ids(0))[0]:
            self._cuts(len(part))  # computed now: its ms would show in the first iteration
        dist.barrier(group=job.group("metrics"))  # as would the set-up of a slower rank

    def _take_place(self) -> tuple[Sequence[int], tuple[int, int]]:
        """Return the ranks of this rank's pipeline, and which part of each minibatch they take, of
        how many. All ranks make their groups here, in the same order.
        """
        job, ranks = self.job, self.ranks
        replicas = job.ranks // ranks
        job.replica, place = divmod(job.rank, ranks)
        if replicas > 1:
            for each in range(ranks):
                group = job.group(f"replicas {each}", range(each, job.ranks, ranks))
                self.mates = group if each == place else self.mates
        world = range(job.replica * ranks, (job.replica + 1) * ranks)
        return world, (job.replica, replicas)

    def _messages(self) -> dist.ProcessGroup | None:
        """Return the group of the messages between stages; None: of all ranks."""
        return None

    def _memory(self) -> Memory:
        return self.job.memory or Memory(self.job.rank)

    def _build(self, config: Options) -> None:
        """Build the whole model for a moment, then keep this rank's stages of it."""
        job, schedule = self.job, self.schedule
        model = job.build()
        first = max(1, len(job.minibatches.ids(0)) // self.share[1] // config.microbatches)
        example = self._example(first)
        args = arguments(job.task, model, example)
        traced = trace(model, len(args))
        kept = self.buddies.agreed("cut")  # measured again, it might lie elsewhere
        cut = (
            Cut.from_json(json.loads(kept))
            if kept
            else agree(job, config, schedule, traced, args, example)
        )
        self.buddies.agree("cut", json.dumps(cut.to_json()))
        program, self.cut = self._divide_layers(traced, cut, args)
        self.hollow = hollow(program)
        halves = {one.stage for one in self.row if one.kind == "I"}
        self.stages, self.optimizers = {}, {}
        for index, rank in enumerate(schedule.rank_of):
            if rank == self.place:
                module = stage_module(program, self.cut, index).to(job.device)
                self._keep(index, module)
                self.stages[index] = Stage(
                    module, index, self.memory, stash=not schedule.flush, halves=index in halves
                )
                job.keep("stage", self.stages[index], "divided")
        self._cuts: Cuts = cache(self._shapes)

    def _divide_layers(self, traced: Traced, cut: Cut, args: tuple[Any, ...]) -> tuple[Traced, Cut]:
        """Return what this rank computes of every layer, and the same cut of that."""
        return traced, cut

    def _keep(self, index: int, module: torch.nn.Module) -> None:
        """Keep a stage's parameters, and the optimizer that updates them."""
        self.job.keep("model", module, "divided")
        if any(True for _ in module.parameters()):  # a stage may have none
            self.optimizers[index] = self.job.optimizer(module, scope="divided")

    # -- what crosses the cuts --

    def _shapes(self, samples: int) -> Sequence[Sequence[torch.Tensor]]:
        args = arguments(self.job.task, self.hollow.model, self._example(samples))
        return shapes(self.hollow, self.cut, args)

    def _example(self, samples: int) -> Any:
        """Return a batch of ``samples`` arbitrary samples, for its shapes."""
        job, ids = self.job, np.arange(samples) % len(self.job.train)
        return reread(job, lambda: job.batch(job.train, ids))

    # -- training --

    def run(self) -> None:
        """Train iteration after iteration, then validate."""
        job = self.job
        at, last = 0, -1
        for minibatch in job.iterations():
            self.buddies.begin(minibatch.iteration)
            good = self.feeding.begin(minibatch, self.shared)
            if self.schedule.flush:
                self._train(minibatch, good)
            else:
                end = self._until(minibatch.iteration + 1, at)
                self._follow(self.row[at:end])
                at, last = end, minibatch.iteration
                self.relay.flush()
                self.feeding.report(minibatch.iteration, len(minibatch.ids))
            self.buddies.end(minibatch.iteration)
        if not self.schedule.flush:  # finish the microbatches in flight
            started = (last + 1) * self.microbatches
            self._follow([one for one in self.row[at:] if one.microbatch < started])
            self.relay.flush()
        self._finish()
        self.buddies.meet()

    def _train(self, minibatch: Minibatch, good: bool) -> None:
        """Do an iteration that ends with a flush; not ``good``: all ranks leave it out."""
        if good:
            self._follow(self.row)
            self.relay.flush()
            good = self.shared.accepts(self.feeding.whole_loss(minibatch.iteration))
        if good:
            for index in self.stages:
                self._update(index)
            return self.feeding.report(minibatch.iteration, len(minibatch.ids))
        self.feeding.forget(minibatch.iteration)
        for stage in self.stages.values():
            stage.version += 1  # it counts iterations

    def _until(self, iteration: int, at: int) -> int:
        """Return the position in the row of this iteration's first forward, from ``at`` on."""
        for place in range(at, len(self.row)):
            if self.row[place].kind == "F" and self.row[place].microbatch >= (
                iteration * self.microbatches
            ):
                return place
        return len(self.row)

    def _follow(self, actions: Sequence[Action]) -> None:
        """Do these actions, posting each action's receives during the one before."""
        fed = [one for one in actions if one.kind != "W"]
        later = dict(pairwise(fed))
        for action in actions:
            self._do(action, later.get(action))

    def _expect(self, action: Action | None) -> None:
        if action is not None:
            self.relay.expect(action, self._samples(action), self._where(action))

    def _number(self, action: Action) -> tuple[int, int]:
        """Return the action's iteration, and its microbatch within it."""
        if self.schedule.flush:
            return self.job.recorder.where.iteration, action.microbatch
        return divmod(action.microbatch, self.microbatches)

    def _samples(self, action: Action) -> int:
        return self.feeding.samples(self._number(action))

    def _where(self, action: Action) -> Where:
        iteration, number = self._number(action)
        stage = self.stages[action.stage]
        running = stage.passes.get(action.microbatch)
        version = stage.version if running is None else running.version
        return Where(iteration, number, action.stage, version)

    def _do(self, action: Action, later: Action | None) -> None:
        """Do one action: wait for its inputs, compute, send the results; post the receives of
        ``later``.
        """
        job, (index, kind, _) = self.job, action
        recorder, stage, outer = job.recorder, self.stages[index], job.recorder.where
        key, where = self._number(action), self._where(action)
        recorder.where = where
        if self.pads is None:
            self._expect(later)
        values = self.relay.take(action, self._samples(action))
        if kind == "F" and index == 0:
            values = self.feeding.inputs(key, self.hollow.model)
        with self._span(kind):
            result = self._compute(stage, action, values, key)
            if self.pads is not None:  # a pad stands for device work: the host is free meanwhile
                self._expect(later)
                recorder.lane("compute").context(where=where)  # restore the context of the open row
        if kind != "W":
            self.relay.give(action, result, self._samples(action))
        del values, result
        self.feeding.measure()
        self._note(stage, where)
        if not self.schedule.flush and kind in "BW" and self._was_last(stage, key[0]):
            self._update(index)
        recorder.where = outer

    def _compute(
        self, stage: Stage, action: Action, values: Tensors, key: tuple[int, int]
    ) -> Tensors:
        """Return the tensors that the action passes to another stage."""
        _, kind, number = action
        if kind == "F":
            if stage.index < self.schedule.stages - 1:
                return stage.forward(number, values)
            stage.forward(number, values, lambda output: self.feeding.loss(key, output))
            return ()
        if kind == "B":
            return stage.backward(number, values)
        if kind == "I":
            return stage.input_gradient(number, values)
        stage.weight_gradient(number)
        return ()

    def _span(self, kind: str) -> AbstractContextManager[None]:
        """Record the action's row, as long as its pad where there is one."""
        code, name = CODE[_KINDS[kind]], "input" if kind == "I" else ""
        if self.pads is None:
            return self.job.computing(code, name)
        forward, inputs, weights = self.pads
        pad_ns = {"F": forward, "I": inputs, "W": weights, "B": inputs + weights}[kind]
        return self.job.padded_action(code, kind, pad_ns, name)

    def _note(self, stage: Stage, where: Where) -> None:
        """Record what the stage holds after an action."""
        recorder = self.job.recorder
        self.memory.write()
        if recorder.active:
            lane, moment, metric = recorder.lane("compute"), now(), CODE["metric"]
            lane.context(where=where)
            flying, held = recorder.name("in flight"), recorder.name("activations")
            lane.write(metric, moment, moment, name=flying, value=float(len(stage.passes)))
            lane.write(metric, moment, moment, name=held, value=float(self.memory.activations))

    # -- updates --

    def _was_last(self, stage: Stage, iteration: int) -> bool:
        """Return whether that was the stage's last backward of this iteration."""
        key = stage.index, iteration
        self.backwards[key] = self.backwards.get(key, 0) + 1
        if self.backwards[key] < self.microbatches:
            return False
        del self.backwards[key]
        return True

    def _update(self, index: int) -> None:
        """Update a stage once, after summing the replicas' gradients."""
        job, stage = self.job, self.stages[index]
        outer = job.recorder.where
        job.recorder.where = Where(outer.iteration, -1, index, stage.version + 1)
        self._add_gradients(index)
        with job.computing(CODE["optimizer"]):
            stage.update(self.optimizers.get(index))
        self._after_update(index)
        self.memory.weigh()
        job.recorder.where = outer

    def _add_gradients(self, index: int) -> None:
        if self.mates is not None:
            for name, parameter in self.stages[index].parameters.items():
                if parameter.grad is not None:
                    with self.job.label(name):
                        dist.all_reduce(parameter.grad, group=self.mates)

    def _after_update(self, index: int) -> None:
        """Do what an update of a stage's parameters asks for."""

    # -- the end --

    def _finish(self) -> None:
        """Validate, and publish this rank's parameters."""
        job = self.job
        job.recorder.where = Where()
        relay = Relay(job, self.world, self.schedule.rank_of, self._cuts, job.metrics_group())
        if self._validates:
            speaks = not job.replica
            validate(job, self.stages, relay, self.hollow.model, speaks=speaks)
        job.partial = True
        job.parameters = {
            name: value.detach().cpu()
            for index in self.stages
            for name, value in self._parameters(index).items()
        }

    @property
    def _validates(self) -> bool:
        return not self.job.replica  # alone

    def _parameters(self, index: int) -> Mapping[str, torch.Tensor]:
        """Return a stage's parameters and buffers, whole, by name."""
        values: dict[str, torch.Tensor] = self.stages[index].module.state_dict()
        return values
