"""A pipeline's rank: cuts the model with the others, keeps its stages, and follows its row of the
schedule, iteration after iteration.

    rank = replica * K + place        K ranks a pipeline; replicas share the minibatch (data axis)

With a flush an iteration ends with the row: gradients of all microbatches are there, replicas add
theirs up, every stage makes one update. Without a flush (PipeDream) one row goes through the whole
run; an iteration begins with the forward of its first microbatch, and a stage makes its update when
the last backward of an iteration is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.events import CODE, Where, now
from workbench.job import Job
from workbench.memory import Memory
from workbench.pipelines.cutting import agree
from workbench.pipelines.feeding import Feeding
from workbench.pipelines.relay import Borders, Relay
from workbench.pipelines.schedule import Action, Schedule
from workbench.pipelines.stage import Stage, Tensors
from workbench.pipelines.standin import arguments
from workbench.pipelines.validating import validate
from workbench.splitting.sliced import hollow, shapes, stage_module
from workbench.splitting.traced import trace

if TYPE_CHECKING:
    from workbench.strategies.pipeline import Config

_KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight_grad"}


class Pipeline:
    """One rank of it. ``run`` trains."""

    def __init__(self, job: Job, config: Config, schedule: Schedule) -> None:
        self.job, self.schedule = job, schedule
        self.ranks = job.ranks // config.replicas
        self.microbatches = config.microbatches
        job.replica, self.place = divmod(job.rank, self.ranks)
        self.world = range(job.replica * self.ranks, (job.replica + 1) * self.ranks)
        self.row = schedule.rows[self.place]
        job.group("metrics")
        self.mates: dist.ProcessGroup | None = None  # the same stages in the other replicas
        if config.replicas > 1:
            for place in range(self.ranks):
                group = job.group(f"replicas {place}", range(place, job.ranks, self.ranks))
                self.mates = group if place == self.place else self.mates
        self.memory = job.memory = job.memory or Memory(job.rank)
        self.pads = job.exp.pads_ns
        self._build(config)
        self.relay = Relay(job, self.world, schedule.rank_of, self._borders)
        self.feeding = Feeding(
            job, config.replicas, config.microbatches, first=0 in self.stages,
            last=schedule.stages - 1 in self.stages, longest=self.ranks + 1,
        )  # fmt: skip
        self.backwards: dict[tuple[int, int], int] = {}  # done, by stage and iteration
        for part in self.feeding.split(job.minibatches.ids(0))[0]:
            self._borders(len(part))  # now: it takes some ms, which the first iteration would show

    def _build(self, config: Config) -> None:
        """The whole model for a moment, then this rank's stages of it."""
        job, schedule = self.job, self.schedule
        model = job.build()
        first = max(1, len(job.minibatches.ids(0)) // config.replicas // config.microbatches)
        example = self._example(first)
        args = arguments(job.task, model, example)
        traced = trace(model, len(args))
        self.cut = agree(job, config, schedule, traced, args, example)
        self.hollow = hollow(traced)
        halves = {one.stage for one in self.row if one.kind == "I"}
        self.stages, self.optimizers = dict[int, Stage](), dict[int, torch.optim.Optimizer]()
        for index, rank in enumerate(schedule.rank_of):
            if rank == self.place:
                module = stage_module(traced, self.cut, index).to(job.device)
                self.stages[index] = Stage(
                    module, index, self.memory, stash=not schedule.flush, halves=index in halves
                )
                if any(True for _ in module.parameters()):  # a stage may have none
                    self.optimizers[index] = job.optimizer(module)
        self._borders: Borders = cache(self._shapes)

    # -- what crosses the borders --

    def _shapes(self, samples: int) -> Sequence[Sequence[torch.Tensor]]:
        args = arguments(self.job.task, self.hollow.model, self._example(samples))
        return shapes(self.hollow, self.cut, args)

    def _example(self, samples: int) -> Any:
        """A batch of so many samples, whichever: for its shapes."""
        return self.job.batch(self.job.train, np.arange(samples) % len(self.job.train))

    # -- training --

    def run(self) -> None:
        job = self.job
        at, last = 0, -1
        for step in job.steps():
            self.feeding.begin(step.iteration, step.ids)
            end = len(self.row) if self.schedule.flush else self._until(step.iteration + 1, at)
            self._follow(self.row[0 if self.schedule.flush else at : end])
            at, last = end, step.iteration
            if self.schedule.flush:
                for index in self.stages:
                    self._update(index)
            self.relay.flush()
            self.feeding.report(step.iteration, len(step.ids))
        if not self.schedule.flush:  # what is under way comes to its end
            started = (last + 1) * self.microbatches
            self._follow([one for one in self.row[at:] if one.microbatch < started])
            self.relay.flush()
        self._finish()

    def _until(self, iteration: int, at: int) -> int:
        """The place in the row of the first forward of this iteration, from ``at`` on."""
        for place in range(at, len(self.row)):
            if self.row[place].kind == "F" and self.row[place].microbatch >= (
                iteration * self.microbatches
            ):
                return place
        return len(self.row)

    def _follow(self, actions: Sequence[Action]) -> None:
        """Do these actions; what one of them needs is asked for while the one before is done."""
        fed = [one for one in actions if one.kind != "W"]
        later = dict(pairwise(fed))
        for action in actions:
            self._do(action, later.get(action))

    def _expect(self, action: Action | None) -> None:
        if action is not None:
            self.relay.expect(action, self._samples(action), self._where(action))

    def _number(self, action: Action) -> tuple[int, int]:
        """Its iteration, and its microbatch within it."""
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
        """One action: wait for what it needs, compute, pass on what it made. Meanwhile ask for what
        ``later`` needs.
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
        with job.computing(
            CODE[_KINDS[kind]], "input" if kind == "I" else "", self._least_ns(kind)
        ):
            made = self._compute(stage, action, values, key)
            if self.pads is not None:  # a pad is a device's work: its host is free meanwhile
                self._expect(later)
                recorder.lane("compute").context(where=where)  # that of the row under way
        if kind != "W":
            self.relay.give(action, made, self._samples(action))
        del values, made
        self.feeding.measure()
        self._note(stage, where)
        if not self.schedule.flush and kind in "BW" and self._was_last(stage, key[0]):
            self._update(index)
        recorder.where = outer

    def _compute(
        self, stage: Stage, action: Action, values: Tensors, key: tuple[int, int]
    ) -> Tensors:
        """What the action gives to another stage."""
        _, kind, number = action
        if kind == "F":
            if stage.index < self.schedule.stages - 1:
                return stage.forward(number, values)
            stage.forward(number, values, lambda given: self.feeding.loss(key, given))
            return ()
        if kind == "B":
            return stage.backward(number, values)
        if kind == "I":
            return stage.input_gradient(number, values)
        stage.weight_gradient(number)
        return ()

    def _least_ns(self, kind: str) -> int:
        if self.pads is None:
            return 0
        forward, inputs, weights = self.pads
        return {"F": forward, "I": inputs, "W": weights, "B": inputs + weights}[kind]

    def _note(self, stage: Stage, where: Where) -> None:
        """What the stage holds after an action."""
        recorder = self.job.recorder
        if recorder.active:
            lane, moment, metric = recorder.lane("compute"), now(), CODE["metric"]
            lane.context(where=where)
            flying, held = recorder.name("in flight"), recorder.name("activations")
            lane.write(metric, moment, moment, name=flying, value=float(len(stage.passes)))
            lane.write(metric, moment, moment, name=held, value=float(self.memory.activations))

    # -- updates --

    def _was_last(self, stage: Stage, iteration: int) -> bool:
        """Was that the last backward of this iteration at the stage?"""
        key = stage.index, iteration
        self.backwards[key] = self.backwards.get(key, 0) + 1
        if self.backwards[key] < self.microbatches:
            return False
        del self.backwards[key]
        return True

    def _update(self, index: int) -> None:
        """One update of a stage; before it, replicas add up their gradients."""
        job, stage = self.job, self.stages[index]
        outer = job.recorder.where
        job.recorder.where = Where(outer.iteration, -1, index, stage.version + 1)
        if self.mates is not None:
            for name, parameter in stage.parameters.items():
                if parameter.grad is not None:
                    with job.label(name):
                        dist.all_reduce(parameter.grad, group=self.mates)
        with job.computing(CODE["optimizer"]):
            stage.update(self.optimizers.get(index))
        self.memory.weigh()
        job.recorder.where = outer

    # -- the end --

    def _finish(self) -> None:
        job = self.job
        job.recorder.where = Where()
        relay = Relay(job, self.world, self.schedule.rank_of, self._borders, job.metrics_group())
        validate(job, self.stages, relay, self.hollow.model)
        job.partial = True
        job.parameters = {
            name: value.detach().cpu()
            for stage in self.stages.values()
            for name, value in stage.module.state_dict().items()
        }
