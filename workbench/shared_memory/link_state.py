"""The emulation of a directed link at one moment, in numbers and in words."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from workbench.common.units import print_bandwidth, print_duration

SLOWEST = 1 << 62  # ps a byte: the most that a word of the control block holds


def ps_per_byte(bytes_per_second: float) -> int:
    """Return a bandwidth as picoseconds a byte; infinity, which is unlimited, is 0."""
    return round(min(1e12 / bytes_per_second, SLOWEST))


@dataclass
class LinkClocks:
    """Clocks of one rank's outgoing links: when each has sent what it was given, by its end.

    All groups of the rank share them, so that what they send over one link takes turns.
    """

    free_at: dict[int, int] = field(default_factory=dict)  # ns
    slowness: int = 0  # thousandths: of the slow motion in which these were set
    lock: threading.Lock = field(default_factory=threading.Lock)  # groups have threads of their own


@dataclass(frozen=True, slots=True)
class LinkState:
    """A directed link as it is now. ``ps_per_byte``: picoseconds a byte, 0 for unlimited."""

    latency_ns: int
    ps_per_byte: int
    down: bool

    @property
    def bandwidth(self) -> str:
        """The bandwidth as it was written, before conversion: "10 Mbit/s", "unlimited"."""
        rate = 1e12 / self.ps_per_byte if self.ps_per_byte else math.inf
        return print_bandwidth(float(f"{rate:.4g}"))

    @property
    def words(self) -> str:
        """The emulation in words: "20 ms, 10 Mbit/s", "cut", or "" of a link without."""
        latency = [print_duration(self.latency_ns)] if self.latency_ns else []
        bandwidth = [self.bandwidth] if self.ps_per_byte else []
        return "cut" if self.down else ", ".join(latency + bandwidth)


PLAIN = LinkState(0, 0, False)
