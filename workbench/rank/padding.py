"""``pad_compute``: computing that lasts a set time, so that a schedule shows on any machine.

The real computation runs inside the span and the rest is slept, spread over the layers: gradients
become ready one after the other, as they would on slower hardware, and communication can overlap.
Forward takes a third of the pad, backward two thirds.

A pad is overrun where what runs in it takes longer, or where its rank gets no core when it is due.
That happens on any busy machine: it is a mark in the event table (``metric``, "pad overrun", value:
ms too long), which a page counts in a badge, and its iteration is left out of what is measured
against a plan. A pipeline's run ends with PadOverrun only where the median of a rank's computing
does not fit: then the pads are too short, whatever else the machine does. Elsewhere no plan is made
of pads, and marks are all.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from torch import nn

from workbench.common.errors import PadOverrun
from workbench.experiment.spec import Experiment, Pads
from workbench.recording.events import now

AWAKE_NS = 120_000  # the kernel wakes a sleeper up to so late
LATE_NS, LATE_SHARE = 500_000, 0.05  # later than that, of a pad, is an overrun
FEWEST = 24  # pads of a kind after which a rank may say that they are too short
FEWEST_AT_THE_END = 8  # of a run that has no more of them
KEPT = 240  # newest ones of a kind that the median is of
_PADS = {"F": "forward", "I": "input_gradient", "W": "weight_gradient"}
_WORDS = {
    "F": "forward",
    "I": "input gradient",
    "W": "weight gradient",
    "B": "whole backward",
}


def sleep_exactly(moment_ns: int) -> None:
    """Sleep to the microsecond where a core is free: the last of it awake, yielding to other
    threads.
    """
    left = moment_ns - now() - AWAKE_NS
    if left > 0:
        time.sleep(left * 1e-9)
    while now() < moment_ns:
        os.sched_yield()


def overrun_ms(due_ns: int, pad_ns: int) -> float:
    """Return by how many ms a pad that ends now is too long; 0: not worth a mark."""
    late = now() - due_ns
    return late / 1e6 if late > max(LATE_NS, LATE_SHARE * pad_ns) else 0.0


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
        due = self._start + self._length
        self._parts = 0
        if (left := due - now()) > 0:
            time.sleep(left * 1e-9)
        late = overrun_ms(due, self._length)

    def _sleep(self, *, backward: bool) -> None:
        if not self._parts or backward != self._backward:
            return
        self._done += 1
        left = self._start + self._length * min(self._done, self._parts) // self._parts - now()
        if left > 0:
            time.sleep(left * 1e-9)


class Computed:
    """The times of a rank's computation in its pads, by kind: F, I, W or B, as in a schedule.

    Processor time, in which waiting for a core is not counted. What the hypervisor took from this
    machine meanwhile is taken off again: a thread's clock may run on in it.
    """

    def __init__(self, exp: Experiment, rank: int) -> None:
        self._exp, self._rank = exp, rank
        self._took: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._pad_ns: dict[str, int] = {}
        self._counts: dict[str, int] = defaultdict(int)
        self._stolen = Stolen()

    def add(self, kind: str, took_ns: int, pad_ns: int) -> None:
        """Note one pad. Raises PadOverrun if the median of its kind is now longer than the pad."""
        self._took[kind].append(took_ns)
        self._pad_ns[kind] = pad_ns
        self._counts[kind] += 1
        if self._counts[kind] % FEWEST == 0:
            self._check(kind)

    def check(self) -> None:
        """Check all kinds, once no more pads come. Raises PadOverrun."""
        for kind, count in self._counts.items():
            if count >= FEWEST_AT_THE_END:
                self._check(kind)

    def _check(self, kind: str) -> None:
        took, pad_ns = self._took[kind], self._pad_ns[kind]
        if (middle := median(took)) <= pad_ns:
            return
        share = 1 - self._stolen.share()
        if middle * share <= pad_ns:
            return
        raise PadOverrun(
            f"rank {self._rank} computes for {middle * share / 1e6:.3g} ms in a {_WORDS[kind]} "
            f"that is padded to {pad_ns / 1e6:g} ms (the median of {len(took)}): a pad must be "
            f"longer than its computation. {self._remedy(kind, quantiles(took, n=10)[-1] * share)} "
            "would do; or take more microbatches, or a smaller model"
        )

    def _remedy(self, kind: str, most_ns: float) -> str:
        """Return a pad that holds nine in ten of them with room to spare, as it is written."""
        pads = self._exp.pad_compute
        if kind == "B":  # it has the pads of input and weight gradient
            most_ns /= 2
        text = f"{_rounded_up(1.5 * most_ns / 1e6):g} ms"
        if not isinstance(pads, Pads):
            return f'pad_compute="{text}"'
        names = [_PADS[kind]] if kind in _PADS else [_PADS["I"], _PADS["W"]]
        return "Pads(" + ", ".join(f'{name}="{text}"' for name in names) + ")"


def _rounded_up(ms: float) -> float:
    """Round up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(ms)) - 1)
    return float(f"{math.ceil(ms / unit) * unit:.2g}")


class Stolen:
    """The time that others on the same hardware took from this machine since this was created."""

    def __init__(self) -> None:
        self._before = self._read()

    def share(self) -> float:
        """Return the stolen share of the time in which its cores had work; 0 where no hypervisor
        reports it.
        """
        busy, stolen = (b - a for a, b in zip(self._before, self._read(), strict=True))
        return stolen / (busy + stolen) if stolen > 0 else 0.0

    @staticmethod
    def _read() -> tuple[int, int]:
        """Read the ticks of all cores: at work, and stolen."""
        try:
            with open("/proc/stat", encoding="utf-8") as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
            user, nice, system, _, _, interrupts, soft, stolen = ticks
        except (OSError, ValueError):
            return 0, 0
        return user + nice + system + interrupts + soft, stolen
