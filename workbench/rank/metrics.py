"""Rows of metrics: what a task measures of a model, and a sketch of a replica's parameters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from workbench.rank.parameter_sketch import Sketch
from workbench.rank.shared_outputs import Outputs
from workbench.rank.validation import unwrapped
from workbench.recording.events import CODE, now
from workbench.recording.recorder import Recorder

METRICS_EVERY = 10  # iterations: the task's metrics of a rank's samples may cost one more forward


class Metrics:
    """The metrics of one rank, recorded beside its training."""

    def __init__(self, task: Any, recorder: Recorder) -> None:
        self._task, self._recorder = task, recorder
        self._sketch: Sketch | None = None
        self._outputs: Outputs | None = None  # of the model that is trained

    def measuring(self, model: torch.nn.Module, batch: Any) -> AbstractContextManager[None]:
        """Record the task's metrics of this rank's samples now and then, after the forward pass
        inside and before the update: for charts, and without a trace in the training.
        """
        recorder = self._recorder
        due = recorder.where.iteration % METRICS_EVERY == 0 and recorder.active
        if not due or not hasattr(self._task, "metrics"):
            return nullcontext()
        return self._measuring(model, batch)

    @contextmanager
    def _measuring(self, model: torch.nn.Module, batch: Any) -> Iterator[None]:
        model = unwrapped(model)
        if self._outputs is None or self._outputs.model is not model:
            self._outputs = Outputs(model)
        outputs = self._outputs
        outputs.keep()
        try:
            yield
        finally:
            outputs.stop()
        start, began = now(), time.thread_time_ns()
        self.record(outputs.measure(self._task, batch), "minibatch", start)
        self._recorder.lane("compute").count_cost(time.thread_time_ns() - began)

    def record(self, metrics: dict[str, float], split: str, start: int) -> None:
        """Record what the task measured since ``start``, of the "minibatch" or of "validation"."""
        lane, end = self._recorder.lane("compute"), now()
        lane.context(where=self._recorder.where)
        for name, value in metrics.items():
            number, phase = self._recorder.name(name), self._recorder.name(split)
            lane.write(CODE["metric"], start, end, name=number, phase=phase, value=float(value))
            start = end  # the time is the first one's

    def sketch(self, model: torch.nn.Module) -> None:
        """Record eight numbers of this replica's parameters."""
        recorder = self._recorder
        if not recorder.active:
            return
        if self._sketch is None:
            self._sketch = Sketch(model.parameters())
        numbers = self._sketch.numbers()
        lane, name, moment = recorder.lane("compute"), recorder.name("sketch"), now()
        lane.context(where=recorder.where)
        for j, value in enumerate(numbers):
            lane.write(CODE["metric"], moment, moment, chunk=j, name=name, value=value)
