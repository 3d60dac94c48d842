"""Computation of a rank, recorded: padded to a set time, slowed where the experiment says so, each
span with the time that it waited for a core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch

from workbench.experiment.spec import Experiment
from workbench.rank.padding import Computed, Padding, overrun_ms, sleep_exactly
from workbench.recording.events import BACKWARD, CODE, FORWARD, OVERRUN, now
from workbench.recording.recorder import Recorder, Span
from workbench.recording.run_queue import RunQueue
from workbench.shared_memory.control_block import SLOW, Control


class Computing:
    """The spans of computation of one rank."""

    def __init__(
        self,
        exp: Experiment,
        rank: int,
        device: torch.device,
        recorder: Recorder,
        control: Control,
    ) -> None:
        self.run_queue = RunQueue()  # of the thread that computes
        self.jitter = 1.0  # of this iteration: how many times as long it takes
        self._exp, self._rank, self._device = exp, rank, device
        self._recorder, self._control = recorder, control
        self._padding: Padding | None = None
        self._actions = Computed(exp, rank)

    def pad(self, model: torch.nn.Module) -> None:
        """Pad this model's passes from now on, if the experiment says so."""
        if self._exp.pad_compute_ns:
            self._padding = Padding(model, self._exp.pad_compute_ns)

    def check(self) -> None:
        """Raise PadOverrun where the median of padded actions was longer than their pad."""
        self._actions.check()

    def row(self, kind: int, name: str = "") -> AbstractContextManager[None]:
        """Write one row of ``kind``; its ``value``: nanoseconds of it spent waiting for a core."""
        return _Row(self._recorder, self.run_queue, kind, name)

    def span(self, kind: int, name: str = "") -> AbstractContextManager[None]:
        """Record one span of computation, as long as it takes."""
        return _Row(self._recorder, self.run_queue, kind, name, self._finish)

    def _finish(self, start: int) -> None:
        """End a computation that began at ``start``."""
        self._synchronize()
        self.stretch(start)

    @contextmanager
    def action(self, kind: int, action: str, pad_ns: int, name: str = "") -> Iterator[None]:
        """Record one action of a schedule (F, I, W or B), slept up to ``pad_ns``."""
        with self.row(kind, name):
            start, busy = now(), time.thread_time_ns()
            yield
            self._synchronize()
            self._actions.add(action, time.thread_time_ns() - busy, pad_ns)
            due = start + pad_ns
            if now() < due:
                sleep_exactly(due)
            self._mark_overrun(overrun_ms(due, pad_ns))
            self.stretch(start)

    def model_pass(self, *, backward: bool) -> AbstractContextManager[None]:
        """Record a forward or backward pass of the whole model, its pad spread over the layers."""
        span, padding = self.span(BACKWARD if backward else FORWARD), self._padding
        return span if padding is None else self._padded(span, padding, backward)

    @contextmanager
    def _padded(
        self, span: AbstractContextManager[None], padding: Padding, backward: bool
    ) -> Iterator[None]:
        with span:
            with padding.over(backward=backward) as overrun:
                yield
            self._mark_overrun(overrun())

    def backward(self, loss: torch.Tensor, weight: float = 1.0) -> None:
        """Compute the gradients of ``weight`` times the loss, recorded until the last is there."""
        plain = weight == 1.0 or loss.numel() != 1  # torch says that a loss must be one number
        with ExitStack() as computing:
            computing.enter_context(self.model_pass(backward=True))

            def begin(gradient: torch.Tensor) -> torch.Tensor | None:
                # Callbacks run in the order they were queued in, DDP's own waiting after this.
                _when_computed(computing.close)
                # Given to `loss.backward`, it would have torch import SymPy: 0.2 s. What comes is
                # 1, but in an audit, which switches losses off.
                return None if plain else gradient * weight

            loss.register_hook(begin)  # type: ignore[no-untyped-call]
            loss.backward()  # type: ignore[no-untyped-call]

    def stretch(self, start: int) -> None:
        """Extend a slow rank's span, which began at ``start``, by its factor."""
        factor = self.jitter * self._control.rank_word(self._rank, SLOW) / 1000
        if factor > 1:
            time.sleep((factor - 1) * (now() - start) * 1e-9)

    def _mark_overrun(self, ms: float) -> None:
        if ms:
            self._recorder.mark(CODE["metric"], OVERRUN, value=ms)

    def _synchronize(self) -> None:
        """Wait for the device: else a span ends before its work does."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()


class _Row(Span):
    """One row of computation. ``finish``, if given, is called where it did not fail, before it
    ends, with its start.
    """

    def __init__(
        self,
        recorder: Recorder,
        queue: RunQueue,
        kind: int,
        name: str,
        finish: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(recorder, kind, "compute", name)
        self._queue, self._finish, self._waited = queue, finish, 0

    def value(self) -> float:
        return float(self._queue.ns() - self._waited)

    def __enter__(self) -> None:
        super().__enter__()
        self._waited = self._queue.ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if self._finish is not None and kind is None:
                self._finish(self.start)
        finally:
            super().__exit__(kind, error, trace)


def _when_computed(call: Callable[[], None]) -> None:
    """Call ``call`` in the backward pass, once its last gradient is there."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
