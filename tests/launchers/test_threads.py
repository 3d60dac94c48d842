"""What works in a thread of the driver's is over before its interpreter: no abort, no hang."""

from __future__ import annotations

import ast
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import workbench as wb
from tests.live import ROOT, lenet, script, training, until
from tools.soak.exits import ENDS, LEAVES, Exits
from workbench.common import threads

# Of ranks, which end without the interpreter's end, or through process_group.close_all.
OF_RANKS = (
    "messaging/progress_engine.py",
    "process_group/work.py",
    "transports/alarm_lines.py",
    "transports/gloo.py",
    "transports/joining.py",
    "transports/mpi_job.py",
    "transports/meeting_place.py",
    "attaching/device_time.py",
    "training/communication_efficient/cycles.py",
    "training/gossip/pairs.py",
    "cells/rank.py",
    "studies/checking/rank.py",
)


def ends(tmp_path: Path, text: str) -> tuple[int, str, str]:
    process = script(tmp_path / "script.py", text)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it hangs: {out}{err}")
    return process.returncode, out, err


def test_a_thread_inside_torch_ends_before_the_interpreter(tmp_path: Path) -> None:
    """Python would unwind it where C++ does not expect that: the process would abort."""
    text = """
import time, torch
from workbench.common import threads
torch.set_num_threads(1)
def work():
    while True:
        torch.ones(400, 400) @ torch.ones(400, 400)
for number in range(3):
    threads.start(work, f"of a test {number}")
time.sleep(0.3)
raise SystemExit(7)
"""
    assert ends(tmp_path, text) == (7, "", "")


def test_what_a_thread_makes_while_the_process_ends_is_finalized_in_time(tmp_path: Path) -> None:
    """Torch does so when it is imported there; too late, it finds its module half taken down."""
    text = """
import sys, threading, weakref
import workbench
from workbench.common import threads
over = threading.Event()
def work():
    over.wait()
    weakref.finalize(sys.stdout, lambda: print(f"finalizing: {sys.is_finalizing()}"))
threads.start(work, "of a test", stop=over.set)
"""
    assert ends(tmp_path, text) == (0, "finalizing: False\n", "")


def test_a_thread_that_starts_ranks_while_the_process_ends_is_refused(tmp_path: Path) -> None:
    text = """
import atexit, threading
@atexit.register  # before the package: called after all that it does
def late():
    try:
        wb.run(lenet(iterations=1))
    except wb.WorkbenchError as error:
        print(error)
import workbench as wb
from tests.live import lenet
from workbench.common import threads
wb.run  # imported here: two threads that import at once may each find half a module
over = threading.Event()
def work():
    over.wait()
    wb.run(lenet(iterations=1))  # what it raises now does not matter
threads.start(work, "of a test", stop=over.set)
"""
    code, out, err = ends(tmp_path, text)
    assert (code, err) == (0, "") and out.startswith("this process is ending, and starts no ranks")


def test_shutdown_stops_what_would_start_ranks_again() -> None:
    comparison = wb.compare([lenet(iterations=100_000)], seeds=9)
    until(lambda: comparison.trials[0].past is not None, 60)
    training(comparison.trials[0].past.run)
    calls: list[str] = []
    stays = threads.start(threading.Event().wait, "of a test", stop=lambda: calls.append("stop"))
    wb.shutdown()
    until(lambda: comparison.done, 20, "the comparison is over")
    assert {trial.state for trial in comparison.trials[1:]} == {"waiting"} and not calls
    assert stays.is_alive() and threads._running.pop(stays)


@pytest.mark.parametrize(
    ("leaves", "end"),
    [
        (name, end)
        if (name, end) in [("drift", "wb.shutdown()"), ("compare", "")]
        else pytest.param(name, end, marks=pytest.mark.full)
        for name in LEAVES
        for end in ENDS
    ],
)
def test_a_script_that_leaves_something_behind_ends(leaves: str, end: str) -> None:
    exits = Exits(0)
    number = next(n for n in range(10_000) if exits.drawn(n)[:2] == (leaves, end))
    assert exits.case(number).wrong == ""


def test_all_threads_of_the_driver_end_before_it() -> None:
    """Code that adds one starts it with ``threads.start``."""
    places = []
    for file in sorted((ROOT / "workbench").rglob("*.py")):
        place = str(file.relative_to(ROOT / "workbench"))
        for node in ast.walk(ast.parse(file.read_text())):
            is_thread = isinstance(node, ast.Call) and ast.unparse(node.func) == "threading.Thread"
            if is_thread and node.keywords and place not in (*OF_RANKS, "common/threads.py"):
                places.append(f"{place}:{node.lineno}")
    assert places == []


def test_a_finalizer_that_swallows_a_threads_end_is_not_printed(tmp_path: Path) -> None:
    text = """
from workbench.common import threads
class Kept:
    def __del__(self):
        for _ in range(2000):
            pass
def work():
    while True:
        Kept()
threads.start(work, "makes and drops objects")
"""
    code, _, err = ends(tmp_path, text)
    assert (code, err) == (0, "")


def test_a_thread_that_a_ctrl_c_has_not_seen_begin_ends_before_the_interpreter(
    tmp_path: Path,
) -> None:
    """``Thread.start`` waits until the thread has begun: on busy cores a Ctrl-C comes meanwhile."""
    text = """
import os, signal, threading, time
from workbench.common import threads
class Slow(threading.Thread):
    def _bootstrap_inner(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        super()._bootstrap_inner()
threading.Thread = Slow
def work():
    time.sleep(0.1)
    print("whole", flush=True)
threads.start(work, "of a test")
"""
    code, out, err = ends(tmp_path, text)
    assert (code, out) == (-signal.SIGINT, "whole\n") and "KeyboardInterrupt" in err


def test_a_ctrl_c_while_a_module_is_imported_does_not_reach_into_it(tmp_path: Path) -> None:
    """polars, in Rust, panics of it, and the process does not end as one that was interrupted."""
    (tmp_path / "takes_long.py").write_text(
        "import os, signal, time\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.3)\n"
        "except BaseException as error:\n"
        "    print('reached:', repr(error))\n"
        "print('whole', flush=True)\n"
    )
    text = "from workbench.common.threads import import_aside\nimport_aside('takes_long')\n"
    code, out, err = ends(tmp_path, text)
    assert (code, out) == (-signal.SIGINT, "whole\n") and "KeyboardInterrupt" in err
