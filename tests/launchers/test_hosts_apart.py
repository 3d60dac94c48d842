"""Two hosts that are network namespaces, with cables to the driver's: one is cut for 5 s, a host's
ranks are killed, the driver is; slow cables are kept busy (`make test-launchers`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.launchers.test_cut_off import whole
from tests.launchers.test_other_launchers import left_over, parent_of
from tests.launchers.test_other_launchers import mark as mark
from tests.live import until
from tests.processes import ROOT
from tools.benchmarks import hosts
from workbench import laws
from workbench.common.errors import PeerLost

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(hosts.missing()), reason=f"not run here: {hosts.missing()}"),
]
EXP: dict[str, Any] = {
    "task": "mlp_layers",
    "ranks": 4,
    "iterations": 1_000_000,
    "batch_size": 12,
    "threads": 1,
    "launcher": f"{hosts.__file__}:Launcher",
}


@pytest.fixture
def cables() -> Iterator[None]:
    with hosts.namespaces():
        yield


def begun() -> wb.Run:
    run = wb.run(wb.Experiment(**EXP))
    until(lambda: run.iteration > 2 or run.done)
    return run


def test_slow_cables_are_busy_as_long_as_an_all_reduce_lasts() -> None:
    """At 10 Mbit/s they take so long that neither processors nor their load matter: what is beyond
    theory is time in which a cable had nothing to carry.
    """
    with hosts.namespaces(mbit=10):
        for name, placement in (("ring", "in blocks"), ("hierarchical", "in turn")):
            spans, nbytes = hosts.seconds_of(
                name, placement, width=700, iterations=2, chunk_bytes=1 << 16
            )
            expected = hosts.by_theory(name, placement, nbytes, mbit=10)
            assert 0.95 < min(spans) / expected < 1.25, (name, spans, expected)


def test_a_host_whose_cable_is_cut_for_5_s(cables: None, mark: str) -> None:
    """Chunks go over the same cable: training waits, and goes on."""
    run = begun()
    subprocess.run(["ip", "link", "set", "wbo1", "down"], check=True)
    since = time.monotonic()
    until(lambda: len(run.control_state.cut_off) == 2 or run.done)
    assert dict(run.control_state.cut_off) == {2: "host 1", 3: "host 1"}
    time.sleep(max(0.0, since + 5 - time.monotonic()))
    subprocess.run(["ip", "link", "set", "wbo1", "up"], check=True)
    until(lambda: not run.control_state.cut_off or run.done)
    reached = run.iteration
    until(lambda: run.iteration > reached + 2 or run.done)
    run.stop()
    result = run.wait(120)
    assert result.ok and len(result.losses) > reached
    events = run.events
    assert run.dropped == 0 and whole(events) and laws.check_events(events) == []
    rows = events.filter(pl.col("name").is_in(["cut off", "back"]), pl.col("rank") == -1)
    named = {(peer, group, name) for peer, group, name in rows["peer", "group", "name"].rows()}
    for name in ("cut off", "back"):
        assert {(2, "host 1", name), (3, "host 1", name)} <= named
    until(lambda: not left_over(mark), 2)


def test_the_ranks_of_a_host_are_killed(cables: None, mark: str) -> None:
    run = begun()
    for rank in (2, 3):
        os.kill(run.pids[rank], signal.SIGKILL)
    error = run.wait(60, check=False).error
    assert isinstance(error, PeerLost) and error.rank in (2, 3) and "SIGKILL" in str(error)
    until(lambda: not left_over(mark), 2)


def test_an_agent_is_killed(cables: None, mark: str) -> None:
    run = begun()
    os.kill(parent_of(run.pids[3]), signal.SIGKILL)
    error = run.wait(60, check=False).error
    assert error is not None and "rank 3" in str(error)
    until(lambda: not left_over(mark), 2)


DRIVER = """
import time
import workbench as wb
run = wb.run(wb.Experiment(**{exp!r}))
while run.iteration < 3:
    time.sleep(0.02)
print("runs", flush=True)
time.sleep(600)
"""


def test_the_driver_is_killed(cables: None, mark: str) -> None:
    words = [sys.executable, "-c", DRIVER.format(exp=EXP)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == "runs\n"
        driver.kill()
    until(lambda: not left_over(mark), 2)
