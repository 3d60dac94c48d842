"""An attempt at an iteration: what can be given up as long as no rank has learned of its gradient.

    with Attempt(job, minibatch, model, ids) as attempt:
        loss = job.forward(model, job.load(ids))
        job.backward(loss)
    if attempt.skipped:
        continue

``bad_minibatch="keep"`` looks for nothing. "fail" raises BadMinibatch before the sum. With "skip"
the ranks agree, by an all-reduce of a byte a rank, whether one of them cannot use its share: then
all leave the whole minibatch out, and none of them changes a parameter, a moment or a buffer.

Where a rank's gradient changes nothing but what is its own, or a server's (gossip, MALT, AD-PSGD,
parameter servers), no rank need agree: the rank leaves its own share out, as the strategy's traits
say. Where one
forward pass is the work of all ranks, see rank/shared_passes.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from workbench.common.errors import BadMinibatch, WorkbenchError, short
from workbench.rank.batches import Minibatch
from workbench.rank.validation import unwrapped
from workbench.recording.events import CODE, POISONED, now
from workbench.store.skipped import KEY, Skipped

if TYPE_CHECKING:
    from workbench.rank.job import Job

MOST_IN_A_ROW = 10  # minibatches left out one after the other: more are not chance
MOST_TRIED = 1024  # samples of which each is tried by itself
NOT_FINITE = "its gradient is not finite"


class Attempt:
    """One iteration's forward and backward passes; ``skipped`` once they are given up."""

    def __init__(
        self,
        job: Job,
        minibatch: Minibatch,
        model: nn.Module,
        ids: np.ndarray,
    ) -> None:
        """Prepare. ``ids``: the samples that this rank takes of ``minibatch``."""
        self.skipped, self._alone = False, job.traits.skips == "own share"
        self._job, self._minibatch, self._model, self._ids = job, minibatch, model, ids
        self._policy = job.exp.bad_minibatch
        self._loss: torch.Tensor | None = None

    def look(self, loss: torch.Tensor) -> None:
        """Take a loss that is not finite as bad, where gradients are summed as they are computed
        and come too late.
        """
        self._loss = loss.detach()

    def __enter__(self) -> Self:
        skips, iteration = self._job.skips, self._minibatch.iteration
        if self._policy == "skip" and skips.attempted != iteration:  # its first part, if of several
            named = self._model.named_buffers()
            skips.buffers = {name: buffer.clone() for name, buffer in named}
            skips.attempted = iteration
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._policy == "keep":
            if error is None and self._job.corruption.of(self._minibatch.iteration):
                self._mark_chunks()
            return False
        theirs = isinstance(error, WorkbenchError) or not isinstance(error, Exception)
        if error is not None and theirs:  # a peer was lost, say: it is not the data
            return False
        parameters = [] if error is not None else not_finite(self._model)
        infinite = self._loss is not None and not bool(self._loss.isfinite())
        detected = error is not None or bool(parameters) or infinite
        if self._policy == "fail":
            if detected:
                what = self._trace(error, parameters)
                mark(self._job, what, error)
                raise BadMinibatch(
                    f"{what.words}. No rank has received that gradient. bad_minibatch='skip' "
                    "leaves such a minibatch out on all ranks, 'keep' does not look for it",
                    self._job.run_rank,
                    how="raised",
                    doing=f"iteration {self._minibatch.iteration + 1}",
                ) from error
            return False
        self.skipped = self._agree(detected)
        if self.skipped:
            self._leave_out(error, parameters, alarm=detected)
        return self.skipped

    def _agree(self, detected: bool) -> bool:
        """Return whether any rank cannot use its share."""
        job = self._job
        if self._alone or job.ranks == 1:
            return detected
        flag = torch.tensor([detected], dtype=torch.uint8)
        with job.label("is the minibatch good?"):
            dist.all_reduce(flag, dist.ReduceOp.MAX, group=job.metrics_group())
        return bool(flag)

    def _leave_out(
        self, error: BaseException | None, parameters: Sequence[str], *, alarm: bool
    ) -> None:
        """Undo what the passes changed; log what is left out where this rank raised the alarm."""
        job, iteration = self._job, self._minibatch.iteration
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()  # in place: it may be a view of all gradients
            elif parameter.requires_grad:
                # torch's averager leaves a parameter without a gradient out of its mean.
                parameter.grad = torch.zeros_like(parameter)
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(job.skips.buffers[name])
        note_left_out(job, iteration)
        if alarm:
            what = self._trace(error, parameters)
            mark(job, what, error)
            log(job, what, error)

    def _trace(self, error: BaseException | None, parameters: Sequence[str]) -> Skipped:
        """Return what is wrong, and with which samples: each is tried by itself."""
        job, iteration = self._job, self._minibatch.iteration
        whole = self._ids if self._alone else self._minibatch.ids  # that is left out
        ids = self._ids if len(self._ids) else self._minibatch.ids[:1]
        bad, layer = [], ""
        with torch.random.fork_rng(devices=[]):
            for one in ids[:MOST_TRIED]:
                good, where = is_good(job, self._model, np.asarray([one]), ids)
                if not good:
                    bad.append(int(one))
                    layer = layer or where
        why = NOT_FINITE if error is None else f"{type(error).__name__}: {short(str(error))}"
        return Skipped(
            iteration,
            job.run_rank,
            why,
            tuple(whole.tolist()),
            tuple(bad),
            layer,
            tuple(parameters),
        )

    def _mark_chunks(self) -> None:
        """Record which parts of each gradient are not finite: of as many as there are ranks, as
        most algorithms cut a tensor. Only where a fault has put a NaN there: to look costs time.
        """
        job = self._job
        lane = job.recorder.lane("compute")
        lane.context(where=job.recorder.where)
        moment, name = now(), job.recorder.name(POISONED)
        for parameter, gradient in _gradients(self._model):
            phase = job.recorder.name(parameter)
            for chunk, part in enumerate(gradient.reshape(-1).tensor_split(job.ranks)):
                if count := int((~part.isfinite()).sum()):
                    lane.write(
                        CODE["metric"],
                        moment,
                        moment,
                        chunk=chunk,
                        name=name,
                        phase=phase,
                        value=float(count),
                    )


