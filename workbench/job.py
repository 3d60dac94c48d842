"""What a strategy is given on a rank: the task, its samples, and recorded steps of computing.

A strategy is plain torch.distributed around these calls; it knows nothing of records, holds,
faults, slowness or padding, which all happen in here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.batches import Minibatches
from workbench.control import ABORT, HELD, ITERATION, SLOW, STOP, STOP_ASKED, Control, Gate
from workbench.errors import PadOverrun
from workbench.events import BACKWARD, CODE, FORWARD, KINDS, LOAD, OPTIMIZER, Where, now
from workbench.faults import jitter, strike
from workbench.fewer_words.averaging import average_replicas
from workbench.gossip.sketch import Sketch
from workbench.launchers.rehearsal import samples_of
from workbench.memory import Memory
from workbench.padding import Padding, sleep_exactly
from workbench.partitions.facts import Taken
from workbench.placing import collated, device_of, moved
from workbench.result import digest
from workbench.run_queue import RunQueue
from workbench.session import Session
from workbench.spec import Experiment
from workbench.update_rule import optimizer_of
from workbench.validation import aside, validate

METRICS_EVERY = 10  # iterations: the task's metrics of a rank's samples cost one more forward each


@dataclass(frozen=True)
class Step:
    """One iteration: its number, and the sample ids of the whole minibatch (int64)."""

    iteration: int
    ids: np.ndarray


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
        whole: bool = False,
    ) -> None:
        """``prepared``: what the strategy's ``prepare`` said in the driver. ``tell``: adds to what
        is stored with the run. ``whole``: every rank takes the whole minibatch.
        """
        self.exp, self.task, self.rank, self.ranks = exp, task, rank, exp.ranks
        self.prepared, self.tell = dict(prepared or {}), tell
        self.session, self.recorder, self.control = session, session.recorder, control
        self.device, self.dtype = device_of(exp.device, rank), getattr(torch, exp.dtype)
        self.train = samples_of(task, "train")
        self.seed = exp.seed
        self.minibatches = Minibatches(len(self.train), exp.batch_size, exp.seed)
        # Which samples each rank takes; where all take the whole minibatch there is nothing to see.
        self.taken = None if whole else Taken(rank, self.minibatches, exp.iterations, tell)
        self._gate = Gate(control, rank)
        self._jitter = 1.0
        self._padding: Padding | None = None
        self._sketch: Sketch | None = None
        self._run_queue = RunQueue()
        self._groups: dict[str, dist.ProcessGroup] = {}
        # Counted only where somebody asked: the hooks cost microseconds an operation.
        self.memory = (
            None if exp.memory_limit_bytes is None else Memory(rank, exp.memory_limit_bytes)
        )
        self.lead = 0  # iterations that another rank may be ahead of rank 0, where not all meet
        self.number = 0  # of the model that this rank trains, where there are several
        self.replica = 0  # of the model that this rank's parameters are a part of
        self.losses: list[float] = []
        self.samples: list[int] = []
        self.started_ns = self.ended_ns = 0
        self.parameters: dict[str, torch.Tensor] = {}
        self.partial = False  # ``parameters`` are those of this rank, the others have the rest
        self.speaker = 0  # the rank whose parameters are the run's, if they are not partial
        self.metrics: dict[str, float] = {}
        self.digest = ""

    # -- what a strategy builds --

    def of_model(self, number: int) -> None:
        """Train this one of several models: a run of its own, on the experiment's seed + number."""
        self.number, self.seed = number, self.exp.seed + number
        self.minibatches = Minibatches(len(self.train), self.exp.batch_size, self.seed)
        self.taken = None if number else self.taken  # a page is told of the first model's

    def model(self) -> torch.nn.Module:
        """The task's model under the run's seed, equal on every rank."""
        return self.padded(self.build().to(self.device))

    def padded(self, model: torch.nn.Module) -> torch.nn.Module:
        """The same, its computing padded from now on if the experiment says so."""
        if self.exp.pad_compute_ns:
            self._padding = Padding(model, self.exp.pad_compute_ns)
        return model

    def build(self) -> torch.nn.Module:
        """The same in host memory, for who trains a part of it."""
        torch.manual_seed(self.seed)
        model: torch.nn.Module = self.task.model().to(dtype=self.dtype)
        return model

    def optimizer(self, model: torch.nn.Module | Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """The experiment's update rule for a model, or for these parameters."""
        parameters = [*(model.parameters() if isinstance(model, torch.nn.Module) else model)]
        made = optimizer_of(self.exp, parameters)
        if self.memory is not None:
            self.memory.watch(parameters, made)
        return made

    def label(self, text: str) -> AbstractContextManager[None]:
        """Name the collectives that start inside."""
        return self.session.label(text)

    # -- the loop --

    def steps(self) -> Iterator[Step]:
        """The iterations, each a boundary at which the user may hold or stop the ranks and faults
        strike.
        """
        queue = self._run_queue = RunQueue()  # of this thread, which trains
        waited = queue.ns()
        self.started_ns = now()
        for iteration in range(self.exp.iterations):
            self.control.set_rank(self.rank, ITERATION, iteration)
            if self.control.words[HELD]:
                self._gate.pass_iteration(iteration)
            if self.control.words[ABORT] or self._last(iteration):
                break
            self.recorder.where = Where(iteration)
            self.strike(iteration)
            yield Step(iteration, self.minibatches.ids(iteration))
            self.ended_ns = now()
            if self.memory is not None:
                self.recorder.mark(CODE["metric"], "memory", value=float(self.memory.peak))
            waited, before = queue.ns(), waited
            self.recorder.mark(CODE["metric"], "runqueue", value=float(waited - before))
        self.recorder.where = Where()

    def _last(self, iteration: int) -> bool:
        """Does the run end before this iteration because the user stopped it? All ranks agree.

        Rank 0 turns the wish into a number before it takes part in an iteration that nobody can
        finish without it; the others read that number when they come to the next one. Where ranks
        wait for their neighbours only, some are ahead of it by then: at most by ``lead``.
        """
        words = self.control.words
        if self.rank == 0 and words[STOP] == STOP_ASKED:
            words[STOP] = iteration + 1 + self.lead
        return 0 < words[STOP] <= iteration

    def strike(self, iteration: int, *, computes: bool = True) -> None:
        """The faults that the experiment asks for at this iteration; a rank that only serves has
        no jitter, which is of computing.
        """
        self._jitter = jitter(self.exp, self.rank, iteration) if computes else 1.0
        strike(self.exp, self.rank, iteration, self.recorder, self.control)

    # -- computing, recorded --

    def load(self, ids: np.ndarray, come: Callable[[], Any] | None = None) -> Any:
        """The samples of these ids as one batch, collated as a DataLoader does, on this rank's
        device. ``come`` gives that batch where it is not from this rank's own data set.
        """
        if self.taken is not None:
            self.taken.load(self.recorder.where.iteration, ids)
        with self._span(LOAD):
            return self.batch(self.train, ids) if come is None else self.on_device(come())

    def forward(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The task's loss, the mean over the batch's samples."""
        if self.memory is not None:
            self.memory.weigh_gradients()  # of the last iteration there are none any more
        with self._compute(backward=False), self.counting():
            loss: torch.Tensor = self.task.loss(model, batch)
        if self.recorder.where.iteration % METRICS_EVERY == 0:
            self._measure(model, batch)
        return loss

    def counting(self) -> AbstractContextManager[None]:
        """Count what autograd saves inside, if memory is counted."""
        return nullcontext() if self.memory is None else self.memory.counting()

    def _measure(self, model: torch.nn.Module, batch: Any) -> None:
        """Record the task's metrics of this rank's samples, before the update: for charts, and
        without a trace in the training.
        """
        if not (self.recorder.active and hasattr(self.task, "metrics")):
            return
        start = now()
        found = aside(self.task, model, batch)
        self._tell(found, "minibatch", start)

    def _tell(self, metrics: dict[str, float], split: str, start: int) -> None:
        """Record what the task measured since ``start``, of the "minibatch" or of "validation"."""
        lane, end = self.recorder.lane("compute"), now()
        lane.context(where=self.recorder.where)
        for name, value in metrics.items():
            number, phase = self.recorder.name(name), self.recorder.name(split)
            lane.write(CODE["metric"], start, end, name=number, phase=phase, value=float(value))
            start = end  # the time is the first one's

    def backward(self, loss: torch.Tensor, weight: float = 1.0) -> None:
        """Gradients of ``weight`` times the loss.

        The row ends with the last gradient: what DDP then waits for is communication.
        """
        scaled = loss if weight == 1.0 else loss * weight
        with ExitStack() as computing:
            computing.enter_context(self._compute(backward=True))
            # Callbacks run in the order in which they were queued, DDP's own waiting after this.
            scaled.register_hook(  # type: ignore[no-untyped-call]
                lambda _: _when_computed(computing.close)
            )
            scaled.backward()  # type: ignore[no-untyped-call]
        if self.memory is not None:
            self.memory.weigh()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        with self.computing(OPTIMIZER):
            optimizer.step()
        if self.memory is not None:
            self.memory.weigh()

    @contextmanager
    def _span(self, kind: int, name: str = "") -> Iterator[None]:
        """One row of ``kind``; its ``value``: nanoseconds of it spent waiting for a core."""
        queue, before = self._run_queue, 0
        with self.recorder.span(kind, name=name, value=lambda: float(queue.ns() - before)):
            before = queue.ns()
            yield

    @contextmanager
    def computing(self, kind: int, name: str = "", least_ns: int = 0) -> Iterator[None]:
        """One span of a schedule's computing, slept up to ``least_ns``.

        Raises PadOverrun where the computing alone, its waiting for a core left out, takes longer.
        """
        with self._span(kind, name):
            start, busy = now(), time.thread_time_ns() if least_ns else 0
            yield
            self._synchronize()
            if least_ns:
                busy = time.thread_time_ns() - busy
                left = start + least_ns - now()
                if busy > least_ns:
                    raise PadOverrun(
                        f"rank {self.rank} computed for {busy / 1e6:.1f} ms in a "
                        f"{KINDS[kind]} that is padded to {least_ns / 1e6:g} ms, in iteration "
                        f"{self.recorder.where.iteration}: a pad must be longer than what runs in "
                        "it. Take a longer pad_compute, more microbatches, or a smaller model"
                    )
                if left > 0:
                    sleep_exactly(start + least_ns)
                else:
                    self.recorder.mark(CODE["metric"], "pad overrun", value=-left / 1e6)
            self.stretch(start)

    def _synchronize(self) -> None:
        """Else a span ends before its work does."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    @contextmanager
    def _compute(self, *, backward: bool) -> Iterator[None]:
        """A forward or backward of the whole model, its pad spread over the layers."""
        with self.computing(BACKWARD if backward else FORWARD):
            if self._padding is None:
                yield
            else:
                with self._padding.over(backward=backward) as overrun:
                    yield
                if overrun():
                    self.recorder.mark(CODE["metric"], "pad overrun", value=overrun())

    def stretch(self, start: int) -> None:
        """Of a slow rank: what began at ``start`` lasts so many times as long."""
        factor = self._jitter * self.control.rank_word(self.rank, SLOW) / 1000
        if factor > 1:
            time.sleep((factor - 1) * (now() - start) * 1e-9)

    def report(self, loss: torch.Tensor, samples: int) -> None:
        """This worker's loss (mean over its samples) before the update of this iteration."""
        value = float(loss.detach())
        self.losses.append(value)
        self.samples.append(samples)
        self.control.set_loss(self.rank, value)
        if self.taken is not None:
            self.taken.counts(self.recorder.where.iteration, samples)
        if samples:
            self.recorder.mark(CODE["metric"], "loss", value=value)
            self.recorder.mark(CODE["metric"], "samples", value=samples)

    def sketch(self, model: torch.nn.Module) -> None:
        """Record eight numbers of this replica's parameters, for strategies whose replicas differ:
        run.disagreement() estimates distances from them. Call it once an iteration, at its end.
        """
        if not self.recorder.active:
            return
        if self._sketch is None:
            self._sketch = Sketch(model.parameters())
        numbers = self._sketch.numbers()
        lane, name, moment = self.recorder.lane("compute"), self.recorder.name("sketch"), now()
        lane.context(where=self.recorder.where)
        for j, value in enumerate(numbers):
            lane.write(CODE["metric"], moment, moment, chunk=j, name=name, value=value)

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
        """Validation over all ranks (``alone``: by this one; ``within``: by these, where the others
        have no replica), the final parameters and their digest.

        ``average``: of replicas that differ, the run's outcome is their mean.
        ``parameters``: the outcome, where the model itself has only parts of it.
        """
        self.recorder.where = Where()
        if average:
            average_replicas(model, self.metrics_group())
        ranks = [self.rank] if alone else [*within] or [*range(self.ranks)]
        self.metrics, self.speaker = validate(self, model, ranks), min(within, default=0)
        if self.rank == self.speaker:
            self.record_metrics(self.metrics, "validation")
        final = model.state_dict() if parameters is None else parameters
        self.parameters = {name: value.detach().cpu() for name, value in final.items()}
        self.digest = digest(self.parameters)

    def record_metrics(self, metrics: dict[str, float], split: str) -> None:
        """The rows of what was measured, of the "minibatch" or with the "validation" samples."""
        self._tell(metrics, split, now())

    def metrics_group(self) -> dist.ProcessGroup:
        """The group of collectives that are not training."""
        return self.group("metrics")

    def group(self, name: str, ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
        """A group under this name, of all ranks or of these.

        All of them make it, on first use, in the same order; who is not in it must not use it.
        """
        if name not in self._groups:
            within = list(range(self.ranks)) if ranks is None else list(ranks)
            if self.rank in within:  # torch makes no group of ours for the others
                self.session.next_group = name
            limit = timedelta(microseconds=self.exp.timeout_ns / 1000)
            self._groups[name] = dist.new_group(within, timeout=limit)
        return self._groups[name]

    def batch(self, dataset: Any, ids: np.ndarray) -> Any:
        """These samples, collated and on this rank's device; not recorded."""
        return self.on_device(collated(dataset, ids))

    def on_device(self, batch: Any) -> Any:
        """The batch on this rank's device, its floating tensors in the experiment's dtype."""
        return moved(batch, self.device, self.dtype)


def _when_computed(call: Callable[[], None]) -> None:
    """From within a backward pass: ``call`` when its last gradient is there."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
