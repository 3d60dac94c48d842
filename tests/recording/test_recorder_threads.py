"""Threads of a rank that meet in its recorder: each lane is made once, in a place of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.recording import recorder as recorders
from workbench.recording.recorder import Recorder

LANES = ("send", "recv", "compute")


def test_lanes_that_threads_make_at_once_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    map_block = recorders.map_block

    def slowly(*args: Any) -> memoryview:  # as it is where memory is short
        time.sleep(1e-3)
        return map_block(*args)

    monkeypatch.setattr(recorders, "map_block", slowly)
    for turn in range(5):
        recorder = Recorder.into_folder(tmp_path / str(turn), 0)
        begin = threading.Barrier(6)
        indices: list[dict[str, int]] = []

        def make(
            first: int,
            recorder: Recorder = recorder,
            begin: threading.Barrier = begin,
            indices: list[dict[str, int]] = indices,
        ) -> None:
            begin.wait(10)
            order = [LANES[(first + n) % len(LANES)] for n in range(len(LANES))]
            indices.append({name: recorder.lane(name).index for name in order})

        threads = [threading.Thread(target=make, args=(first,)) for first in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(indices) == 6
        assert all(one == indices[0] for one in indices)
        assert sorted(indices[0].values()) == [0, 1, 2]
