"""How long a thread waits for a core: time that is nobody's computing."""

from __future__ import annotations

import os


class RunQueue:
    """How long the thread that made this has been ready to run without a core to run on.

    It says who is late through no fault of its own: where there are more ranks than cores.
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def ns(self) -> int:
        """Nanoseconds since the thread began; 0 where the kernel is silent. Takes half a
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
