"""What a test leaves live is ended by tests/conftest.py, fails that test, and no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.live import PATIENCE, ROOT

LEAVERS = """
import workbench as wb
from tests.live import LONG, gone, lenet, training

pids = []

def test_fails_in_its_middle():
    run, team = wb.run(lenet(iterations=LONG, launcher="torchrun")), wb.ranks(2)
    pids.extend([*team.pids.values(), *training(run).pids.values()])
    assert run.done, "this is its middle"

def test_comes_next():
    assert not wb.runs() and gone(pids)
    assert wb.run(lenet(iterations=1)).wait(60).ok

def test_leaves_a_run_and_passes():
    pids.extend(training(wb.run(lenet(iterations=LONG))).pids.values())

def test_leaves_a_study_and_passes():
    wb.compare([lenet(iterations=LONG)], seeds=3)

def test_comes_last():
    assert not wb.runs() and gone(pids)
"""


def test_a_test_that_fails_in_its_middle_leaves_nothing_and_fails_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_leavers.py").write_text(LEAVERS)
    # A test run of its own, which the processes of this one are none of.
    # CI: where it is set, pytest's summary repeats each error whole.
    marks = "WORKBENCH_TEST_RUN", "PYTEST_XDIST_WORKER", "CI"
    others = {name: value for name, value in os.environ.items() if name not in marks}
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "tests.conftest", "-p", "no:nbval"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "test_leavers.py"],
        cwd=tmp_path,
        env={**others, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    each = re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)", done.stdout, re.M)
    assert sorted(each) == [
        ("ERROR", "fails_in_its_middle"),
        ("ERROR", "leaves_a_run_and_passes"),
        ("ERROR", "leaves_a_study_and_passes"),
        ("FAILED", "fails_in_its_middle"),
        ("PASSED", "comes_last"),
        ("PASSED", "comes_next"),
        ("PASSED", "leaves_a_run_and_passes"),
        ("PASSED", "leaves_a_study_and_passes"),
    ], done.stdout
    words = r"the test leaves live: \['Run\(data_parallel, lenet_digits, 2 ranks\), live for "
    assert len(re.findall(words + r".*launcher torchrun.*Ranks\(2\) ", done.stdout)) == 1
