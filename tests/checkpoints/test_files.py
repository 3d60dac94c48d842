"""The files of checkpoints: what a run takes, what it refuses, and whose folder it is."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import workbench as wb
from tests.live import lenet
from workbench.checkpoints.folder import MANIFEST, iterations, name_of, newest
from workbench.checkpoints.rows import Rows
from workbench.checkpoints.saved import Saved
from workbench.checkpoints.tensor_file import write
from workbench.common.errors import CheckpointError
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
