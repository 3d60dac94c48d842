"""Moments at which operations on a GPU began and ended, by CUDA events: the device runs them
later than they are called.

An event that was recorded at a known moment of the host's clock gives every other one its moment.
It is recorded again every second, on a stream of its own, since the two clocks drift apart.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from workbench.attaching.spans import Span
from workbench.recording.events import now

PERIOD_S = 0.02  # between two looks at which operations the device has finished
RENEWED_NS = 1_000_000_000
_cuda: Any = torch.cuda  # half of it carries no types


def measured(span: Span, start: Callable[[], Any], asynchronous: bool) -> Any:
    """Call ``start``, which begins an operation on the current device; the span ends by itself when
    the device has finished it. Returns the operation's handle.
    """
    clock, began = _clock(), _event()
    try:
        work = start()
        if work is not None and not asynchronous:
            work.wait()  # of the current stream, not of this thread
            work = None
    except BaseException:
        span.end()
        raise
    if work is None:
        clock.watch(span, began, _event())
        return None
    # Called at once, with a current stream that comes after the operation's.
    work.get_future().add_done_callback(lambda _: clock.watch(span, began, _event()))
    return work


def finish(seconds: float) -> None:
    """Wait, so long at most, until the operations that were called so far have their rows."""
    deadline = time.monotonic() + seconds
    while any(clock.busy for clock in _clocks.values()) and time.monotonic() < deadline:
        time.sleep(1e-3)


def _event() -> Any:
    event = _cuda.Event(enable_timing=True)
    event.record()
    return event


class _Clock:
    """Ends spans of one device as the device finishes them, on a thread."""

    def __init__(self, device: int) -> None:
        self._device, self._stream = device, _cuda.Stream(device)
        self._waiting: deque[tuple[Span, Any, Any, tuple[Any, int]]] = deque()
        self._zero = self._known_moment()
        threading.Thread(target=self._look, daemon=True, name="workbench device time").start()

    def watch(self, span: Span, began: Any, ended: Any) -> None:
        """End the span once the device has come to the event ``ended``."""
        self._waiting.append((span, began, ended, self._zero))

    def _known_moment(self) -> tuple[Any, int]:
        """Return an event, and the moment at which the device came to it."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            event = _event()
            event.synchronize()
        return event, now()

    @property
    def busy(self) -> bool:
        """Return whether a span that is watched has not ended."""
        return bool(self._waiting)

    def _look(self) -> None:
        while True:
            time.sleep(PERIOD_S)
            for _ in range(len(self._waiting)):
                span, began, ended, zero = self._waiting[0]
                if ended.query():
                    event, moment = zero
                    start = moment + int(event.elapsed_time(began) * 1e6)
                    span.end(start, max(start, moment + int(event.elapsed_time(ended) * 1e6)))
                else:
                    self._waiting.append(self._waiting[0])
                self._waiting.popleft()  # last: until then it counts as under way
            if now() - self._zero[1] > RENEWED_NS:
                self._zero = self._known_moment()


_clocks: dict[int, _Clock] = {}


def _clock() -> _Clock:
    device = torch.cuda.current_device()
    if device not in _clocks:
        _clocks[device] = _Clock(device)
    return _clocks[device]
