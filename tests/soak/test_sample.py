"""A short soak: one case of most kinds; and that what a soak looks for, it finds."""

from __future__ import annotations

import math
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pairwise import first
from tools.soak import soak as soak_module
from tools.soak.__main__ import MOST_GROWN
from tools.soak.held import held, settled
from tools.soak.soak import KINDS, Soak
from tools.soak.trend import trend
from workbench.recording.trace_memory import trace_segment
from workbench.store.event_store import Store

SEED = 1
DEAR = ("driver ended", "pool ended", "16 ranks")  # seconds each; a real soak has them
BUDGET = 25.0  # seconds; on a busy machine fewer cases are done


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For temporary files: what others leave in theirs is not ours."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.full
def test_a_short_soak_leaves_nothing_behind() -> None:
    soak = Soak(SEED)
    end = time.monotonic() + BUDGET
    for number, kind in enumerate(kind for kind in KINDS if kind not in DEAR):
        done = soak.case(number, kind, random.Random(f"{SEED}/{number}"))
        assert not done.wrong, f"{kind}, {done.words}:\n{done.wrong}"
        if time.monotonic() > end:
            break


@pytest.mark.parametrize(
    ("leak", "name"),
    first(
        1,
        [
            (lambda: os.memfd_create("workbench of a test"), "descriptor: workbench of a test"),
            (lambda: trace_segment("rank 7").memory, "mapping: workbench trace of rank N"),
            (lambda: _listener(), "ports that listen"),
            (Store, "object: Store"),
            (
                lambda: Path(tempfile.gettempdir(), "workbench-of-a-test").touch(),
                "temporary file: ",
            ),
        ],
    ),
)
def test_what_is_left_is_found(leak: Callable[[], Any], name: str) -> None:
    before = held()
    assert settled(before, 64, seconds=0) == {}
    kept = leak()
    leaks = settled(before, 64, seconds=0)
    assert any(one.startswith(name) for one in leaks), leaks
    if isinstance(kept, int):
        os.close(kept)


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.full
def test_a_thread_that_is_left_is_found() -> None:
    before, over = held(), threading.Event()
    thread = threading.Thread(target=over.wait, name="of a test 3")
    thread.start()
    assert settled(before, 64, seconds=0) == {"thread: of a test N": 1}
    over.set()
    thread.join()
    assert settled(before, 64) == {}


@pytest.mark.full
def test_a_case_that_hangs_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_module, "LIMIT", 0.2)
    monkeypatch.setitem(KINDS, "hangs", (lambda chance, say: time.sleep(300), 1))
    soak = Soak(0, _before=held())
    done = soak.case(0, "hangs", random.Random(0))
    assert done.seconds < 200 and "Hang: not over after 0 s" in done.wrong


def test_a_case_follows_from_seed_and_number() -> None:
    drawn = [(kind, chance.random()) for kind, chance in map(Soak(7).drawn, range(20))]
    assert drawn == [(kind, chance.random()) for kind, chance in map(Soak(7).drawn, range(20))]
    assert drawn != [(kind, chance.random()) for kind, chance in map(Soak(8).drawn, range(20))]
    assert len({kind for kind, _ in drawn}) > 5


_chance = random.Random(3)
NOISE = [100 + _chance.gauss(0, 2) for _ in range(300)]


@pytest.mark.parametrize(
    ("added", "grown"),  # to noise by case, and whether that is a leak
    [
        (lambda i: 0, False),
        (lambda i: 60 * (1 - math.exp(-i / 60)), False),
        (lambda i: 36 * (i > 220), False),
        (lambda i: i % 30, False),
        (lambda i: 0.1 * i, True),
        (lambda i: i // 10, True),  # a megabyte with every tenth
        (lambda i: 36 * (i > 220) + 0.15 * i, True),
        (lambda i: 10 * (i > 180) + 10 * (i > 260), True),  # whatever adds so much may come again
        (lambda i: 20 * (i // 40), True),  # with every case of a rare kind
        (lambda i: max(0, i - 225), True),
    ],
)
def test_a_leak_is_told_from_what_levels_off(added: Callable[[int], float], grown: bool) -> None:
    growth = trend([value + added(i) for i, value in enumerate(NOISE)])
    assert (growth.least > MOST_GROWN) == grown, growth


def test_a_trend_is_told_with_its_step() -> None:
    growth = trend([value + 0.2 * i + 50 * (i >= 240) for i, value in enumerate(NOISE)])
    assert abs(growth.slope - 0.2) < 0.03 and abs(growth.step - 50) < 3 and growth.at == 240
    assert growth.cases == 150 and "at once at value 240" in str(growth)
    gaps = [*NOISE]
    gaps[200:210] = [math.nan] * 10
    assert trend(gaps).cases == 145
    few = trend(NOISE[:60])
    assert few.least == 0 and "too few" in str(few)
