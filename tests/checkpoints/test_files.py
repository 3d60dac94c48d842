"""The files of checkpoints: whole ones only, whatever happens at any byte of writing."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import workbench as wb
from tests.live import ROOT, lenet, until
from tests.pairwise import first
from workbench.checkpoints import saver as saver_module
from workbench.checkpoints.folder import MANIFEST, iterations, name_of, newest
from workbench.checkpoints.parts import Parts
from workbench.checkpoints.rows import Rows
from workbench.checkpoints.saved import Saved
from workbench.checkpoints.saver import Saver
from workbench.checkpoints.tensor_file import write
from workbench.common.errors import CheckpointError
from workbench.recording.recorder import Recorder
from workbench.runs.checkpoints import checkpoint_of, sizes_of

EXPERIMENT: dict[str, Any] = {"ranks": 2, "iterations": 4}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    types = (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    tensors = {f"a/{t}": (torch.rand(3, 5) * 9).to(t) for t in types}
    tensors |= {"empty": torch.empty(0, 4), "number": torch.tensor(3.0), "one": torch.ones(1)}
    tensors["turned"] = torch.arange(6.0).view(2, 3).T
    nbytes, _ = write(tmp_path / "x.safetensors", tensors)
    assert nbytes == (tmp_path / "x.safetensors").stat().st_size
    read = load_file(tmp_path / "x.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], value) for name, value in tensors.items())


def test_rows_that_two_have_in_common() -> None:
    chance = random.Random(3)
    for _ in range(200):
        edges = [sorted(chance.sample(range(30), 6)) for _ in range(2)]
        one, two = (Rows(30, tuple(zip(e[::2], e[1::2], strict=True))) for e in edges)
        held = [[i for a, b in rows.ranges for i in range(a, b)] for rows in (one, two)]
        pairs = {(a + k, b + k) for a, b, count in one.shared_with(two) for k in range(count)}
        assert pairs == {(held[0].index(i), held[1].index(i)) for i in set(held[0]) & set(held[1])}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two checkpoints, after 2 and 4 iterations."""
    folder = tmp_path_factory.mktemp("written")
    wb.run(lenet(**EXPERIMENT, checkpoint=wb.Checkpoint(folder=str(folder), every=2))).wait(60)
    assert iterations(folder) == [4, 2]
    return folder


FILES = ["rank-0000.safetensors", "rank-0001.json", MANIFEST, "rank-0000.json"]
HARMS = ["flipped", "cut short", "missing", "empty"]


