"""Real ranks that time algorithms: what they tell, how they end, what happens when one dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import workbench as wb
from tests.live import crowding
from workbench.choosing.choose import choose
from workbench.choosing.costs import Links, load, place
from workbench.common.errors import SpecError, WorkbenchError
from workbench.studies.crossover import calibrate as module
from workbench.studies.crossover.timing_pool import TimingPool
from workbench.user_code.source import capture


@pytest.mark.timing
def test_paced_calls_take_what_their_links_ask_for() -> None:
    with TimingPool(2) as pool:
        quick = pool.seconds("all_reduce", "ring", 4096)
        pool.pace(Links(latency_s=20e-3))
        late = pool.rounds("all_reduce", "ring", 4096, calls=1, rounds=2)
        assert len(late) == 2 and min(late) >= 2 * 20e-3 > quick
        pool.pace(Links())
        assert pool.seconds("all_reduce", "ring", 4096) < 20e-3 * crowding()
        for operation, algorithm in (
            ("broadcast", "tree"),
            ("all_to_all", "pairwise"),
            ("barrier", "dissemination"),
            ("gather", "flat"),
        ):
            assert 0 < pool.seconds(operation, algorithm, 4096, rounds=1) < crowding()


def test_an_algorithm_that_raises_names_the_rank_and_the_crew_ends() -> None:
    def broken(comm, x):
        if comm.rank == 1:
            raise ValueError("not today")
        comm.recv(x, frm=1)

    with (
        pytest.raises(WorkbenchError, match=r"rank 1, all_reduce/broken.*not today"),
        TimingPool(2) as c,
    ):
        c.seconds("all_reduce", "broken", 64, source=capture(broken))


def test_a_rank_that_is_killed_is_named() -> None:
    began = time.monotonic()
    with pytest.raises(WorkbenchError, match="rank 1"), TimingPool(2) as pool:
        pool.pace(Links(latency_s=0.5))
        pid = pool.pids[1]
        threading.Timer(0.3, lambda: os.kill(pid, signal.SIGKILL)).start()
        pool.rounds("all_reduce", "ring", 4096, calls=20, rounds=3)
    assert time.monotonic() - began < 60, "all of its rounds take a minute"


def test_calibrating_keeps_what_auto_then_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_COSTS", str(tmp_path / "costs.json"))
    monkeypatch.setattr(module, "LARGEST", 1 << 18)
    calibration = wb.calibrate(ranks=(2,), operations=("all_reduce", "barrier"), progress=False)
    assert calibration.file == place() and load() == calibration.costs
    assert "measured on this machine" in load().source
    timed = {one.algorithm: one.seconds for one in calibration.points if one.nbytes == 1 << 18}
    chosen = choose("all_reduce", 2, 1 << 18, load())
    assert timed[chosen] <= 1.06 * min(timed.values())
    text = str(calibration)
    assert "auto, all_reduce, 2 ranks:" in text and str(place()) in text and "α" in text
    with pytest.raises(SpecError, match="ranks"):
        wb.calibrate(ranks=(1,))
    with pytest.raises(SpecError, match="rings"):
        wb.calibrate(operations=("rings",))
    monkeypatch.setenv("WORKBENCH_COSTS", "/proc/costs.json")
    monkeypatch.setattr(module, "TimingPool", None)  # nothing is timed in vain
    with pytest.raises(WorkbenchError, match=r"cannot write the measured costs to /proc/costs"):
        wb.calibrate(ranks=(2,), progress=False)
