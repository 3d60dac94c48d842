"""Live runs are listed, and ended: all at once, with a block, or because nothing refers to them."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

import workbench as wb
from tests.live import LONG, PATIENCE, gone, lenet, script, training, until
from tests.pairwise import first
from workbench.common import live_runs
from workbench.launchers.processes import pool

HEAD = """
import time, warnings, weakref
import workbench as wb
from tests.live import LONG, gone, lenet, training, until
warnings.simplefilter("always")
"""


def test_live_runs_are_listed_with_how_to_end_them() -> None:
    assert repr(wb.runs()) == "no run is live"
    with wb.run(lenet(iterations=LONG)) as run, wb.ranks(1) as team:
        listed = wb.runs()
        assert listed == [run, team] and listed[0] is run
        first, second, third = repr(listed).splitlines()
        assert first == "2 live; wb.shutdown() ends all of them"
        pids = " ".join(map(str, run.pids.values()))
        assert second.startswith("[0] Run(data_parallel, lenet_digits, 2 ranks), live for ")
        assert second.endswith(f"launcher local, processes {pids}: wb.runs()[0].stop() ends it")
        assert third.startswith("[1] Ranks(1) ") and third.endswith("wb.runs()[1].close() ends it")
    assert wb.runs() == [] and not live_runs._entries


class Middle(Exception):
    """Raised by the body of a block."""


@pytest.mark.parametrize("raises", [False, True])
def test_a_with_block_ends_its_run_and_its_ranks(raises: bool) -> None:
    caught = pytest.raises(Middle) if raises else contextlib.nullcontext()
    with caught, wb.run(lenet(iterations=LONG)) as run, wb.ranks(1) as team:
        pids = [*training(run).pids.values(), *team.pids.values()]
        if raises:
            raise Middle
    assert run.done and team.done and gone(pids)
    assert run.result.ok and 0 < len(run.result.losses) < LONG  # after an iteration


def test_a_with_block_ends_ranks_that_do_not_end_their_iteration() -> None:
    with wb.run(lenet(iterations=LONG)) as run:
        training(run)
        # By no hand of its user's: `stop` is in vain.
        run._ranks.signal(1, pool.signal.SIGSTOP)
    assert run.done and gone(run.pids.values())
    assert str(run.result.error) == "the `with` block of the run was left"


@pytest.mark.parametrize("launcher", first(1, ["local", "torchrun", "mpiexec"]))
def test_shutdown_ends_runs_and_teams_and_waits(launcher: str) -> None:
    run, team = wb.run(lenet(iterations=LONG, launcher=launcher)), wb.ranks(1)
    pids = [*training(run).pids.values(), *team.pids.values()]
    wb.shutdown()
    assert run.done and team.done and gone(pids) and wb.runs() == []
    assert str(run.result.error) == "wb.shutdown() ended it"
    assert run.events.height > 0


def test_shutdown_ends_a_run_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.launchers import torchrun

    monkeypatch.setattr(torchrun.Launcher, "command", lambda self, count: ["sleep", "1000"])
    errors: list[wb.WorkbenchError] = []

    def start() -> None:
        with pytest.raises(wb.WorkbenchError) as caught:
            wb.run(lenet(launcher="torchrun"))
        errors.append(caught.value)

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: live_runs._entries, what="it is being started")
    assert wb.runs() == []  # it has no process of ours yet
    wb.shutdown()
    assert not live_runs._entries
    thread.join(PATIENCE)
    assert str(errors[0]) == "the run was ended while its ranks were being started"


def test_the_end_of_a_run_may_shut_down_all() -> None:
    """Its thread does, and does not wait for itself."""
    with wb.run(lenet(iterations=LONG)) as other, wb.run(lenet(iterations=2)) as run:
        run.at_end(wb.shutdown)
        assert run.wait(timeout=PATIENCE).ok
        assert other.done and str(other.result.error) == "wb.shutdown() ended it"


def test_the_next_run_says_that_others_are_live(capsys: pytest.CaptureFixture[str]) -> None:
    with wb.run(lenet(iterations=LONG)) as first:
        assert capsys.readouterr() == ("", "")
        with wb.run(lenet(iterations=1)) as second:
            out, line = capsys.readouterr()
            second.wait(timeout=PATIENCE)
        assert out == "" and line.count("\n") == 1
        assert line.startswith(f"[workbench] 1 other run is live: {first!r}, live for ")
        assert line.endswith("wb.runs() lists, wb.shutdown() ends it\n")


def test_in_a_script_a_run_ends_with_the_last_reference_to_it(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
def fails():
    run = training(wb.run(lenet(ranks=1, iterations=LONG)))
    pids.extend(run.pids.values())
    raise AssertionError("as a test or a notebook's cell does")

pids = []
try:
    fails()
except AssertionError:
    pass  # with its traceback goes the run
until(lambda: gone(pids))
until(lambda: not wb.runs())
wb.run(lenet(ranks=1, iterations=1)).wait(60)
run = wb.run(lenet(ranks=1, iterations=LONG))
run.stop()
del run  # it was told to end: no warning
print("over")
"""
    )
    with script(tmp_path / "forgets.py", text) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "over\n")
    assert err.count("Warning") == 1, err
    words = "ResourceWarning: Run(data_parallel, lenet_digits, 1 rank) is live and no reference "
    assert words in err and "forgets.py:" in err and "`with wb.run(...) as run:`" in err


@pytest.mark.full
def test_in_a_notebook_a_run_goes_on_and_is_found_again(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.push({"start": lambda: training(wb.run(lenet(ranks=1, iterations=LONG)))})
shell.run_cell("start(); 1 / 0", store_history=True)
shell.run_cell("%reset -f")
shell.push({"start": lambda: training(wb.run(lenet(ranks=1, iterations=LONG)))})
run, = wb.runs()
training(run, run.iteration + 2)
again = weakref.ref(run)
del run
assert again() is None
with wb.runs()[0] as run:
    assert wb.runs() == [run]
    shell.run_cell("one = start()", store_history=True)  # says that another is live
    shell.run_cell("one.stop(); one.wait(60)")
shell.run_cell("with start() as one, start() as other: pass")  # both of one cell: says nothing
assert run.result.ok and gone(run.pids.values())
"""
    )
    with script(tmp_path / "notebook.py", text) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "ZeroDivisionError" in out, err
    assert err.count("[workbench] 1 other run is live") == err.count("\n") == 1, err


@pytest.mark.full
def test_a_fork_of_the_driver_has_no_live_runs(tmp_path: Path) -> None:
    """And does not end its parent's when it drops them."""
    text = (
        HEAD
        + """
import os
run = training(wb.run(lenet(ranks=1, iterations=LONG)))
child = os.fork()
if not child:
    nothing = wb.runs() == []
    del run
    os._exit(0 if nothing else 1)
assert os.waitpid(child, 0)[1] == 0
training(run, run.iteration + 2)
run.stop()
run.wait(60)
"""
    )
    with script(tmp_path / "forks.py", text) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")
