"""The printed output of a run's ranks: it is passed on, up to a limit.

A function that prints in a loop would fill a notebook, a log or a disk. Output beyond the limit is
dropped, one message names the line that exceeded it, and the run goes on.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, TextIO

MOST = 1_000_000  # characters of a rank in one run, output and errors each


class Limited:
    """Stands for a rank's sys.stdout or sys.stderr."""

    def __init__(self, stream: TextIO, rank: int, most: int = MOST) -> None:
        self._stream, self._rank, self._most, self._left = stream, rank, most, most
        self._lock, self._has_warned = threading.RLock(), False

    def write(self, text: str) -> int:
        with self._lock:
            kept = text[: self._left]
            self._left -= len(kept)
            self._stream.write(kept)
            if len(kept) < len(text) and not self._has_warned:
                self._has_warned = True
                self._stream.write(f"\n{self._words(sys._getframe(1))}\n")
                self._stream.flush()
        return len(text)

    def _words(self, caller: Any) -> str:
        where = f"{os.path.basename(caller.f_code.co_filename)} line {caller.f_lineno}"
        return (
            f"[rank {self._rank}] has printed {self._most:,} characters, and goes on in "
            f"{caller.f_code.co_name} ({where}): the rest is thrown away"
        )

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
