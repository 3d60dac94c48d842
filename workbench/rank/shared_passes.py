"""Bad minibatches where all ranks compute one forward pass together: fsdp, tensor_parallel,
pipeline.

    batches = shared.load(minibatch, parts)
    if batches is not None:
        loss = job.forward(model, batches[0])
        if shared.accepts(loss):
            job.backward(loss)

A rank cannot drop out in the middle of such a pass, as others wait for what it computes. So all
agree twice: when each has loaded its samples, and before a parameter changes. Samples of a shape
that is new are tried first, on a whole model of the rank's own with the run's first parameters; so
is each sample by itself where the loss or a gradient is not finite, to tell which of them it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree

from workbench.common.errors import BadMinibatch, WorkbenchError, short
from workbench.rank.attempts import (
    MOST_TRIED,
    NOT_FINITE,
    is_good,
    log,
    mark,
    not_finite,
    note_left_out,
)
from workbench.rank.batches import Minibatch
from workbench.store.skipped import Skipped

if TYPE_CHECKING:
    from workbench.rank.job import Job


class SharedPass:
    """The forward and backward passes of one rank, minibatch after minibatch."""

    def __init__(self, job: Job, model: nn.Module) -> None:
        """Prepare. ``model``: all that this rank trains."""
        self._job, self._model, self._policy = job, model, job.exp.bad_minibatch
        self._minibatch = Minibatch(-1, np.empty(0, np.int64))
        self._parts: Sequence[np.ndarray] = ()
        self._buffers: dict[str, torch.Tensor] = {}
        self._shapes = set[object]()  # of samples that were tried

    def load(self, minibatch: Minibatch, parts: Sequence[np.ndarray]) -> list[Any] | None:
        """Return this rank's ``parts`` of a minibatch as batches; None: all leave it out. A rank
        that loads nothing has no parts.
        """
        self._minibatch, self._parts = minibatch, parts
        if self._policy == "keep":
            return [self._job.load(part) for part in parts]
        named = self._model.named_buffers()
        self._buffers = {name: buffer.clone() for name, buffer in named}
        error: Exception | None = None
        batches: list[Any] = []
        try:
            for part in parts:
                batches.append(self._job.load(part))
                self._try(batches[-1])
        except WorkbenchError:
            raise
        except Exception as raised:
            error = raised
        # Samples of whole numbers hold no NaN: their fault is one of the loss.
        whole = not bool(self._job.corruption.loss(torch.zeros(())).isfinite())
        return batches if self._is_good(error, alarm=whole or error is not None) else None

    def accepts(self, loss: torch.Tensor | None = None) -> bool:
        """Return whether the parameters may change: whether ``loss`` is finite, and so are all
        gradients that there are. None: this rank has no loss. All ranks call it.
        """
        if self._policy == "keep":
            return True
        finite = loss is None or bool(loss.detach().isfinite())
        return self._is_good(None, alarm=not finite or bool(not_finite(self._model)))

    def _is_good(self, error: Exception | None, *, alarm: bool) -> bool:
        """Return whether no rank raises an alarm. Raises BadMinibatch."""
        job = self._job
        if not any(one[0] for one in self._exchange(alarm, False)):
            return True
        what = self._trace(error)
        verdicts = self._exchange(alarm, bool(what.bad))
        # The rank that has the samples, else the one that raised the alarm.
        at = 1 if any(one[1] for one in verdicts) else 0
        if self._policy == "fail":
            if verdicts[job.rank][at]:
                mark(job, what, error)
                raise BadMinibatch(
                    f"{what.words}. No parameter has changed. bad_minibatch='skip' leaves such a "
                    "minibatch out on all ranks, 'keep' does not look for it",
                    job.run_rank,
                    how="raised",
                    doing=f"iteration {what.iteration + 1}",
                ) from error
            dist.barrier(group=job.metrics_group())  # the error of another rank ends it
        self._leave_out()
        if verdicts[job.rank][at]:
            mark(job, what, error)
            log(job, what, error)
        return False

    def _exchange(self, alarm: bool, bad: bool) -> list[tuple[bool, bool]]:
        """Return for each rank whether it raises the alarm, and whether it has the bad samples."""
        job, flags = self._job, torch.tensor([alarm, bad], dtype=torch.uint8)
        if job.ranks == 1:
            return [(alarm, bad)]
        received = [torch.empty_like(flags) for _ in range(job.ranks)]
        with job.label("is the minibatch good?"):
            dist.all_gather(received, flags, group=job.metrics_group())
        return [(bool(one[0]), bool(one[1])) for one in received]

    def _leave_out(self) -> None:
        """Undo what the passes changed."""
        for parameter in self._model.parameters():
            parameter.grad = None
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(self._buffers[name])
        note_left_out(self._job, self._minibatch.iteration)

    # -- a whole model, of this rank alone --

    def _whole_model(self) -> nn.Module:
        return self._job.build().to(self._job.device)

    def _try(self, batch: Any) -> None:
        """Compute the loss of samples whose shape is new."""
        shapes = tuple(_shapes(batch))
        if shapes not in self._shapes:
            with torch.random.fork_rng(devices=[]):
                self._job.task.loss(self._whole_model(), batch)
            self._shapes.add(shapes)

    def _trace(self, error: Exception | None) -> Skipped:
        """Return what is wrong, and with which of this rank's samples."""
        job, bad, layer = self._job, list[int](), ""
        parameters = [] if error is not None else not_finite(self._model)
        with torch.random.fork_rng(devices=[]):
            model = self._whole_model()
            for part in self._parts:
                for one in part[:MOST_TRIED]:
                    good, where = is_good(job, model, np.asarray([one]), part)
                    if not good:
                        bad.append(int(one))
                        layer = layer or where
        why = NOT_FINITE if error is None else f"{type(error).__name__}: {short(str(error))}"
        whole = tuple(self._minibatch.ids.tolist())
        iteration = self._minibatch.iteration
        return Skipped(iteration, job.run_rank, why, whole, tuple(bad), layer, tuple(parameters))


def _shapes(batch: Any) -> Iterator[object]:
    """Yield what the model sees of a batch beside its numbers and their number."""
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor):
            yield leaf.dtype, tuple(leaf.shape[1:])
        else:
            yield type(leaf)
