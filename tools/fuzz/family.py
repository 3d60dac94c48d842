"""A family of inputs: how one is made of a seed's chances, and what must hold of the answer."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Family:
    """``make`` an input; ``judge`` raises if it is not answered in words, or rightly.

    An input is plain data, so that it can be kept: what makes it may change, the input does not.
    """

    make: Callable[[random.Random], Any]
    judge: Callable[[Any], None]


def keep(folder: Path, family: str, seed: int, case: Any) -> Path:
    """Write down an input that was not answered well; ``kept`` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{family}-{seed}.pickle"
    path.write_bytes(pickle.dumps((family, case)))
    return path


def kept(path: Path) -> tuple[str, Any]:
    """The family and the input of a file that ``keep`` wrote on this machine."""
    family, case = pickle.loads(path.read_bytes())
    return str(family), case
