"""Data on disk: ranks read the rows of their samples, and hold little memory of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from tests.recovery.test_policies import assert_every_sample_once
from workbench.tasks.bed_sensors import READINGS, Task, ingest

BUDGET = 16 * 2**20  # bytes: a quarter of the data
BEDS, ROWS = 4, BUDGET // (READINGS + 1) // 4  # and one bed to validate with


class Watched:
    """The task, which notes how much memory of its own a rank holds before its first sample and
    after each minibatch. ``whole``: the mutant, which loads a bed where a row of it is asked for.
    """

    def __init__(self, *, folder: str, out: str, whole: bool = False) -> None:
        from workbench.tasks.bed_sensors import Task

        self.task, self.out, self.whole = Task(folder=folder), out, whole

    def note(self) -> None:
        import os
        import re
        from pathlib import Path

        (kilobytes,) = re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
        with Path(self.out, str(os.getpid())).open("a") as file:
            file.write(f"{1024 * int(kilobytes)}\n")

    def model(self) -> Any:
        return self.task.model()

    def dataset(self, split: str) -> Any:
        import numpy

        beds = self.task.dataset(split)
        if split != "train":
            return beds
        self.note()
        if self.whole:
            loaded = [numpy.load(one) for one in beds._files]
            beds._rows = lambda bed: loaded[bed]
        return beds

    def loss(self, model: Any, batch: Any) -> Any:
        self.note()
        return self.task.loss(model, batch)


@pytest.mark.parametrize("buffer", [None, 4096])
def test_a_rank_holds_no_more_than_the_budget_and_a_mutant_does(
    large: Path, tmp_path: Path, buffer: int | None
) -> None:
    assert sum(one.stat().st_size for one in sorted(large.glob("*.npy"))[:-1]) >= 4 * BUDGET
    assert growth(large, tmp_path / "a", shuffle_buffer=buffer) <= BUDGET
    if buffer is None:
        assert growth(large, tmp_path / "b", whole=True) > BUDGET


def growth(folder: Path, out: Path, whole: bool = False, **fields: Any) -> int:
    """Return by how much the memory of its own of a rank grows in an epoch, at most."""
    out.mkdir()
    exp = lenet(
        task=Watched,
        task_options={"folder": str(folder), "out": str(out), "whole": whole},
        batch_size=1024,
        iterations=BEDS * ROWS // 1024,
        **fields,
    )
    assert wb.run(exp).wait(timeout=90).ok
    notes = [[int(one) for one in file.read_text().split()] for file in out.iterdir()]
    assert len(notes) == exp.ranks and all(len(one) == 1 + exp.iterations for one in notes)
    return max(max(one) - one[0] for one in notes)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingest(tmp_path_factory.mktemp("beds"), beds=BEDS + 1, samples=ROWS)


def test_beds_are_written_at_the_same_time_once_and_equal(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = ingest(tmp_path / "a", beds=5, samples=8, progress=lambda *at: seen.append(at))
    assert seen == [(done, 5) for done in range(1, 6)]
    alone = ingest(tmp_path / "b", beds=5, samples=8, threads=1)
    names = sorted(one.name for one in folder.iterdir())
    assert names == sorted(one.name for one in alone.iterdir()) and len(names) == 5
    for name in names:
        assert (folder / name).read_bytes() == (alone / name).read_bytes()
    (folder / names[2]).unlink()
    when = (folder / names[0]).stat().st_mtime_ns
    seen.clear()
    ingest(folder, beds=5, samples=8, progress=lambda *at: seen.append(at))
    assert seen == [(5, 5)] and (folder / names[0]).stat().st_mtime_ns == when


def test_the_rows_of_all_beds_come_in_order_and_the_last_bed_validates(tmp_path: Path) -> None:
    folder = ingest(tmp_path, beds=12, samples=3)
    samples = Task(folder=str(folder)).dataset("train")
    assert len(samples) == 33 and len(Task(folder=str(folder)).dataset("validation")) == 3
    rows = np.concatenate([np.load(one) for one in sorted(folder.glob("*.npy"))[:-1]])
    for i in (*range(33), 0, 32):  # more beds than are open at the same time
        readings, alarm = samples[i]
        assert np.array_equal([*readings.tolist(), alarm.item()], rows[i])


@pytest.mark.parametrize("kills", first(1, [3, 20]))
def test_runs_that_are_killed_go_on_with_the_sample_that_is_next(
    tmp_path: Path, kills: int
) -> None:
    folder = ingest(tmp_path, beds=5, samples=64)
    exp = lenet(
        task="bed_sensors",
        task_options={"folder": str(folder)},
        ranks=3,
        iterations=3 * kills + 5,
        shuffle_buffer=48,
        dtype="float64",
        recovery="replace",
    )
    whole = wb.run(exp).wait(timeout=90)
    faults = [wb.Kill(rank=at % 3, at_iteration=3 * at) for at in range(1, kills + 1)]
    run = wb.run(exp.replace(faults=faults))
    result = run.wait(timeout=300)
    assert result.losses == pytest.approx(whole.losses, rel=1e-12)
    assert_every_sample_once(run)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(wb.SpecError, match="it holds 0 files"):
        wb.run(lenet(task="bed_sensors", task_options={"folder": str(tmp_path)}))
