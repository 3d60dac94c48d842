"""``pad_compute``: computing that lasts a set time, so that a schedule shows on any machine.

The real computation runs inside the span and the rest is slept, spread over the layers: gradients
become ready one after the other, as they would on slower hardware, and communication can overlap.
Forward takes a third of the pad, backward two thirds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from workbench.events import now

AWAKE_NS = 120_000  # the kernel wakes a sleeper up to so late


def sleep_exactly(moment_ns: int) -> None:
    """To the microsecond where a core is free: the last of it awake, yielding to who wants it."""
    left = moment_ns - now() - AWAKE_NS
    if left > 0:
        time.sleep(left * 1e-9)
    while now() < moment_ns:
        os.sched_yield()


class Padding:
    """Hooks on the leaves of a model that sleep each layer's share.

    ``pad_ns``: forward and backward together.
    """

    def __init__(self, model: nn.Module, pad_ns: int) -> None:
        self._pad_ns = pad_ns
        self._start = self._length = self._parts = self._done = 0
        leaves = [module for module in model.modules() if not list(module.children())]
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._counts = len(leaves), len(parameters)
        for leaf in leaves:
            leaf.register_forward_hook(lambda *_: self._sleep(backward=False))
        for parameter in parameters:
            hook = parameter.register_post_accumulate_grad_hook  # torch gives it no types
            hook(lambda _: self._sleep(backward=True))  # type: ignore[no-untyped-call]
        self._backward = False

    @contextmanager
    def over(self, *, backward: bool) -> Iterator[Callable[[], float]]:
        """Pad what runs inside.

        Yields a function that says, afterwards, by how many ms it overran (0: not).
        """
        self._backward = backward
        self._start, self._done = now(), 0
        self._length = self._pad_ns * (2 if backward else 1) // 3
        self._parts = max(self._counts[backward], 1)
        late = 0.0
        yield lambda: late
        left = self._start + self._length - now()
        self._parts = 0
        if left > 0:
            time.sleep(left * 1e-9)
        else:
            late = -left / 1e6

    def _sleep(self, *, backward: bool) -> None:
        if not self._parts or backward != self._backward:
            return
        self._done += 1
        left = self._start + self._length * min(self._done, self._parts) // self._parts - now()
        if left > 0:
            time.sleep(left * 1e-9)
