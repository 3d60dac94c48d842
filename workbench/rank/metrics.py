"""Rows of metrics: what a task measures of a model, and a sketch of a replica's parameters."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from workbench.rank.parameter_sketch import Sketch
from workbench.rank.shared_outputs import Outputs
from workbench.rank.validation import unwrapped
from workbench.recording.events import CODE, now
from workbench.recording.lane import Lane
from workbench.recording.recorder import Recorder

METRIC = CODE["metric"]
METRICS_EVERY = 10  # iterations: the task's metrics of a rank's samples may cost one more forward


class Metrics:
    """The metrics of one rank, recorded beside its training."""

    def __init__(self, task: Any, recorder: Recorder) -> None:
        self._task, self._recorder = task, recorder
        self._sketch: Sketch | None = None
        self._model: torch.nn.Module | None = None  # that is trained
        self._outputs: Outputs | None = None  # of it

    def measuring(self, model: torch.nn.Module, batch: Any) -> AbstractContextManager[None]:
        """Record the task's metrics of this rank's samples now and then, after the forward pass
        inside and before the update: for charts, and without a trace in the training.
        """
        recorder = self._recorder
        due = recorder.where.iteration % METRICS_EVERY == 0 and recorder.active
        if not due or not hasattr(self._task, "metrics"):
            return nullcontext()
        if self._outputs is None or self._model is not model:
            began = time.thread_time_ns()
            self._model, self._outputs = model, Outputs(unwrapped(model))
            recorder.lane("compute").count_cost(time.thread_time_ns() - began)
        return _Measuring(self, self._outputs, batch)

    def measure(self, outputs: Outputs, batch: Any) -> None:
        """Record the task's metrics of a batch whose forward pass is over, and what that took."""
        start, began = now(), time.thread_time_ns()
        lane = self.record(outputs.measure(self._task, batch), "minibatch", start)
        lane.count_cost(time.thread_time_ns() - began)

    def record(self, metrics: dict[str, float], split: str, start: int) -> Lane:
        """Record what the task measured since ``start``, of the "minibatch" or of "validation".
        Returns the lane.
        """
        recorder, end = self._recorder, now()
        lane, phase = recorder.lane("compute"), recorder.name(split)
        lane.context(where=recorder.where)
        for name, value in metrics.items():
            number, value = recorder.name(name), float(value)
            lane.write(METRIC, start, end, -1, -1, -1, -1, -1, number, phase, value)
            start = end  # the time is the first one's
        return lane

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
            lane.write(METRIC, moment, moment, chunk=j, name=name, value=value)


class _Measuring:
    """A forward pass whose outputs are measured after it. No generator: it is code that seldom
    runs, and all of it has to come from memory.
    """

    def __init__(self, metrics: Metrics, outputs: Outputs, batch: Any) -> None:
        self._metrics, self._outputs, self._batch = metrics, outputs, batch

    def __enter__(self) -> None:
        self._outputs.keep()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._outputs.stop()
        if kind is None:
            self._metrics.measure(self._outputs, self._batch)
