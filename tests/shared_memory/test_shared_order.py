"""Where stores may be seen in another order, nothing that stands on their order begins."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.common.errors import WorkbenchError
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment
from workbench.store.collector import Collector
from workbench.store.event_store import Store
from workbench.store.trace_follower import Follower
from workbench.transports.peer_page import Board

STANDS_ON_IT: dict[str, Callable[[Path], object]] = {
    "segment": lambda _: Segment.create(4096, "a test"),
    "control": lambda _: Control.create(2),
    "board": lambda _: Board.create(2),
    "trace": lambda folder: Recorder.into_folder(folder, 0),
    "collector": lambda _: Collector(Store(), {}),
    "follower": lambda folder: Follower(Store(), folder),
}


@pytest.mark.parametrize("machine", ["aarch64", "ppc64le", "riscv64", ""])
@pytest.mark.parametrize("what", STANDS_ON_IT)
def test_other_machines_are_refused_in_words(
    what: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(WorkbenchError, match=f"this one is {machine or 'unknown'}.*x86-64"):
        STANDS_ON_IT[what](tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
@pytest.mark.parametrize("what", STANDS_ON_IT)
def test_this_one_is_not(
    what: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    STANDS_ON_IT[what](tmp_path)