def harm(path: Path, how: str) -> None:
    """Damage a file."""
    if how == "missing":
        return path.unlink()
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 4
    path.write_bytes(content[: {"cut short": -7, "empty": 0}.get(how)])
    return None


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_one_is_refused_by_name_and_the_one_before_is_taken(
    written: Path, tmp_path: Path, name: str, how: str
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    harm(folder / name_of(4) / name, how)
    if name == MANIFEST and how == "flipped":
        harm(folder / name_of(4) / name, "cut short")  # a bit of a number may be another number
    checkpoint, damaged = newest(folder)
    assert checkpoint.iteration == 2 and len(damaged) == 1 and name_of(4) in damaged[0]
    if name != MANIFEST:
        assert name in damaged[0]
    harm(folder / name_of(2) / name, "missing")
    with pytest.raises(wb.SpecError, match=f"(?s)no checkpoint is whole.*{name_of(2)}"):
        wb.run(lenet(ranks=2, iterations=9, resume=str(folder)))


@pytest.mark.parametrize("name", [MANIFEST, "rank-0000.json", "rank-0000.safetensors"])
@pytest.mark.parametrize("instead", ["pipe", "device", "loop", "nested", "infinite", "empty"])
def test_what_no_run_writes_is_refused_in_a_sentence(
    written: Path, tmp_path: Path, name: str, instead: str
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    shutil.rmtree(folder / name_of(2))
    path = folder / name_of(4) / name
    path.unlink()
    match instead:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path.name)
        case "nested":
            path.write_text('{"a":' * 100_000)
        case "infinite":
            path.write_text('{"format": 1, "iteration": 1e999, "files": {}, "ranks": 1}')
        case "empty":
            path.write_text(
                json.dumps(
                    {
                        "format": 1,
                        "iteration": 2,
                        "ranks": 2,
                        "present": [],
                        "spec": {},
                        "per_rank": [],
                        "files": {},
                    }
                )
            )
    exp = lenet(**EXPERIMENT | {"iterations": 9}, resume=str(folder))
    with pytest.raises(wb.SpecError, match=re.escape(str(path.parent))) as refused:
        checkpoint_of(exp)
    assert "no checkpoint is whole" in str(refused.value)


def test_a_rank_s_values_that_no_rank_writes_are_refused(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    manifest, _ = newest(folder)
    values = manifest.path / "rank-0000.json"
    whole = json.loads(values.read_text())
    for sizes in ([[10**30, 5]], [[-5, -5]], [[float("inf"), 5]], [[0]], 3, [[0, 1 << 50]]):
        own = {**whole["values"], "history": {**whole["values"]["history"], "sizes": sizes}}
        values.write_text(json.dumps({**whole, "values": own}))
        with pytest.raises(wb.SpecError, match="does not say how large the minibatches were"):
            sizes_of(manifest)
    for text in ("[" * 200_000, "{}", "[]", '{"values": [], "tensors": {}}'):
        values.write_text(text)
        with pytest.raises(wb.SpecError, match="does not say how large the minibatches were"):
            sizes_of(manifest)
        with pytest.raises(CheckpointError, match=r"rank-0000\.json cannot be read"):
            Saved(manifest, 0, 2)


def test_a_run_says_that_it_takes_the_one_before(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    harm(folder / name_of(4) / FILES[0], "flipped")
    with pytest.warns(UserWarning, match=f"{name_of(4)} is damaged.*goes on from {name_of(2)}"):
        run = wb.run(lenet(ranks=2, iterations=6, resume=str(folder)))
    assert len(run.wait(timeout=60).losses) == 6


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"strategy": "fsdp"}, "strategy='data_parallel'"),
        ({"seed": 4}, "seed=0"),
        ({"batch_size": 32}, "batch_size=16"),
        ({"optimizer": "adam"}, "optimizer='sgd'"),
        ({"dtype": "float64"}, "dtype='float32'"),
        ({"iterations": 4}, "after iteration 4, and iterations=4: nothing is left to do"),
        ({"resume": "/nowhere"}, "/nowhere has no checkpoint"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    written: Path, changed: dict[str, Any], says: str
) -> None:
    fields = {"ranks": 2, "iterations": 9, "resume": str(written), **changed}
    with pytest.raises(wb.SpecError, match=says):
        wb.run(lenet(**fields))


def test_replicas_that_differ_want_as_many_ranks(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=2)
    wb.run(lenet(strategy="gossip", checkpoint=plan, **EXPERIMENT)).wait(timeout=60)
    with pytest.raises(wb.SpecError, match=r"of each of 2 ranks, which differ: .* ranks=2"):
        wb.run(lenet(strategy="gossip", ranks=3, iterations=9, resume=str(tmp_path)))


def test_a_schedule_without_a_flush_has_no_checkpoint(tmp_path: Path) -> None:
    options = {"schedule": "pipedream"}
    with pytest.raises(wb.SpecError, match=r"pipedream.* has no flush"):
        wb.run(
            lenet(
                strategy="pipeline",
                options=options,
                checkpoint=wb.Checkpoint(folder=str(tmp_path)),
            )
        )


def test_a_folder_belongs_to_one_run_and_is_not_written_over(written: Path, tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(written), every=2)
    with pytest.raises(wb.SpecError, match="checkpoints of a run before"):
        wb.run(lenet(checkpoint=plan))
    older = str(written / name_of(2))
    with pytest.raises(wb.SpecError, match="checkpoints of a run before"):
        wb.run(lenet(checkpoint=plan, iterations=9, resume=older))
    other = wb.Checkpoint(folder=str(tmp_path / "new" / "one"), every=0)
    run = wb.run(lenet(checkpoint=other, iterations=100_000))
    with pytest.raises(wb.SpecError, match="another run writes"):
        wb.run(lenet(checkpoint=other))
    run.stop()
    run.wait(timeout=60)
    (tmp_path / "file").touch()
    with pytest.raises(wb.SpecError, match="must be a folder that may be written"):
        wb.run(lenet(checkpoint=wb.Checkpoint(folder=str(tmp_path / "file"))))


def forgets(job: Any, config: Any) -> None:
    """A strategy of the user's that does not say which model its optimizer is of."""
    model = job.build()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        job.backward(job.forward(model, job.load(minibatch.ids)))
        job.update(optimizer)
    job.finish(model)


def test_a_model_that_no_rank_keeps_is_not_lost_silently(tmp_path: Path) -> None:
    exp = lenet(strategy=forgets, ranks=1, checkpoint=wb.Checkpoint(folder=str(tmp_path)))
    with pytest.raises(wb.WorkbenchError, match=r'job.keep\("model", module\)'):
        wb.run(exp).wait(timeout=60)


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


@pytest.mark.parametrize("rounds", first(1, [15, 200]))
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
