"""The clock of another host: what is estimated from exchanges, and a run over hosts whose clocks
differ by 1,000 s, which time namespaces make real.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.live import PATIENCE, over_in_the_end
from workbench import laws
from workbench.launchers.processes.host_clock import HostClock
from workbench.runs.launching import launch_in_words
from workbench.transports.peer_page import clock_identity

S = 1_000_000_000


def exchanged(clock: HostClock, offset: float, ppm: float, seconds: int, seed: int) -> list[int]:
    """Add an exchange every 0.1 s after a first hundred at once, over a wire of 30 µs and more each
    way; now and then one way takes milliseconds. Return the errors of the times between.
    """
    draw, errors, begin = random.Random(seed), list[int](), 77 * S
    moments = [begin + at * 200_000 for at in range(100)]
    moments += [begin + S // 10 * at for at in range(1, 10 * seconds)]
    for number, sent in enumerate(moments):
        there = sent + 30_000 + int(draw.expovariate(1 / 10_000))
        answered = there + 30_000 + int(draw.expovariate(1 / 10_000))
        if draw.random() < 0.3:
            answered += int(draw.expovariate(1 / 3e6))
        left = there + int(draw.expovariate(1 / 5_000))  # it does something else meanwhile
        arrived_there, left_there = (_clock_there(one, offset, ppm) for one in (there, left))
        clock.add(sent, arrived_there, left_there, answered + left - there)
        if number >= 100:
            here = sent + S // 20
            errors.append(abs(clock.here(_clock_there(here, offset, ppm)) - here))
    return errors


def _clock_there(here: float, offset: float, ppm: float) -> int:
    return round(here * (1 + ppm * 1e-6) + offset * S)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ppm", [0.0, 200.0, -200.0])
@pytest.mark.parametrize("offset", [10.0, -3600.0])
def test_offset_and_drift_are_estimated(offset: float, ppm: float, seed: int) -> None:
    clock = HostClock()
    errors = exchanged(clock, offset, ppm, 10, seed)
    assert max(errors[20:]) < 20_000, "20 µs, once drift is known"
    assert max(errors) < 150_000
    facts = clock.facts()
    assert facts["drift_ppm"] == pytest.approx(ppm, abs=10)
    assert 20_000 < facts["bound_ns"] < 60_000


def test_times_never_run_backwards_and_stay_what_they_were() -> None:
    """Also where estimates change while times are converted, and one by one as in an array."""
    clock, draw = HostClock(), random.Random(4)
    kept: list[tuple[int, int]] = []
    for at in range(600):
        here = 50 * S + at * S // 10
        wire = 30_000 + int(draw.expovariate(1 / 400_000))
        there = _clock_there(here + wire, 12.5, 150 if at < 300 else -150)
        clock.add(here, there, there, here + wire + 30_000 + int(draw.expovariate(1 / 400_000)))
        kept.append((there, clock.here(there)))
    moments = np.array([there for there, _ in kept])
    converted = clock.here(moments)
    assert (np.diff(converted) > 0).all()
    assert np.abs(converted - np.array([here for _, here in kept])).max() <= 1
    knots = clock.facts()["knots"]
    assert [there for there, _ in knots] == sorted(there for there, _ in knots)


def test_before_the_first_exchange_times_are_as_they_come() -> None:
    clock = HostClock()
    assert clock.ahead(5) == 0 and clock.here(5) == 5
    assert clock.here(np.array([5, 6])).tolist() == [5, 6]
    assert clock.facts()["exchanges"] == 0
    clock.add(10, 400, 400, 5)  # no clock runs like that
    assert clock.facts()["exchanges"] == 0


LAUNCHER = f"{Path(__file__).parent}/other_clock.py:Launcher"


@pytest.mark.full
def test_a_run_over_hosts_whose_clocks_differ() -> None:
    """No message ends before it began, the run is as long as it was, and errors are known."""
    possible = subprocess.run(["unshare", "--time", "true"], capture_output=True, check=False)
    if possible.returncode:
        pytest.skip(f"not run here: no time namespaces: {possible.stderr.decode().strip()}")
    exp = wb.Experiment(task="mlp_layers", ranks=2, iterations=12, batch_size=12, threads=1)
    exp = exp.replace(network=wb.Network(latency="2 ms"))  # a slot is stamped with its arrival
    exp = exp.replace(faults=wb.Freeze(rank=1, at_iteration=3, seconds=1))
    with over_in_the_end(wb.run(exp.replace(launcher=LAUNCHER))) as run:
        result = run.wait(PATIENCE)
    with over_in_the_end(wb.run(exp)) as other:
        assert result.losses == other.wait(PATIENCE).losses
    assert 0 < result.wall_seconds < 500, "not the difference of the clocks"
    events: Any = run.events
    assert events["end_ns"].max() - events["start_ns"].min() < 500 * S
    assert laws.check_events(events) == []
    sends = events.filter(kind="send").select("op", "step", "chunk", "slot", "peer", "start_ns")
    assert sends.height
    (rank, facts), *others = json.loads(run.store.metadata["clocks"]).items()
    assert (rank, others) == ("1", [])
    assert facts["exchanges"] >= 100 and facts["bound_ns"] < 100_000_000
    assert abs(facts["ahead_ns"] - 1000 * S) <= facts["bound_ns"]
    assert abs(facts["drift_ppm"]) <= 1000
    assert "the clock of rank 1 is +" in launch_in_words(run.store.metadata)
    per_rank = events.filter(pl.col("rank") >= 0).sort("lane", "seq")
    for _, lane in per_rank.group_by("rank", "lane"):
        assert (lane.sort("seq")["end_ns"].diff().drop_nulls() >= 0).all(), "no time runs back"


def test_processes_of_one_machine_read_one_clock() -> None:
    program = "from workbench.transports.peer_page import clock_identity as own; print(own())"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == clock_identity()
