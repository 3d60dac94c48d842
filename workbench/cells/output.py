"""A cell's printed output: ranks write it to pipes, the driver reads lines; both have a cap.

A rank that prints without end must neither fill a notebook nor stop: output beyond the cap is
counted and dropped.
"""

from __future__ import annotations

import codecs
import io
import os
import threading
import time

MOST_PRINTED = 100_000  # characters of a rank in one cell, output and errors each
MOST_IN_A_LINE = 5_000
READ_BYTES = 1 << 16


class Printer(io.TextIOBase):
    """A rank's sys.stdout or sys.stderr: lines go out whole."""

    def __init__(self, fd: int) -> None:
        self._fd, self._lock, self._waiting = fd, threading.RLock(), ""
        self.left, self.lost = MOST_PRINTED, 0

    encoding = "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, text: str) -> int:
        with self._lock:
            kept = text[: self.left]
            self.left -= len(kept)
            self.lost += len(text) - len(kept)
            self._waiting += kept
            if "\n" in kept or len(self._waiting) > READ_BYTES:
                self.flush()
        return len(text)

    def flush(self) -> None:
        with self._lock:
            data, self._waiting = self._waiting.encode("utf-8", "replace"), ""
            while data:
                data = data[os.write(self._fd, data) :]

    def begin(self) -> None:
        """Reset the limit on output for a new cell."""
        with self._lock:
            self.left, self.lost = MOST_PRINTED, 0


class Lines:
    """The driver's end of one pipe: ``read`` what is there, in whole lines."""

    def __init__(self, fd: int) -> None:
        self.fd, self.lost = fd, 0
        os.set_blocking(fd, False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left, self._partial, self._since = MOST_PRINTED, "", 0.0

    def begin(self) -> None:
        self._left, self.lost = MOST_PRINTED, 0

    def read(self, most: int = 64) -> tuple[list[str], bool]:
        """Read at most ``most`` pieces; return the lines, and False if the rank has gone.

        The limit keeps one loud rank from delaying the others.
        """
        lines: list[str] = []
        for _ in range(most):
            try:
                data = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return lines, True
            if not data:
                return lines, False
            lines += self._take(data)
        return lines, True

    def rest(self, patience: float = 0.0) -> list[str]:
        """Return a line without an end, if it is older than ``patience`` seconds."""
        if not self._partial or time.monotonic() - self._since < patience:
            return []
        partial, self._partial = self._partial, ""
        return [_as_seen(partial)]

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _take(self, data: bytes) -> list[str]:
        text = self._decode(data)
        kept = text[: self._left]
        self._left -= len(kept)
        self.lost += len(text) - len(kept)
        if not self._partial:
            self._since = time.monotonic()
        *lines, self._partial = (self._partial + kept).split("\n")
        return [_as_seen(line) for line in lines]


def _as_seen(line: str) -> str:
    """Return the last state of a progress bar, and the beginning of a very long line."""
    line = line.rstrip("\r").rpartition("\r")[2]
    more = len(line) - MOST_IN_A_LINE
    return line if more <= 0 else f"{line[:MOST_IN_A_LINE]}… ({more:,} more characters)"
