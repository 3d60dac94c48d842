"""Files of a trace that another process writes, read while they grow: bounded reads, no map.

A process that touches a map of a file that has been cut off meanwhile is ended by a bus error; a
read says how many bytes there are. Missing bytes are an error that names the file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from workbench.recording.events import RECORD_BYTES
from workbench.shared_memory.ordering import fence
from workbench.store.regular_file import opened
from workbench.store.table import Records


class Pages:
    """The first ``nbytes`` of a file: a slice is a copy of what is there at that moment."""

    def __init__(self, path: Path, nbytes: int) -> None:
        """Open the file. Raises OSError where it cannot be read."""
        self._path, self._nbytes = path, nbytes
        self._file = _held(self, path)

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return os.fstat(self._file).st_size >= self._nbytes

    def __getitem__(self, part: slice, /) -> memoryview:
        """Read these bytes. Raises ValueError if they are not there any more."""
        start, stop, _ = part.indices(self._nbytes)
        data = os.pread(self._file, stop - start, start)
        fence()
        if len(data) < stop - start:
            raise _cut_off(self._path, self._nbytes, self._file)
        return memoryview(data)


class Growing:
    """A file of records that gets longer by a block at a time, read from its beginning on."""

    def __init__(self, path: Path, dtype: np.dtype[np.void], block: int) -> None:
        self._path, self._dtype, self._block = path, dtype, block
        self._position = 0
        self._file = -1  # it may come later than its reader

    def read(self) -> Iterator[Records]:
        """Yield copies of what is new, at most one block at a time.

        A record is valid if its number is its index + 1: where nothing is new, one record is read.
        Raises OSError; ValueError if what was read is not there any more.
        """
        if self._file < 0:
            try:
                self._file = _held(self, self._path)
            except FileNotFoundError:
                return
        while self._is_there():
            numbers = self._records(self._block - self._position % self._block)["seq"]
            there = numbers == np.arange(self._position + 1, self._position + len(numbers) + 1)
            # Once more, after the numbers: a record's number is written last.
            new = self._records(len(there) if there.all() else int(there.argmin()))
            self._position += len(new)
            yield new

    def _is_there(self) -> bool:
        """Return whether the next record has been written."""
        next_one = self._records(1)
        if len(next_one):
            return bool(next_one["seq"][0] == self._position + 1)
        nbytes = self._position * RECORD_BYTES
        if os.fstat(self._file).st_size < nbytes:
            raise _cut_off(self._path, nbytes, self._file)
        return False

    def _records(self, count: int) -> Records:
        """Return the next records, as many of them as the file has."""
        data = os.pread(self._file, count * RECORD_BYTES, self._position * RECORD_BYTES)
        fence()
        whole = bytearray(data[: len(data) // RECORD_BYTES * RECORD_BYTES])  # to be written to
        return np.frombuffer(whole, self._dtype)


def _held(owner: object, path: Path) -> int:
    """Open the file; the descriptor has its owner's lifetime."""
    with opened(path) as file:
        number = os.dup(file.fileno())
    weakref.finalize(owner, os.close, number)
    return number


def _cut_off(path: Path, nbytes: int, file: int) -> ValueError:
    size = os.fstat(file).st_size
    return ValueError(
        f"{path.name} has {size:,} bytes where {nbytes:,} were: it was cut off while it was read"
    )
