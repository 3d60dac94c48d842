"""Ranks that Open MPI's mpiexec starts, beside MPICH's (`make test-launchers`)."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.launchers.install import OPEN_MPI
from tests.launchers.test_other_launchers import (
    BARE,
    EVER,
    LAWS,
    SMALL,
    left_over,
    parent_of,
    wait_for,
)
from tests.launchers.test_other_launchers import mark as mark
from tests.processes import command
from workbench.common.errors import PeerLost
from workbench.launchers.mpiexec import flavor

PROGRAM = OPEN_MPI / "bin" / "mpiexec"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not PROGRAM.exists(), reason="no Open MPI: tests.launchers.install"),
]
OPTIONS: dict[str, Any] = {"launcher": "mpiexec", "launcher_options": {"program": str(PROGRAM)}}


@pytest.mark.parametrize("law", LAWS)
def test_losses_are_those_of_local_ranks(law: str, mark: str) -> None:
    assert flavor(str(PROGRAM)) == "openmpi"
    exp = wb.Experiment(**SMALL | LAWS[law])
    run = wb.run(exp.replace(**OPTIONS))
    result = run.wait(300)
    assert not left_over(mark)
    here = wb.run(exp).wait(120)
    assert result.losses == here.losses, "to the bit"
    assert result.bytes_sent == here.bytes_sent and run.dropped == 0
    launch = json.loads(run.store.metadata["launch"])
    assert str(PROGRAM) in launch["command"] and "--oversubscribe" in launch["command"]


def test_a_killed_rank_is_named_and_nothing_is_left(mark: str) -> None:
    run = wb.run(wb.Experiment(**SMALL | {"ranks": 2, "iterations": EVER} | OPTIONS))
    wait_for(lambda: run.iteration > 2 or run.done)
    run.kill(1)
    error = run.wait(120, check=False).error
    assert isinstance(error, PeerLost) and "rank 1" in str(error) and "SIGKILL" in str(error)
    assert not left_over(mark)


def test_a_killed_agent_is_named_by_its_rank(mark: str) -> None:
    run = wb.run(wb.Experiment(**SMALL | {"ranks": 2, "iterations": EVER} | OPTIONS))
    wait_for(lambda: run.iteration > 2 or run.done)
    os.kill(parent_of(run.pids[1]), signal.SIGKILL)
    error = run.wait(120, check=False).error
    assert error is not None and "rank 1" in str(error)
    assert not left_over(mark)


def test_a_script_that_it_starts_needs_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BARE)
    words = [str(PROGRAM), "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    done = command([*words, sys.executable, str(script)])
    assert sorted(done.stdout.split("\n"))[1:] == [f"{n} 2 1.0 {n} 2" for n in range(2)], done
