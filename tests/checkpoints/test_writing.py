"""Checkpoints that are being written: whole ones only, whatever happens at any byte of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import workbench as wb
from tests.live import ROOT, lenet, until
from tests.pairwise import first
from workbench.checkpoints import saver as saver_module
from workbench.checkpoints.folder import MANIFEST, iterations, name_of, newest
from workbench.checkpoints.parts import Parts
from workbench.checkpoints.saver import Saver
from workbench.checkpoints.tensor_file import write
from workbench.recording.recorder import Recorder

WRITER = """
import resource, signal, sys, time
from pathlib import Path
import workbench as wb
from tests.live import lenet
if __name__ == "__main__":
    folder, limit = sys.argv[1], int(sys.argv[2])
    if limit:  # as a disk that is full: no file grows beyond it
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    exp = lenet(ranks=2, iterations=100_000, record=False,
                checkpoint=wb.Checkpoint(folder=folder, every=1, background=limit == 0))
    run = wb.run(exp)
    if limit:
        run.checkpoint()
        for pid in run.pids.values():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        before = run.iteration
        while run.iteration < before + 5:
            time.sleep(0.01)
        try:
            run.checkpoint()
        except wb.CheckpointError as error:
            print("refused", error, flush=True)
        for pid in run.pids.values():  # there is room again
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print("whole", run.checkpoint(), flush=True)
        run.stop()
        run.wait(60)
        print(run.store.metadata["checkpoint problem"], flush=True)
        print("left:", *Path(folder).glob(".iteration-*"), flush=True)
    else:
        print(*run.pids.values(), flush=True)
        run.wait()
"""


def writer(folder: Path, limit: int = 0) -> subprocess.Popen[str]:
    """Start a program that writes a checkpoint at every iteration, and sends its process number."""
    script = folder.parent / f"{folder.name}.py"
    script.write_text(WRITER)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", script, folder, str(limit)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_rank_that_waits_for_files_of_a_lost_one_hears_of_the_loss_at_once(
    tmp_path: Path,
) -> None:
    """Rank 1's files never come. Without the look, the next copy waits for them for 60 s."""
    parts = Parts(equal=True)
    parts.keep("model", torch.nn.Linear(3, 3))
    plan = wb.Checkpoint(folder=str(tmp_path), every=1)
    exp = wb.Experiment(ranks=2, checkpoint=plan, timeout="60 s")
    lost: list[float] = []

    def look() -> None:
        if lost:
            raise wb.WorkbenchError("a rank was lost", how="aborted")

    saver = Saver(exp, "run", Recorder.off(0), torch.device("cpu"), look)
    try:
        saver.save(parts, 1, {})
        saver.write(0, [0, 1], 2, lambda *_: None)
        lost.append(time.monotonic())
        with pytest.raises(wb.WorkbenchError, match="lost"):
            saver.save(parts, 2, {})
    finally:
        saver.abandon()
    assert time.monotonic() - lost[0] < 30, "it did not wait for its time limit"
    assert not [*tmp_path.glob("iteration-*")], "a checkpoint without rank 1 is none"


def test_a_checkpoint_does_not_wait_for_a_rank_that_the_run_goes_on_without(tmp_path: Path) -> None:
    parts = Parts(equal=True)
    parts.keep("model", torch.nn.Linear(3, 3))
    plan = wb.Checkpoint(folder=str(tmp_path), every=1)
    exp, cpu = wb.Experiment(ranks=2, checkpoint=plan, timeout="60 s"), torch.device("cpu")
    lost, begin = set[int](), time.monotonic()
    saver = Saver(exp, "run", Recorder.off(0), cpu, spared=lost.__contains__)
    saver.save(parts, 1, {})
    saver.write(0, [0, 1], 2, lambda *_: None)
    lost.add(1)
    saver.save(parts, 2, {})
    saver.write(0, [0], 2, lambda *_: None)
    saver.close()
    assert time.monotonic() - begin < 30, "it did not wait for its time limit"
    assert [one.name for one in tmp_path.glob("iteration-*")] == [name_of(2)]


def test_a_checkpoint_that_fails_leaves_nothing_and_the_first_rank_hears_of_it(
    tmp_path: Path,
) -> None:
    """Rank 1 cannot write; rank 0 has written its files by then, and would wait for those of rank 1
    as long as the timeout.
    """
    plan = wb.Checkpoint(folder=str(tmp_path), every=1, background=True)
    exp = wb.Experiment(ranks=2, checkpoint=plan, timeout="1 h")
    savers, whole = [], list[bool]()
    for rank in (0, 1):
        parts = Parts(equal=True)
        parts.keep("model", torch.nn.Linear(3, 3))
        savers.append(Saver(exp, "run", Recorder.off(rank), torch.device("cpu")))
        savers[-1].save(parts, 7, {} if rank == 0 else {"not JSON": tmp_path})
    part = tmp_path / f".{name_of(7)}.run.part"
    savers[0].write(0, [0, 1], 2, lambda _, success: whole.append(success))
    until((part / "rank-0000.json").exists, what="the files of rank 0")
    savers[1].write(1, [0, 1], 2, lambda *_: None)
    until(lambda: whole, what="the end of rank 0's wait")
    assert whole == [False] and not [*tmp_path.iterdir()]
    assert savers[0].problem == ""
    assert savers[1].problem.startswith("checkpoint after iteration 7: ")
    assert "JSON serializable" in savers[1].problem


