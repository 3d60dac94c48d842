"""What a strategy is given on a rank: the task, its samples, and recorded steps of computing.

A strategy is plain torch.distributed around these calls; it knows nothing of records, holds,
faults, slowness or padding, which all happen in here.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import default_collate

from workbench.batches import Minibatches, partition
from workbench.control import ABORT, HELD, ITERATION, SLOW, STOP, STOP_ASKED, THAW_AT, Control, Gate
from workbench.errors import WorkbenchError
from workbench.events import BACKWARD, CODE, FORWARD, LOAD, OPTIMIZER, Where, now
from workbench.padding import Padding
from workbench.session import Session
from workbench.spec import Experiment, Freeze, Jitter, Kill

VALIDATION_BATCH = 256
METRICS_EVERY = 10  # iterations: the task's metrics of a rank's samples cost one more forward each


@dataclass(frozen=True)
class Step:
    """One iteration: its number, and the sample ids of the whole minibatch (int64)."""

    iteration: int
    ids: np.ndarray


class Job:
    """One rank's share of a run."""

    def __init__(
        self, exp: Experiment, task: Any, rank: int, session: Session, control: Control
    ) -> None:
        self.exp, self.task, self.rank, self.ranks = exp, task, rank, exp.ranks
        self.session, self.recorder, self.control = session, session.recorder, control
        self.device, self.dtype = _device(exp.device, rank), getattr(torch, exp.dtype)
        self._train = task.dataset("train")
        self.seed = exp.seed
        self.minibatches = Minibatches(len(self._train), exp.batch_size, exp.seed)
        self._gate = Gate(control, rank)
        self._jitter = 1.0
        self._padding: Padding | None = None
        self._run_queue = RunQueue()
        self._groups: dict[str, dist.ProcessGroup] = {}
        self.number = 0  # of the model that this rank trains, where there are several
        self.losses: list[float] = []
        self.samples: list[int] = []
        self.started_ns = self.ended_ns = 0
        self.parameters: dict[str, torch.Tensor] = {}
        self.metrics: dict[str, float] = {}
        self.digest = ""

    # -- what a strategy builds --

    def of_model(self, number: int) -> None:
        """Train this one of several models: a run of its own, on the experiment's seed + number."""
        self.number, self.seed = number, self.exp.seed + number
        self.minibatches = Minibatches(len(self._train), self.exp.batch_size, self.seed)

    def model(self) -> torch.nn.Module:
        """The task's model under the run's seed, equal on every rank."""
        torch.manual_seed(self.seed)
        model: torch.nn.Module = self.task.model().to(self.device, self.dtype)
        if self.exp.pad_compute_ns:
            self._padding = Padding(model, self.exp.pad_compute_ns)
        return model

    def optimizer(self, model: torch.nn.Module | Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """The experiment's update rule for a model, or for these parameters."""
        parameters = model.parameters() if isinstance(model, torch.nn.Module) else model
        if self.exp.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=self.exp.learning_rate)
        return torch.optim.SGD(parameters, lr=self.exp.learning_rate, momentum=self.exp.momentum)

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
            waited, before = queue.ns(), waited
            self.recorder.mark(CODE["metric"], "runqueue", value=float(waited - before))
        self.recorder.where = Where()

    def _last(self, iteration: int) -> bool:
        """Does the run end before this iteration because the user stopped it? All ranks agree.

        Rank 0 turns the wish into a number before it takes part in an iteration that nobody can
        finish without it; the others read that number when they come to the next one.
        """
        words = self.control.words
        if self.rank == 0 and words[STOP] == STOP_ASKED:
            words[STOP] = iteration + 1
        return 0 < words[STOP] <= iteration

    def strike(self, iteration: int, *, computes: bool = True) -> None:
        """The faults that the experiment asks for at this iteration; a rank that only serves has
        no jitter, which is of computing.
        """
        self._jitter = 1.0
        for number, fault in enumerate(self.exp.faults):
            if isinstance(fault, Jitter) and computes:
                draw = np.random.default_rng([self.exp.seed, number, self.rank, iteration]).random()
                self._jitter *= fault.factor if draw < fault.probability else 1.0
            elif isinstance(fault, Kill) and (fault.rank, fault.at_iteration) == (
                self.rank,
                iteration,
            ):
                self.recorder.mark(CODE["fault"], "kill")
                os.kill(os.getpid(), signal.SIGKILL)
            elif isinstance(fault, Freeze) and (fault.rank, fault.at_iteration) == (
                self.rank,
                iteration,
            ):
                self.recorder.mark(CODE["fault"], "freeze", value=fault.seconds)
                # The driver thaws: who is stopped cannot wake itself.
                self.control.set_rank(self.rank, THAW_AT, now() + int(fault.seconds * 1e9))
                os.kill(os.getpid(), signal.SIGSTOP)

    # -- computing, recorded --

    def load(self, ids: np.ndarray) -> Any:
        """The samples of these ids as one batch, collated as a DataLoader does, on this rank's
        device.
        """
        with self._span(LOAD):
            return self._batch(self._train, ids)

    def forward(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The task's loss, the mean over the batch's samples."""
        with self._compute(FORWARD, share=1):
            loss: torch.Tensor = self.task.loss(model, batch)
        if self.recorder.where.iteration % METRICS_EVERY == 0:
            self._measure(model, batch)
        return loss

    def _measure(self, model: torch.nn.Module, batch: Any) -> None:
        """Record the task's metrics of this rank's samples, before the update: for charts, and
        without a trace in the training.
        """
        if not (self.recorder.active and hasattr(self.task, "metrics")):
            return
        if isinstance(model, DistributedDataParallel):
            model = model.module
        modes = [(module, module.training) for module in model.modules()]
        start = now()
        model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                found = self.task.metrics(model, batch)
        finally:
            for module, training in modes:
                module.training = training
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
            computing.enter_context(self._compute(BACKWARD, share=2))
            # Callbacks run in the order in which they were queued, DDP's own waiting after this.
            scaled.register_hook(  # type: ignore[no-untyped-call]
                lambda _: _when_computed(computing.close)
            )
            scaled.backward()  # type: ignore[no-untyped-call]

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        with self._compute(OPTIMIZER, share=0):
            optimizer.step()

    @contextmanager
    def _span(self, kind: int) -> Iterator[None]:
        """One row of ``kind``; its ``value``: nanoseconds of it spent waiting for a core."""
        queue, before = self._run_queue, 0
        with self.recorder.span(kind, value=lambda: float(queue.ns() - before)):
            before = queue.ns()
            yield

    @contextmanager
    def _compute(self, kind: int, share: int) -> Iterator[None]:
        with self._span(kind):
            start = now()
            if self._padding is not None and share:
                with self._padding.over(backward=share == 2) as overrun:
                    yield
                if overrun():
                    self.recorder.mark(CODE["metric"], "pad overrun", value=overrun())
            else:
                yield
            if self.device.type == "cuda":
                torch.cuda.current_stream(
                    self.device
                ).synchronize()  # else the span ends before its work
            self.stretch(start)

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
        if samples:
            self.recorder.mark(CODE["metric"], "loss", value=value)
            self.recorder.mark(CODE["metric"], "samples", value=samples)

    # -- the end --

    def finish(self, model: torch.nn.Module, *, alone: bool = False) -> None:
        """Validation over all ranks (``alone``: by this one), the final parameters and their
        digest.
        """
        self.recorder.where = Where()
        self.metrics = self._validate(model, 1 if alone else self.ranks)
        if self.rank == 0:
            self._tell(self.metrics, "validation", now())
        self.parameters = {name: value.detach().cpu() for name, value in model.state_dict().items()}
        self.digest = digest(self.parameters)

    @torch.no_grad()
    def _validate(self, model: torch.nn.Module, ranks: int) -> dict[str, float]:
        """Means over the validation samples, each counted once however many ranks share them."""
        if not hasattr(self.task, "metrics"):
            return {}
        model.eval()
        dataset = self.task.dataset("validation")
        mine = partition(np.arange(len(dataset)), self.rank if ranks > 1 else 0, ranks)
        names: list[str] = []
        sums = torch.zeros(0, dtype=torch.float64)
        count = 0
        for at in range(0, max(len(mine), 1), VALIDATION_BATCH):
            ids = mine[at : at + VALIDATION_BATCH]
            found = self.task.metrics(
                model, self._batch(dataset, ids if len(ids) else np.arange(1))
            )
            names = sorted(found)
            values = torch.tensor([found[name] for name in names], dtype=torch.float64) * len(ids)
            sums = values if not len(sums) else sums + values
            count += len(ids)
        model.train()
        total = torch.cat([sums, torch.tensor([count], dtype=torch.float64)])
        if ranks > 1:
            dist.all_reduce(total, group=self.metrics_group())
        return {
            name: float(value / total[-1]) for name, value in zip(names, total[:-1], strict=True)
        }

    def metrics_group(self) -> dist.ProcessGroup:
        """The group of collectives that are not training."""
        return self.group("metrics")

    def group(self, name: str) -> dist.ProcessGroup:
        """A group of all ranks under this name; all of them make it, on first use."""
        if name not in self._groups:
            self.session.next_group = name
            limit = timedelta(microseconds=self.exp.timeout_ns / 1000)
            self._groups[name] = dist.new_group(list(range(self.ranks)), timeout=limit)
        return self._groups[name]

    def _batch(self, dataset: Any, ids: np.ndarray) -> Any:
        if getattr(dataset, "__getitems__", None):
            samples = dataset.__getitems__(ids.tolist())
        else:
            samples = [dataset[int(i)] for i in ids]
        return _moved(default_collate(samples), self.device, self.dtype)


def _when_computed(call: Callable[[], None]) -> None:
    """From within a backward pass: ``call`` when its last gradient is there."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def digest(parameters: dict[str, torch.Tensor]) -> str:
    """SHA-256 over names and bytes: equal exactly if two replicas are bit-identical."""
    sha = hashlib.sha256()
    for name in sorted(parameters):
        sha.update(name.encode())
        sha.update(parameters[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def _moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The batch on ``device``, its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, dtype) if batch.is_floating_point() else batch.to(device)
    if isinstance(batch, dict):
        return {key: _moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_moved(value, device, dtype) for value in batch]
    return batch


def _device(wanted: str, rank: int) -> torch.device:
    """``auto``: a GPU if there is one; ranks beyond the number of GPUs share them."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda":
        wanted = f"cuda:{rank % torch.cuda.device_count()}"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise WorkbenchError(
            f"device={wanted!r}: this torch ({torch.__version__}) finds no GPU; "
            "use device='cpu' or 'auto'"
        )
    return torch.device(wanted)


class RunQueue:
    """How long the thread that made this has been ready to run without a core to run on.

    It says who is late through no fault of its own: where there are more ranks than cores.
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def ns(self) -> int:
        """Nanoseconds since the thread began; 0 where the kernel is silent. Takes half a
        microsecond.
        """
        if self._fd < 0:
            return 0
        try:
            return int(os.pread(self._fd, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