def not_finite(model: nn.Module) -> list[str]:
    """Return the parameters whose gradient has a NaN or an infinity, in the model's order."""
    return [name for name, gradient in _gradients(model) if not gradient.isfinite().all()]


def _gradients(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    named = unwrapped(model).named_parameters()
    return [(name, one.grad) for name, one in named if one.grad is not None]


def note_left_out(job: Job, iteration: int) -> None:
    """Report an iteration of which this rank takes no sample."""
    job.losses.append(float("nan"))  # a mean over no samples
    job.samples.append(0)
    if job.taken is not None:
        job.taken.counts(iteration, 0)
    job.skips.count(iteration)


def mark(job: Job, what: Skipped, error: BaseException | None) -> None:
    """Record that this rank's share is bad, with the first bad sample."""
    first = float(what.bad[0]) if what.bad else float("nan")
    name = "bad minibatch: " + ("not finite" if error is None else "not loaded")
    job.recorder.mark(CODE["detect"], name, value=first, peer=job.run_rank)


def log(job: Job, what: Skipped, error: BaseException | None) -> None:
    """Store what is left out with the run. Raises BadMinibatch after too many in a row."""
    job.skips.records.append(what)
    fields = [one.as_fields() for one in job.skips.records]
    job.tell({f"{KEY} {job.run_rank}.{job.team.generation}": json.dumps(fields)})
    if (in_a_row := job.skips.in_a_row) >= MOST_IN_A_ROW:
        raise BadMinibatch(
            f"{in_a_row} minibatches in a row were left out, up to iteration {what.iteration + 1}: "
            f"that is not chance. The last: {what.words}",
            job.run_rank,
            how="raised",
            doing=f"iteration {what.iteration + 1}",
        ) from error


def is_good(job: Job, model: nn.Module, one: np.ndarray, ids: np.ndarray) -> tuple[bool, str]:
    """Return whether a sample can be trained on by itself; if not, the first layer whose output
    is not finite. ``ids``: those that it is loaded with. Leaves no trace in the training.
    """
    model, first = unwrapped(model), ""

    def look(name: str, output: Any) -> None:
        nonlocal first
        if not first and isinstance(output, torch.Tensor) and not output.isfinite().all():
            first = name

    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: look(name, output))
        for name, module in model.named_modules()
        if not [*module.children()]
    ]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        batch = job.batch(job.corruption.samples(job.train, ids, mark=False), one)
        loss = job.corruption.loss(job.task.loss(model, batch), one)
        parameters = [x for x in model.parameters() if x.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        finite = all(x is None or bool(x.isfinite().all()) for x in gradients)
        return finite and bool(loss.isfinite()), first
    except WorkbenchError:
        raise
    except Exception:
        return False, first
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
