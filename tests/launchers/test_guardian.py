"""Nothing of the pool outlives its driver, and nothing of a rank its rank: whatever it has become.

The drivers here are real scripts, and what must end with them is frozen, has left its session, or
lost its parent; none of that asks how busy the machine is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.conftest import processes
from tests.live import gone, lenet, script, training, until
from workbench.launchers.processes.pool import warm_pool
from workbench.shared_memory.segments import process_state

SECONDS = 10.0  # for what ends in hundredths of one where nothing else runs
LEAVES = """
import json, os, signal, subprocess, time
def sleeper():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
    os._exit(0)
def children():
    fork = os.fork()
    if not fork:
        sleeper()
    session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    read, write = os.pipe()
    between = os.fork()
    if not between:
        os.setsid()
        again = os.fork()
        if not again:
            sleeper()
        os.write(write, str(again).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pids = [fork, session.pid, int(os.read(read, 20))]
    os.close(read)
    os.close(write)
    return pids
"""


def alive(pids: list[int]) -> bool:
    return all(process_state(pid) not in "ZX" for pid in pids)


@pytest.fixture
def team() -> Iterator[wb.Ranks]:
    team = wb.ranks(2)
    yield team
    team.close()


def test_what_a_rank_starts_ends_with_it(team: wb.Ranks) -> None:
    result = team.execute(LEAVES + "children()")
    pids = {rank: json.loads(value) for rank, value in result.check().values.items()}
    assert len({*pids[0], *pids[1]}) == 6 and alive([*pids[0], *pids[1]])
    os.kill(pids[1][0], signal.SIGSTOP)
    os.kill(team.pids[1], signal.SIGKILL)
    until(lambda: gone(pids[1]), SECONDS, "the end of what rank 1 had started")
    assert alive(pids[0])  # its rank lives
    team.close()
    until(lambda: gone(pids[0]), SECONDS, "the end of what rank 0 had started")


def own_strategy(job: Any, config: Any) -> None:
    """Starts a process that outlives it, and says its number by the loss."""
    model = job.model()
    for minibatch in job.iterations():
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        job.report(job.forward(model, job.load(minibatch.ids)) * 0 + child.pid, len(minibatch.ids))
    job.finish(model)


def test_what_a_runs_ranks_start_ends_with_the_run() -> None:
    result = wb.run(lenet(strategy=own_strategy, ranks=1, iterations=1)).wait(timeout=60)
    pid = round(result.losses[0])
    until(lambda: gone([pid]), SECONDS, "the end of what the rank had started")


def test_a_fork_in_a_cell_ends_where_the_cell_does(team: wb.Ranks) -> None:
    team.execute("import os").check()
    before = set(processes())
    result = team.execute("child = os.fork(); print('here'); rank")
    assert result.check().values == {0: "0", 1: "1"}
    until(lambda: not set(processes()) - before, SECONDS, "the forks have ended")
    assert team.execute("os.waitpid(child, 0)[1], rank").check().values == {
        0: "(0, 0)",
        1: "(0, 1)",
    }


DRIVER = """
import json, os, sys, time
import workbench as wb
from workbench.launchers.processes.pool import warm_pool
"""
FULL = f"""{DRIVER}
team = wb.ranks(2)
left = team.execute({LEAVES + "children()"!r}).check().values
home = warm_pool()
everything = [home.pid, home.process.pid, *team.pids.values()]
print(json.dumps([everything, *map(json.loads, left.values())]), flush=True)
time.sleep(1000)
"""
YOUNG = (
    f"{DRIVER}home = warm_pool()\nprint(json.dumps([[home.pid, home.process.pid]]), flush=True)\n"
)


@contextlib.contextmanager
def driver(tmp_path: Path, text: str) -> Iterator[tuple[subprocess.Popen[str], list[list[int]]]]:
    """A script that says which processes it has."""
    process = script(tmp_path / "driver.py", text)
    assert process.stdout is not None and process.stderr is not None
    try:
        assert select.select([process.stdout], [], [], 60)[0], "no word within 60 s"
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=120)


@pytest.mark.parametrize(
    "frozen",
    [
        "fork server and ranks",
        pytest.param("none", marks=pytest.mark.full),
        pytest.param("all but the fork server", marks=pytest.mark.full),
    ],
)
def test_a_killed_driver_leaves_nothing(frozen: str, tmp_path: Path) -> None:
    with driver(tmp_path, FULL) as (process, [[home, guardian, *ranks], *left]):
        everything = [home, guardian, *ranks, *left[0], *left[1]]
        stopped = {"none": [], "fork server and ranks": [home, *ranks, left[0][2], left[1][1]]}
        for pid in stopped.get(frozen, [guardian, *ranks, *left[0]]):
            os.kill(pid, signal.SIGSTOP)
        assert alive(everything)
        process.kill()
        until(lambda: gone(everything), SECONDS, f"the end of all: {frozen} frozen")


ENDS = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "comes to its end": None}


@pytest.mark.parametrize("how", ENDS)
def test_a_driver_ends_at_once_whose_pool_is_not_ready(how: str, tmp_path: Path) -> None:
    """The fork server is frozen where another one imports torch, for as long as this test likes."""
    freezes = "os.kill(home.pid, 19)\nprint('frozen', flush=True)\n"
    with driver(
        tmp_path, YOUNG + freezes + "time.sleep(1000)\n" * (how in ("killed", "interrupted"))
    ) as (process, [pids]):
        assert process.stdout is not None and process.stdout.readline() == "frozen\n"
        if number := ENDS[how]:
            process.send_signal(number)
        begin = time.monotonic()
        process.wait(60)
        until(lambda: gone(pids), SECONDS, f"the end of a pool whose driver is {how}")
        assert time.monotonic() - begin < SECONDS, "it was waited for"


@pytest.mark.full
def test_the_pool_ends_when_its_guardian_is_killed() -> None:
    run = training(wb.run(lenet(iterations=100_000)))
    home = warm_pool()
    os.kill(home.process.pid, signal.SIGKILL)
    until(lambda: gone([home.pid, *run.pids.values()]), SECONDS, "the end of the pool")
    assert isinstance(run.wait(timeout=90, check=False).error, wb.WorkbenchError)
    assert wb.run(lenet()).wait(timeout=60).ok


FORKS = """
import json, os, sys, time
import workbench as wb
from tests.live import lenet, training
from workbench.launchers.processes.pool import warm_pool
assert wb.run(lenet(iterations=1)).wait().ok
run = training(wb.run(lenet(iterations=100_000)))
home = warm_pool()
read, write = os.pipe()
child = os.fork()
if not child:
    try:
        run.wait(5)
    except wb.WorkbenchError as error:
        told = str(error)
    own = wb.run(lenet(iterations=2)).wait()
    os.write(write, json.dumps([told, own.ok, warm_pool().pid]).encode())
    sys.exit(3)  # through its atexit functions
end = os.waitpid(child, 0)[1]
before = run.iteration
told, ok, pid = json.loads(os.read(read, 65_536))
assert warm_pool() is home and home.alive and not run.done and pid != home.pid
while run.iteration == before:
    time.sleep(0.01)
run.stop()
assert run.wait().ok and wb.run(lenet(iterations=1)).wait().ok and warm_pool() is home
print(json.dumps([end, told, ok, os.path.exists(f"/proc/{pid}")]))
"""


@pytest.mark.full
def test_a_fork_of_the_driver_has_a_pool_of_its_own(tmp_path: Path) -> None:
    with driver(tmp_path, FORKS) as (process, [end, message, ok, lives]):
        assert os.waitstatus_to_exitcode(end) == 3 and ok and not lives
        assert f"was started by process {process.pid}, of which this one" in message
        assert process.wait(120) == 0, process.communicate()[1]


@pytest.mark.full
def test_a_child_of_multiprocessing_has_a_pool_of_its_own(tmp_path: Path) -> None:
    text = f"""{DRIVER}
import multiprocessing
from tests.live import lenet
def body():
    assert wb.run(lenet(iterations=1)).wait().ok
assert wb.run(lenet(iterations=1)).wait().ok
home, fork = warm_pool(), multiprocessing.get_context("fork")
children = [fork.Process(target=body) for _ in "ab"]
for child in children:
    child.start()
for child in children:
    child.join()
assert wb.run(lenet(iterations=1)).wait().ok and warm_pool() is home
print(json.dumps([child.exitcode for child in children]), flush=True)
"""
    with driver(tmp_path, text) as (process, codes):
        assert codes == [0, 0], process.communicate()[1]
