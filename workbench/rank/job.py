"""A rank's job, given to its strategy: the task, its samples, and recorded steps of computation.

A strategy is plain torch.distributed around these calls; it knows nothing of records, holds,
faults, slowness or padding, which all happen in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.checkpoints.parts import Parts, Scope, Snapshot
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.experiment.traits import Traits
from workbench.process_group.session import Session
from workbench.rank.averaging import average_replicas
from workbench.rank.batches import Minibatch, minibatches_of
from workbench.rank.checkpointing import Checkpointing
from workbench.rank.computing import Computing
from workbench.rank.corruption import Corruption, Skips
from workbench.rank.data_source import read, reread
from workbench.rank.faults import jitter, strike
from workbench.rank.furthest import take_over
from workbench.rank.groups import Groups
from workbench.rank.memory import Memory
from workbench.rank.metrics import Metrics
from workbench.rank.outage import Outage
from workbench.rank.placement import collate, device_of, in_dtype, move_batch
from workbench.rank.preemption import leave_if_told
from workbench.rank.readiness import wait_until_ready
from workbench.rank.samples_taken import Taken
from workbench.rank.stopping import is_over
from workbench.rank.take_over import Before
from workbench.rank.update_rule import optimizer_of
from workbench.rank.validation import validate
from workbench.rank.warm_up import training_samples
from workbench.recording.events import CODE, LOAD, OPTIMIZER, Where, now
from workbench.recording.run_queue import RunQueue
from workbench.shared_memory.control_block import HELD, ITERATION, READY, Control
from workbench.store.result import digest
from workbench.tasks._environments import plays


class Job:
    """One rank's share of a run."""

    def __init__(
        self,
        exp: Experiment,
        task: Any,
        rank: int,
        session: Session,
        control: Control,
        prepared: Mapping[str, str] | None = None,
        tell: Callable[[dict[str, str]], None] = lambda _: None,
        *,
        traits: Traits | None = None,
        run: str = "",
        team: Team | None = None,
        before: Before | None = None,
    ) -> None:
        """Prepare a rank's part of a run.

        ``rank``: its place in ``team``, which is all ranks at first. ``prepared``: what the
        strategy's ``prepare`` returned in the driver. ``tell``: adds to what is stored with the
        run. ``traits``: the strategy's. ``run``: a word no other run has. ``before``: what this
        rank has of the last generation.
        """
        self.team = Team(0, tuple(range(exp.ranks))) if team is None else team
        self.exp, self.task, self.rank, self.ranks = exp, task, rank, len(self.team.members)
        self.run_rank = self.team.members[rank]  # the same in all generations
        self.prepared, self.tell, self.seed = dict(prepared or {}), tell, exp.seed
        self.session, self.recorder, self.control = session, session.recorder, control
        self.dtype, self.plays = getattr(torch, exp.dtype), plays(task)  # plays: without samples
        self.device = device_of("cpu" if self.plays else exp.device, self.run_rank)
        self.traits = Traits() if traits is None else traits
        self.train = reread(self, lambda: training_samples(task))
        self.minibatches = minibatches_of(exp, self.team, len(self.train), self.prepared)
        self.taken = None if before is None else before.taken
        if self.taken is None and not self.traits.whole_minibatch and not self.plays:
            self.taken = Taken(self.run_rank, self.minibatches, exp, tell)
        self._gate = control.own_gate(self.run_rank)
        self._computing = Computing(exp, self.run_rank, self.device, self.recorder, control)
        self._metrics, self.skips = Metrics(task, self.recorder), Skips()
        self.corruption = Corruption(exp, self.run_rank, self.recorder, control)
        self._groups = Groups(session, rank, self.ranks, exp.timeout_ns)
        self.parts = Parts(equal=self.traits.replicas == "equal", writes=rank == 0)  # to keep
        self.checkpoints = Checkpointing(self, run)
        self.memory: Memory | None = Memory.of(self.run_rank, exp.memory_limit_bytes, self.recorder)
        self.take_over: Callable[[Any, Before | None], int] = take_over  # or the strategy's own,
        self.carried: object = None  # and what it needs for that beside ``parts``
        self._agreed: Snapshot | None = None  # what they had at the end of the last round
        self.lead = 0  # iterations that another rank may be ahead of rank 0, where not all meet
        self.started_ns, self.ended_ns = 0 if before is None else before.started_ns, 0
        self.number = self.replica = 0  # of the model that it trains, and that it has a part of
        self.past, self._buffers = before, dict[str, torch.Tensor]()  # before this iteration
        self.goes_on_from_memory: bool = exp.recovery not in ("abort", "restart")
        self.begins = self.served = False  # has it begun to iterate? do servers say where it ends?
        self.begun = self.completed = 0  # the first iteration of ``losses``; those that are done
        self.losses, self.samples, self.digest = list[float](), list[int](), ""
        self.history: dict[str, list[float]] = {}  # losses of a run that is resumed, by model
        self.parameters, self.partial = dict[str, torch.Tensor](), False  # partial: not all of them
        self.metrics, self.outage = dict[str, float](), Outage(exp, self.recorder, control)
        self.speaker = 0  # the rank whose parameters are the run's, if they are not partial

    # -- what a strategy builds --

    def of_model(self, number: int) -> None:
        """Train this one of several models: a run of its own, on the experiment's seed + number."""
        self.number, self.seed = number, self.exp.seed + number
        self.minibatches = self.minibatches.under(self.seed)
        self.taken = None if number else self.taken  # a page is told of the first model's

    def model(self, *, keep: bool = True) -> torch.nn.Module:
        """Return the task's model under the run's seed, equal on every rank. ``keep``: it belongs
        in a checkpoint.
        """
        model = self.padded(self.build().to(self.device))
        if keep:
            self.keep("model", model)
        return model

    def keep(self, name: str, what: object, scope: Scope | None = None) -> None:
        """Have ``what`` in checkpoints, under a name: a module, an optimizer, a tensor, or an
        object with ``state_dict()`` and ``load_state_dict()``. Call it before ``iterations()``,
        which puts back what a checkpoint has. ``scope``: "equal" on all ranks, "divided" over
        them, or "per rank".
        """
        self.parts.keep(name, what, scope)

    def padded(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model, its computation padded from now on if the experiment says so."""
        self._computing.pad(model)
        if self.memory is not None:
            self.memory.follow(model)
        return model

    def build(self) -> torch.nn.Module:
        """Build the model in host memory, for a rank that trains a part of it."""
        torch.manual_seed(self.seed)
        return in_dtype(reread(self, self.task.model), self.dtype, self.task)

    def optimizer(
        self,
        model: torch.nn.Module | Iterable[torch.Tensor],
        *,
        keep: bool = True,
        scope: Scope | None = None,
    ) -> torch.optim.Optimizer:
        """Return the experiment's update rule for a model, or for these parameters. ``keep``: it
        belongs in a checkpoint, with this ``scope``.
        """
        parameters = [*(model.parameters() if isinstance(model, torch.nn.Module) else model)]
        result = optimizer_of(self.exp, parameters, self.minibatches.scale)
        if self.memory is not None:
            self.memory.watch(parameters, result)
        if keep:
            self.keep("optimizer", result, scope)
        return result

    def label(self, text: str) -> AbstractContextManager[None]:
        """Name the collectives that start inside."""
        return self.session.label(text)

    # -- the start --

    def ready(self) -> None:
        """Announce that this rank has joined all its groups."""
        self.control.set_rank(self.run_rank, READY, 1)

    def wait_until_all_are_ready(self) -> None:
        """Announce that this rank is ready, and wait for the others.

        From then on a rank may end without failing ranks that do not need it. Raises RunTimeout,
        which names the missing ranks, after the run's ``timeout``.
        """
        self.ready()
        timeout_ns, look = self.exp.timeout_ns, self.session.look
        wait_until_ready(self.control, self.run_rank, self.team.members, timeout_ns, look)

    # -- the loop --

    def iterations(self) -> Iterator[Minibatch]:
        """Yield the iterations, each a boundary at which the user may hold or stop the ranks and
        faults strike.
        """
        queue = self._computing.run_queue = RunQueue()  # of this thread, which trains
        waited = queue.ns()
        first = self.checkpoints.put_back()
        if self.team.state == "memory":
            first = self.take_over(self, self.past)
        else:
            self.begun = first
        self._note_done(first)
        if self.traits.replicas == "rounds":
            self.end_round(first - 1)
        self.started_ns = self.started_ns or now()
        iteration, stopped = first, False
        for iteration in range(first, self.exp.iterations):
            self.control.set_rank(self.run_rank, ITERATION, iteration)
            if self.control.words[HELD]:
                self._gate.pass_iteration(iteration)
            self.session.look()
            leave_if_told(self, iteration)
            if stopped := is_over(self, iteration):
                break
            self.recorder.where = Where(iteration)
            self.checkpoints.at(iteration)
            self.strike(iteration)
            yield Minibatch(iteration, self.minibatches.ids(iteration))
            self.ended_ns = now()
            self._note_done(iteration + 1)
            if self.memory is not None and self.memory.counts_activations:
                self.recorder.mark(CODE["metric"], "memory", value=float(self.memory.peak))
            waited, before = queue.ns(), waited
            self.recorder.mark(CODE["metric"], "runqueue", value=float(waited - before))
        self._computing.check()
        self.checkpoints.at_end(iteration if stopped else self.exp.iterations)
        self.recorder.where = Where()

    def _note_done(self, iterations: int) -> None:
        """Note that so many iterations are done, and what one under way may change and leave."""
        self.begins = True
        if self.traits.replicas != "rounds":
            self.completed = iterations
            if self.goes_on_from_memory or self.exp.checkpoint is not None:  # data_source.py
                self._buffers = self.parts.buffers()

    def end_round(self, iteration: int) -> None:
        """Note that all replicas agree after this iteration, for strategies whose replicas differ
        within a round (``rounds``): where a rank is lost, the others go on from here.
        """
        self.completed = iteration + 1
        if self.goes_on_from_memory:
            self._agreed = self.parts.snapshot(everything=True).copy()

    def before(self) -> Before:
        """Return what this rank takes along to the next generation."""
        if self.taken is not None:
            self.taken.abandon()
        losses, samples, history = self.losses, self.samples, self.history
        result = Before(self.completed, self.begun, losses, samples, history, self.parts)
        result.taken, result.buffers, result.agreed = self.taken, self._buffers, self._agreed
        result.carried, result.started_ns = self.carried, self.started_ns
        return result

    def strike(self, iteration: int, *, computes: bool = True) -> None:
        """Apply the faults that the experiment sets for this iteration.

        A rank that only serves has no jitter, which slows computation.
        """
        self._computing.jitter = jitter(self.exp, self.run_rank, iteration) if computes else 1.0
        self.corruption.flip(iteration, self.parts)
        strike(self.exp, self.run_rank, iteration, self.recorder, self.control)

    # -- computing, recorded --

    def load(self, ids: np.ndarray, come: Callable[[], Any] | None = None) -> Any:
        """Return the samples of these ids as one batch, collated as a DataLoader does, on this
        rank's device. ``come`` returns that batch where it is not from this rank's own data set.
        """
        if self.taken is not None:
            self.taken.load(self.recorder.where.iteration, ids)
        with self._computing.row(LOAD):
            if come is not None:
                return self.on_device(come())
            return read(self, ids)

    def forward(
        self, model: torch.nn.Module, batch: Any, loss_of: Callable[..., torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Compute the task's loss, the mean over the batch's samples; or that of ``loss_of``."""
        if self.memory is not None:
            self.memory.weigh_gradients()  # of the last iteration there are none any more
        measuring = self._metrics.measuring(model, batch)
        with measuring, self._computing.model_pass(backward=False), self.counting():
            loss = self.corruption.loss((loss_of or self.task.loss)(model, batch))
        return loss

    def counting(self) -> AbstractContextManager[None]:
        """Count what autograd saves inside, if activations are counted."""
        return nullcontext() if self.memory is None else self.memory.saving()

    def backward(self, loss: torch.Tensor, weight: float = 1.0) -> None:
        """Compute gradients of ``weight`` times the loss.

        The row ends with the last gradient: what DDP then waits for is communication.
        """
        self._computing.backward(loss, weight)
        if self.memory is not None:
            self.memory.weigh_gradients()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        with self.computing(OPTIMIZER):
            optimizer.step()
        if self.traits.replicas == "own":  # its gradient is in, whatever becomes of the iteration
            self.completed = self.recorder.where.iteration + 1
        if self.memory is not None:
            self.memory.weigh_state()

    def computing(self, kind: int, name: str = "") -> AbstractContextManager[None]:
        """Record one span of computation, as long as it takes."""
        return self._computing.span(kind, name)

    def padded_action(
        self, kind: int, action: str, pad_ns: int, name: str = ""
    ) -> AbstractContextManager[None]:
        """Record one span of a schedule's computation (``action``: F, I, W or B), slept up to
        ``pad_ns``.

        Raises PadOverrun where the median of such actions is longer.
        """
        return self._computing.action(kind, action, pad_ns, name)

    def stretch(self, start: int) -> None:
        """Extend a slow rank's span, which began at ``start``, by its factor."""
        self._computing.stretch(start)

    def report(self, loss: torch.Tensor, samples: int) -> None:
        """Report this worker's loss (mean over its samples) before the update of this iteration."""
        value = float(loss.detach())
        self.losses.append(value)
        self.samples.append(samples)
        self.control.set_loss(self.run_rank, value)
        if self.taken is not None:
            self.taken.counts(self.recorder.where.iteration, samples)
        if samples:
            lane = self.recorder.loss_lane
            self.recorder.mark(CODE["metric"], "loss", value=value, lane=lane)
            self.recorder.mark(CODE["metric"], "samples", value=samples, lane=lane)

    def sketch(self, model: torch.nn.Module) -> None:
        """Record eight numbers of this replica's parameters, for strategies whose replicas differ:
        run.disagreement() estimates distances from them. Call it once an iteration, at its end.
        """
        self._metrics.sketch(model)

    # -- the end --

    def finish(
        self,
        model: torch.nn.Module,
        *,
        alone: bool = False,
        within: Sequence[int] = (),
        average: bool = False,
        parameters: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Validate, and set the final parameters and their digest.

        All ranks validate; ``alone``: this one only; ``within``: only these, as the others have no
        replica. ``average``: the outcome is the mean of replicas that differ. ``parameters``: the
        outcome, if the ``model`` itself has only parts of it.
        """
        self.recorder.where = Where()
        if average:
            average_replicas(model, self.metrics_group())
            if (
                self.traits.replicas == "rounds"
            ):  # others may be done: the last iterations must not be done again
                self.end_round(self.begun + len(self.losses) - 1)
        ranks = [self.rank] if alone else [*within] or [*range(self.ranks)]
        self.metrics, self.speaker = validate(self, model, ranks), min(within, default=0)
        if self.rank == self.speaker:
            self.record_metrics(self.metrics, "validation")
        final = model.state_dict() if parameters is None else parameters
        self.parameters = {name: value.detach().cpu() for name, value in final.items()}
        self.digest = digest(self.parameters)

    def record_metrics(self, metrics: dict[str, float], split: str) -> None:
        """Write the rows of metrics of the "minibatch" or of the "validation" samples."""
        self._metrics.record(metrics, split, now())

    def metrics_group(self) -> dist.ProcessGroup:
        """Return the group of collectives that are not training."""
        return self.group("metrics")

    def group(self, name: str, ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
        """Return a group under this name, of all ranks or of these.

        All of them make it, on first use, in the same order; ranks outside of it must not use it.
        """
        return self._groups.get(name, ranks)

    def batch(self, dataset: Any, ids: np.ndarray) -> Any:
        """Return these samples, collated and on this rank's device; not recorded. Raises
        ConnectionError while their source is down, as the experiment asks for it.
        """
        self.outage.look()
        return self.on_device(collate(dataset, ids))

    def on_device(self, batch: Any) -> Any:
        """Return the batch on this rank's device, its floating tensors in the run's dtype."""
        return move_batch(batch, self.device, self.dtype)
