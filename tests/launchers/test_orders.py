"""What a warm process, older than its orders, takes over of its driver: environment, limits."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from typing import Any

import pytest

import workbench as wb
from tests.live import ROOT, lenet
from workbench.launchers.processes.pool import warm_pool


def own_strategy(job: Any, config: Any) -> None:
    """Says by its loss what it finds in its environment."""
    import os
    import resource

    model = job.model()
    values = [
        int(os.environ.get("WORKBENCH_OF_A_TEST", "0")),
        int(os.environ.get("WORKBENCH_SPIN_US", "0")),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ]
    for minibatch in job.iterations():
        loss = job.forward(model, job.load(minibatch.ids))
        job.report(loss * 0 + values[minibatch.iteration], len(minibatch.ids))
    job.finish(model)


def reports() -> list[float]:
    run = wb.run(lenet(strategy=own_strategy, ranks=1, iterations=3, dtype="float64"))
    return list(run.wait(timeout=60).losses)


@pytest.mark.full
def test_ranks_have_the_environment_and_limits_of_their_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKBENCH_SPIN_US", "7")
    wb.shutdown()
    first = reports()
    assert first[:2] == [0, 7]
    home = warm_pool()
    monkeypatch.setenv("WORKBENCH_OF_A_TEST", "5")
    monkeypatch.delenv("WORKBENCH_SPIN_US")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        assert reports() == [5, 0, 500]
        with contextlib.closing(wb.ranks(1)) as team:
            cell = "import os; os.environ['WORKBENCH_OF_A_TEST'], 'WORKBENCH_SPIN_US' in os.environ"
            assert team.execute(cell).check().values == {0: "('5', False)"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    monkeypatch.setenv("WORKBENCH_OF_A_TEST", "6")
    assert reports() == [6, 0, first[2]] and warm_pool() is home


SCRIPT = """
import resource, sys
import workbench as wb
from tests.live import lenet
exp = lenet(ranks=4)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
check = lambda: wb.check("all_reduce", "ring", ranks=4)
for start in (lambda: wb.run(exp), lambda: wb.ranks(4), check):
    try:
        start()
    except wb.WorkbenchError as error:
        print(error)
    else:
        print("it started")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "limit", [20, *(pytest.param(few, marks=pytest.mark.full) for few in (12, 40))]
)
def test_too_few_open_files_are_said_with_what_to_do(limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout + done.stderr
    for line in lines:
        assert line.startswith("4 ranks cannot start: this process, or each of them, needs about ")
        assert f"the limit is {limit}, and " in line and "`ulimit -n 1024` before Python" in line
        assert "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))" in line


def opens_files(job: Any, config: Any) -> None:
    """Opens more files than it may."""
    import os

    job.finish([os.open("/dev/null", os.O_RDONLY) for _ in range(10_000)])


def test_a_rank_with_too_many_open_files_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
    try:
        error = wb.run(lenet(strategy=opens_files)).wait(timeout=60, check=False).error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "may have no more open files: the limit is 600. Raise it" in str(error)
