"""The time that a thread waits for a core."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection, Mapping

# Of each thread: ns on a core; ns ready to run without one, up to when it last got one; runs it, or
# would it if it had one?
Times = Mapping[int, tuple[int, int, bool]]
LOOK = 0.2  # seconds between two looks at processes


class RunQueue:
    """The time that the creating thread has been ready to run without a core.

    It says which rank is late through no fault of its own: where there are more ranks than cores.
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def ns(self) -> int:
        """Return nanoseconds since the thread began; 0 where the kernel does not say. Takes half a
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


def thread_times(pid: int) -> Times:
    """Read the kernel's figures of each thread of a process; none if it has ended."""
    result = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    on, ready, *_ = file.read().split()
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
                result[int(thread)] = int(on), int(ready), state == b"R"
    return result


def busiest(before: Times, after: Times, passed_ns: int) -> tuple[int, int]:
    """Return nanoseconds between two readings, ``passed_ns`` apart: the most that any thread had a
    core, and was ready without one. A thread without any core in all that time has waited for one.
    """
    most_on = most_ready = 0
    for thread, (on, ready, runnable) in after.items():
        on_before, ready_before, _ = before.get(thread, (0, 0, False))
        starved = runnable and on == on_before
        most_on = max(most_on, on - on_before)
        most_ready = max(most_ready, passed_ns if starved else ready - ready_before)
    return most_on, most_ready


def others_share(seconds: float) -> float:
    """Measure the share of this machine's cores that others, or its hypervisor, keep busy while
    this process sleeps for so long; NaN where the kernel does not say.
    """
    before = _ticks()
    time.sleep(seconds)
    spent = [b - a for a, b in zip(before, _ticks(), strict=True)]
    idle = sum(spent[3:5])  # idle, and waiting for a disk
    return 1 - idle / sum(spent) if sum(spent) else math.nan


def _ticks() -> list[int]:
    """Read the ticks of all cores: user, nice, system, idle, disk, interrupts, soft interrupts,
    stolen.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="utf-8") as file:
        return [int(word) for word in file.readline().split()[1:9]]
    return [0] * 8


class OwnTime:
    """Seconds that processes had for themselves, for time limits that a busy machine does not miss.

    While one of them is ready to run and has no core, only the running time of the busiest counts:
    a process that does nothing, or computes without end, reaches its limit on any machine.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self._pids, self._seconds = pids, 0.0
        self._at = time.monotonic()
        self._times: dict[int, Times] = {}  # what is over at once is not looked at

    @property
    def seconds(self) -> float:
        """So far. Ask several times per second: it looks again from one time to the next."""
        moment = time.monotonic()
        if (passed := moment - self._at) >= LOOK:
            after = {pid: thread_times(pid) for pid in self._pids}
            ns = int(passed * 1e9)
            spent = [busiest(times, after[pid], ns) for pid, times in self._times.items()]
            on = max((one for one, _ in spent), default=0) * 1e-9
            ready = max((one for _, one in spent), default=0) * 1e-9
            self._seconds += min(passed, max(on, passed - ready))
            self._at, self._times = moment, after
        return self._seconds
