"""A run without faults raises no alarm, however busy its machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet

RUNS = 200
CASES: list[dict[str, Any]] = [
    {"strategy": "data_parallel", "ranks": 4, "recovery": "shrink"},
    {"strategy": "data_parallel", "ranks": 3, "bad_minibatch": "skip", "digest_every": 3},
    {"strategy": "ddp", "ranks": 4, "recovery": "replace"},
    {"strategy": "fusion", "ranks": 3},
    {"strategy": "local_sgd", "ranks": 4, "recovery": "shrink"},
    {"strategy": "gossip", "ranks": 4, "recovery": "replace"},
    {"strategy": "parameter_server", "ranks": 4},
    {"strategy": "pipeline", "ranks": 2},
    {"strategy": "fsdp", "ranks": 3},
]


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with other work, twice."""
    code = "import os\nwhile os.getppid() == int(os.environ['PARENT']): sum(range(100_000))"
    environment = {**os.environ, "PARENT": str(os.getpid())}
    others = [
        subprocess.Popen([sys.executable, "-c", code], env=environment)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def alarms(run: wb.Run) -> list[tuple[Any, ...]]:
    """Return what was noticed, but for a peer's being late, which is so on a busy machine."""
    p = pl.col
    rows = run.events.with_columns(p("kind", "name").cast(pl.String))
    detections = rows.filter(p("kind") == "detect", ~p("name").str.starts_with("late"))
    return detections.select("rank", "peer", "name", "value", "iteration", "generation").rows()


def quiet_runs(count: int) -> list[str]:
    """Do so many runs, one after the other, and return every alarm in words."""
    words = []
    for number in range(count):
        exp = lenet(**CASES[number % len(CASES)], iterations=8, seed=number, timeout="60 s")
        run = wb.run(exp)
        result = run.wait(timeout=300, check=False)
        notices = alarms(run)
        if notices or not result.ok or run.dropped or result.lost:
            words.append(f"run {number}, {exp.strategy}: {notices} {result.error}")
    return words


@pytest.mark.full
def test_some_runs_on_a_busy_machine_raise_no_alarm() -> None:
    with busy_cores():
        assert quiet_runs(3) == []


@pytest.mark.full
def test_two_hundred_runs_on_a_busy_machine_raise_no_alarm() -> None:
    with busy_cores():
        assert quiet_runs(RUNS) == []


def test_an_alarm_would_be_seen() -> None:
    run = wb.run(lenet(ranks=3, recovery="shrink", faults=wb.Kill(rank=1, at_iteration=2)))
    run.wait(timeout=90)
    assert [(peer, name) for _, peer, name, *_ in alarms(run)] == [(1, "killed")]
