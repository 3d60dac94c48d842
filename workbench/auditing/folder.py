"""Messages between the driver and the ranks of an audit: files in a private folder.

A message is a tree of dictionaries, lists, texts, numbers and float64 arrays: a line of JSON, then
the arrays' bytes. It appears whole or not at all. The driver holds a lock on ``alive``: where a
rank can take that lock, the driver has ended, and so must the rank.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "WORKBENCH_AUDIT"  # names the folder, in the environment of ranks
ALIVE, OVER = "alive", "over"
ENDED = "ended"  # the message with the exit status of each rank
_ARRAY = "\0array"


def write(path: Path, message: Any) -> None:
    """Write a message; a reader of ``path`` sees all of it."""
    arrays: list[np.ndarray] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value, dtype=np.float64))
            return {_ARRAY: [len(arrays) - 1, *value.shape]}
        if isinstance(value, dict):
            return {str(name): plain(one) for name, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple | set) else value

    head = json.dumps(plain(message)).encode()
    partial = path.with_name(f"{path.name}~{os.getpid()}")
    with partial.open("wb") as file:
        file.write(head + b"\n")
        file.writelines(one.data for one in arrays if one.size)
    partial.replace(path)


def read(path: Path) -> Any:
    """Return the message of a file."""
    whole = path.read_bytes()
    end = whole.index(b"\n")
    sizes: dict[int, tuple[int, ...]] = {}

    def shapes(node: dict[str, Any]) -> dict[str, Any]:
        if _ARRAY in node:
            number, *shape = node[_ARRAY]
            sizes[number] = tuple(shape)
        return node

    tree = json.loads(whole[:end], object_hook=shapes)
    arrays, at = [], end + 1
    for number in range(len(sizes)):
        count = int(np.prod(sizes[number], dtype=np.int64))
        flat = np.frombuffer(whole, np.float64, count, at)
        arrays.append(flat.reshape(sizes[number]))
        at += 8 * count

    def whole_again(value: Any) -> Any:
        if isinstance(value, dict):
            if _ARRAY in value:
                return arrays[value[_ARRAY][0]]
            return {name: whole_again(one) for name, one in value.items()}
        return [whole_again(one) for one in value] if isinstance(value, list) else value

    return whole_again(tree)


def wait_for(path: Path, seconds: float, goes_on: Callable[[], bool] = lambda: True) -> bool:
    """Wait until ``path`` exists, for so long at most and while ``goes_on()``; return whether it
    does.
    """
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until or not goes_on():
            return path.exists()
        time.sleep(0.003)
    return True


def hold(folder: Path) -> int:
    """Return the descriptor by which the driver says that it lives."""
    descriptor = os.open(folder / ALIVE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


class Driver:
    """The driver as its ranks see it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._looked = folder, 0.0

    @property
    def goes_on(self) -> bool:
        """Whether it lives, and wants more; looked up four times per second at most."""
        if time.monotonic() < self._looked + 0.25:
            return True
        self._looked = time.monotonic()
        if (self._folder / OVER).exists():
            return False
        try:
            descriptor = os.open(self._folder / ALIVE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False