def test_the_rank_that_failed_first_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0's disk is full; it removes the folder into which rank 1 is still writing, or which it
    makes again.
    """
    plan = wb.Checkpoint(folder=str(tmp_path), every=1, background=False)
    exp = wb.Experiment(ranks=2, checkpoint=plan, timeout="1 h")
    savers = [Saver(exp, "run", Recorder.off(rank), torch.device("cpu")) for rank in (0, 1)]
    parts = Parts(equal=True)
    parts.keep("model", torch.nn.Linear(3, 3))

    def saves(rank: int, iteration: int) -> None:
        savers[rank].save(parts, iteration, {})
        savers[rank].write(rank, [0, 1], 2, lambda *_: None)

    def full(path: Path, tensors: Mapping[str, torch.Tensor]) -> tuple[int, str]:
        if path.name == "rank-0000.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        (number, sha), _ = write(path, tensors), saves(0, 7)
        return number, sha

    monkeypatch.setattr(saver_module, "write", full)
    saves(1, 7)
    assert savers[0].problem == "checkpoint after iteration 7: [Errno 28] No space left on device"
    assert savers[1].problem == "" and not [*tmp_path.iterdir()]
    monkeypatch.setattr(saver_module, "write", write)
    saves(1, 7)
    assert [one.name for one in tmp_path.iterdir()] == [f".{name_of(7)}.run.part"]
    savers[1].plan = savers[0].plan = plan.model_copy(update={"background": True})
    saves(0, 8)
    saves(1, 8)
    until((tmp_path / name_of(8) / MANIFEST).exists)
    assert [one.name for one in tmp_path.iterdir()] == [name_of(8)]


def test_what_a_slow_disk_has_still_to_write_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes longer than ``timeout``; training has gone on with its next checkpoint."""
    goes_on = threading.Event()

    def slowly(path: Path, tensors: Mapping[str, torch.Tensor]) -> tuple[int, str]:
        assert goes_on.wait(60)
        return write(path, tensors)

    monkeypatch.setattr(saver_module, "write", slowly)
    model, parts = torch.nn.Linear(3, 3), Parts(equal=True)
    parts.keep("model", model)
    plan = wb.Checkpoint(folder=str(tmp_path), every=1)
    exp = wb.Experiment(ranks=1, checkpoint=plan, timeout="50 ms")
    saver, weights = Saver(exp, "run", Recorder.off(0), torch.device("cpu")), {}
    for iteration in (1, 2):
        weights[iteration] = model.weight.detach().clone()
        saver.save(parts, iteration, {})
        saver.write(0, [0], 1, lambda *_: None)
        with torch.no_grad():
            model.weight += 1
    goes_on.set()
    for iteration, weight in weights.items():
        until((tmp_path / name_of(iteration) / MANIFEST).exists)
        saved = load_file(tmp_path / name_of(iteration) / "rank-0000.safetensors")
        (written,) = (value for key, value in saved.items() if key.endswith("weight"))
        assert torch.equal(written, weight), iteration


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import workbench as wb
from workbench.checkpoints.folder import newest
from workbench.checkpoints.parts import Parts
from workbench.checkpoints.saver import Saver
from workbench.recording.recorder import Recorder

def writes(folder, first):  # what a rank does, one checkpoint after the other
    parts = Parts(equal=True)
    parts.keep("model", torch.nn.Linear(300, 300))
    exp = wb.Experiment(ranks=1, checkpoint=wb.Checkpoint(folder=folder, every=1))
    saver = Saver(exp, str(os.getpid()), Recorder.off(0), torch.device("cpu"))
    for iteration in range(first, 10**9):
        saver.save(parts, iteration, {})
        saver.write(0, [0], 1, lambda *_: None)

def there():  # what the folder holds
    return {one.name for one in Path(folder).glob("*iteration-*")}

folder, rounds = sys.argv[1], int(sys.argv[2])
chance, done, torn = random.Random(rounds), 0, 0
torch.set_num_threads(1)
number = -1
while (number := number + 1) < rounds or torn < 2 and number < 20 * rounds:
    before = there()
    if (child := os.fork()) == 0:
        writes(folder, done + 1)
    while there() <= before or number == 0 and not [*Path(folder).glob("iteration-*")]:
        time.sleep(0.001)  # busy cores: it might not have come to write yet
    time.sleep(chance.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    torn += len([*Path(folder).glob(".iteration-*")])
    found, damaged = newest(Path(folder))
    assert found.iteration >= done and not damaged, (number, done, found, damaged)
    done = found.iteration
print(done, torn)
"""


@pytest.mark.full
@pytest.mark.parametrize("rounds", first(1, [8, 200]))
def test_killed_at_any_moment_of_writing_nothing_is_lost(tmp_path: Path, rounds: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, str(rounds)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600 + 12 * rounds,
    )
    assert done.returncode == 0, done.stderr
    iteration, torn = map(int, done.stdout.split())
    assert iteration > 1 and torn > 1, "kills came while it was writing"


@pytest.mark.full
def test_a_run_that_is_killed_with_its_driver_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with writer(folder) as process:
        assert process.stdout is not None
        pids = [process.pid, *map(int, process.stdout.readline().split())]
        until(lambda: len(iterations(folder)) == 2, 60, "two checkpoints")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    at = newest(folder)[0].iteration
    plan = wb.Checkpoint(folder=str(folder), every=2)
    again = lenet(ranks=2, iterations=at + 2, resume=str(folder), checkpoint=plan)
    assert len(wb.run(again).wait(timeout=60).losses) == at + 2
    assert not [*folder.glob(".*.part"), *folder.glob(".*.gone")]


def test_where_the_disk_is_full_training_goes_on_and_so_do_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "full"
    with writer(folder, limit=100_000) as process:
        out, _ = process.communicate(timeout=120)
    assert "refused" in out and "whole" in out and "File too large" in out
    assert "left:\n" in out
    checkpoint, damaged = newest(folder)
    assert checkpoint.iteration > 0 and not damaged
    assert json.loads((checkpoint.path / MANIFEST).read_text())["iteration"] == checkpoint.iteration
