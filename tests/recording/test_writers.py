"""Rows that Python writes: by both writers the same bytes, however the fields are passed."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import numpy as np
import pytest

from workbench import native
from workbench.recording.events import DATA_AT, ROW
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment

# Interned, as keywords in code are.
FIELDS = [
    sys.intern(field)
    for field in "kind start end peer step chunk slot nbytes name phase value".split()
]
BOUNDS = {
    "kind": (0, 2**16 - 1),
    "peer": (-(2**15), 2**15 - 1),
    "step": (-(2**31), 2**31 - 1),
    "chunk": (-(2**31), 2**31 - 1),
    "slot": (-(2**31), 2**31 - 1),
    "start": (-(2**63), 2**63 - 1),
    "end": (-(2**63), 2**63 - 1),
    "nbytes": (-(2**63), 2**63 - 1),
    "name": (0, 2**16 - 1),
    "phase": (0, 2**16 - 1),
}
ROWS = 600  # so many that some are timed


def number(chance: random.Random, field: str) -> Any:
    if field == "value":
        return chance.choice((math.nan, -1.0, 0, chance.random()))
    low, high = BOUNDS[field]
    return chance.choice((low, high, max(low, -1), 0, 1, chance.randint(low, high)))


def written(mover: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of random rows, of which some fields are given by name and some not at all."""
    monkeypatch.setenv("WORKBENCH_MOVER", mover)
    chance, segment = random.Random(5), trace_segment("a test")
    lane = Recorder.into_segment(segment, 0).lane("compute")
    assert (lane.journal is not None) == (mover == "c")
    for _ in range(ROWS):
        count = chance.choice((3, 5, 8, len(FIELDS)))
        fields = [number(chance, field) for field in FIELDS[:count]]
        named = [field for field in FIELDS[count:] if chance.random() < 0.5]
        chance.shuffle(named)
        lane.write(*fields, **{field: number(chance, field) for field in named})
    return np.frombuffer(segment.memory, ROW, ROWS, DATA_AT).tobytes()


@pytest.mark.skipif(native.name() != "C", reason=native.reason())
def test_both_writers_write_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written("c", monkeypatch) == written("python", monkeypatch)


@pytest.mark.skipif(native.name() != "C", reason=native.reason())
@pytest.mark.parametrize("by_name", (False, True))
def test_what_does_not_fit_is_refused_and_no_row(by_name: bool) -> None:
    segment = trace_segment("a test")
    lane = Recorder.into_segment(segment, 0).lane("compute")
    good = dict.fromkeys(FIELDS, 1)
    wrong = {field: (low - 1, high + 1, "1") for field, (low, high) in BOUNDS.items()}
    for field, values in {**wrong, "value": ("1", None)}.items():
        for value in values:
            row = {**good, field: value}
            with pytest.raises((OverflowError, TypeError)):
                lane.write(**row) if by_name else lane.write(*row.values())
    assert not np.frombuffer(segment.memory, ROW, 1, DATA_AT)["seq"][0]
