"""A data source that is down: the run pauses, says so, and goes on when it is back."""

from __future__ import annotations

import errno
import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, lenet, until
from tests.pairwise import first
from tests.recovery.lasting import ended
from tests.recovery.test_policies import assert_every_sample_once
from workbench.common import idx
from workbench.rank.data_source import is_down
from workbench.rank.outage import delay
from workbench.store.recoveries import recoveries_of


class Files:
    """A task whose samples are files, read when they are asked for. A file "wrong" there, and
    building its model raises.
    """

    def __init__(self, *, folder: str) -> None:
        self.folder = folder

    def model(self) -> Any:
        import os

        import torch

        if os.path.exists(f"{self.folder}/wrong"):
            raise ValueError("my own mistake")
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def dataset(self, split: str) -> Any:
        import numpy as np

        folder = self.folder

        class OfFiles:
            def __len__(self) -> int:
                return 48

            def __getitem__(self, i: int) -> Any:
                return np.load(f"{folder}/{i}.npy")

        return OfFiles()

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch).square().mean()


def written(folder: Path) -> Path:
    """Write the files of all samples. Returns their folder."""
    folder.mkdir()
    for i, one in enumerate(np.random.default_rng(1).normal(size=(48, 4))):
        np.save(folder / f"{i}.npy", one)
    return folder


def experiment(folder: Path, **fields: Any) -> wb.Experiment:
    small = {"ranks": 3, "iterations": LONG, "batch_size": 6, "dtype": "float64"}
    return lenet(
        task=Files,
        task_options={"folder": str(folder)},
        **{**small, "optimizer": "adam", "pad_compute": "20 ms", **fields},
    )


def notices(run: wb.Run) -> list[tuple[str, int]]:
    """Return what was noticed of the source, in order: the rows' names and ranks."""
    rows = run.events.with_columns(pl.col("kind", "name").cast(pl.String)).sort("start_ns")
    rows = rows.filter(pl.col("kind") == "detect", pl.col("name").str.starts_with("data source"))
    return rows.select("name", "peer").rows()


@functools.cache
def undisturbed(iterations: int) -> list[float]:
    """Return the losses of one process whose files are always there."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        exp = experiment(
            written(Path(place) / "files"), strategy="sequential", ranks=1, iterations=iterations
        )
        return wb.run(exp.replace(pad_compute=None)).wait(timeout=90).losses


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("data_parallel", "replace", {}),
    ("data_servers", "abort", {"options": {"ahead": 3}}),
    ("ddp", "abort", {}),
    ("data_parallel", "restart", {}),
    ("pipeline", "replace", {"ranks": 2, "options": {"microbatches": 2}}),
    ("parameter_server", "shrink", {}),
]


@pytest.mark.parametrize(("strategy", "policy", "fields"), first(1, CASES), ids=str)
def test_a_run_pauses_while_its_files_are_gone_and_loses_nothing(
    strategy: str, policy: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    files, away = written(tmp_path / "files"), tmp_path / "away"
    plan_folder = tmp_path / "checkpoints"
    plan = wb.Checkpoint(folder=str(plan_folder), every=10_000)
    exp = experiment(files, strategy=strategy, recovery=policy, checkpoint=plan, **fields)
    run = wb.run(exp.replace(timeout="1 s"))  # the clocks stand longer than that
    until(lambda: run.done or LONG > run.iteration >= 3, 60, "it trains")
    files.rename(away)
    until(lambda: run.done or notices(run), 60, "it is noticed")
    assert not run.done, run.result.error
    time.sleep(1.5)
    if strategy != "pipeline":  # its stages are built with samples: there are none before
        until(lambda: run.done or [*plan_folder.glob("iteration-*")], 60, "it is saved")
    assert {name for name, _ in notices(run)} == {"data source down"}, "it waits"
    saved = [one.name for one in plan_folder.glob("iteration-*")]
    stood = run.iteration
    away.rename(files)
    until(lambda: run.done or run.iteration > stood + 3, 60, "it goes on")
    result = ended(run)
    whole = undisturbed(len(result.losses))
    assert result.losses == pytest.approx(whole, rel=1e-12, abs=1e-12)
    names = [name for name, _ in notices(run)]
    assert names.count("data source down") == names.count("data source back") > 0
    if strategy != "data_servers":
        (one,) = recoveries_of(run.store.metadata)
        assert one.lost == {}
        if strategy == "pipeline":
            saved = sorted(one.name for one in plan_folder.glob("iteration-*"))[:1]
        assert saved == [f"iteration-{one.iteration:08d}"]
    if strategy == "data_servers":
        assert len(saved) == 1 and {rank for _, rank in notices(run)} == {0}, "its server"
    if strategy in ("data_parallel", "ddp"):
        assert_every_sample_once(run)
    assert not run.detection().false_alarms


@functools.cache
def digits(strategy: str, ranks: int, **fields: Any) -> list[float]:
    """Return the losses of a run whose source is always there."""
    return wb.run(lenet(strategy=strategy, ranks=ranks, **OUTAGE, **fields)).wait(90).losses


OUTAGE: dict[str, Any] = {"iterations": 8, "optimizer": "adam"}


@pytest.mark.parametrize(
    ("strategy", "policy"),
    first(
        2,
        [
            ("data_parallel", "abort"),
            ("data_servers", "abort"),
            ("ddp", "replace"),
            ("data_parallel", "shrink"),
            ("fsdp", "restart"),
        ],
    ),
)
def test_a_source_that_goes_down_is_waited_for_and_no_bit_of_a_loss_changes(
    strategy: str, policy: str, tmp_path: Path
) -> None:
    fault = wb.SourceDown(at_iteration=5, seconds=3, slow_iterations=2)
    plan = wb.Checkpoint(folder=str(tmp_path / "saved"), every=10_000)
    exp = lenet(strategy=strategy, ranks=3, recovery=policy, checkpoint=plan, **OUTAGE)
    run = wb.run(exp.replace(faults=fault, timeout="1 s"))
    result = run.wait(timeout=90)
    assert result.losses == digits(strategy, 3)
    assert len({*result.digests.values()}) == 1
    names = [name for name, _ in notices(run)]
    assert names.count("data source down") == names.count("data source back") > 0
    if strategy != "data_servers":  # its server reads ahead
        assert (tmp_path / "saved" / "iteration-00000005").is_dir(), "before the pause"
        rows = run.events.with_columns(pl.col("kind").cast(pl.String))
        loads = rows.filter(pl.col("kind") == "load", pl.col("rank") == 1)
        took = dict(loads.select("iteration", pl.col("end_ns") - pl.col("start_ns")).iter_rows())
        assert took[3] > 0.1e9 and took[4] > 0.2e9, "it becomes slow first"
    (one,) = run.detection().each
    assert (one.fault, one.how) == ("source down", "data source down")
    assert not run.detection().false_alarms


def test_a_source_that_is_not_back_in_time_ends_the_run() -> None:
    fault = wb.SourceDown(at_iteration=2, seconds=30, slow_iterations=0)
    run = wb.run(lenet(ranks=2, data_patience="0.3 s", faults=fault))
    with pytest.raises(wb.DataSourceDown, match=r"does not answer.*data_patience='0.3 s'"):
        run.wait(timeout=60)


def test_a_source_goes_down_more_than_once() -> None:
    faults = [wb.SourceDown(at_iteration=at, seconds=0.2, slow_iterations=0) for at in (2, 5)]
    run = wb.run(lenet(strategy="data_parallel", ranks=2, faults=faults, **OUTAGE))
    assert run.wait(timeout=60).losses == digits("data_parallel", 2)
    assert [one.fault for one in run.detection().each] == ["source down"] * 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"faults": wb.SourceDown(at_iteration=8, seconds=1)}, "never happens"),
        ({"faults": [wb.SourceDown(at_iteration=3, seconds=1)] * 2}, "another SourceDown"),
        (
            {
                "faults": wb.SourceDown(at_iteration=3, seconds=1),
                **{"strategy": "ape_x", "task": "catch", "ranks": 3},
            },
            "it reads no samples",
        ),
    ],
)
def test_a_source_that_cannot_go_down_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**{"iterations": 8, **fields})


def test_reading_takes_twice_as_long_each_time_before_the_source_is_down() -> None:
    faults = [wb.SourceDown(at_iteration=4, seconds=1)]
    assert [delay(faults, at) for at in range(-1, 6)] == [0, 0, 0.05, 0.1, 0.2, 0, 0]


@pytest.mark.parametrize("policy", first(1, ["replace", "restart"]))
def test_what_a_rank_raises_as_it_recovers_ends_the_run_and_is_named(
    policy: str, tmp_path: Path
) -> None:
    files, plan = written(tmp_path / "files"), wb.Checkpoint(folder=str(tmp_path / "saved"))
    run = wb.run(experiment(files, recovery=policy, checkpoint=plan))
    until(lambda: run.done or run.iteration >= 2, 60, "it trains")
    (files / "wrong").touch()
    run.kill(1)
    with pytest.raises(wb.RankError, match="ValueError: my own mistake") as raised:
        run.wait(timeout=60)
    assert raised.value.rank in range(3) and len(recoveries_of(run.store.metadata)) == 1


def test_after_the_bound_it_is_an_error_that_names_the_source(tmp_path: Path) -> None:
    files = written(tmp_path / "files")
    run = wb.run(experiment(files, data_patience="0.3 s"))
    until(lambda: run.done or run.iteration >= 2, 60, "it trains")
    files.rename(tmp_path / "away")
    with pytest.raises(wb.DataSourceDown, match=r"files/\d+\.npy.*data_patience='0.3 s'") as failed:
        run.wait(timeout=60)
    assert failed.value.rank in range(3)


@pytest.mark.full
def test_a_sample_that_is_gone_alone_is_a_bad_sample_and_no_source(tmp_path: Path) -> None:
    files = written(tmp_path / "files")
    (files / "7.npy").unlink()
    exp = experiment(files, bad_minibatch="skip", iterations=8, pad_compute=None)
    run = wb.run(exp)
    assert run.wait(timeout=60).ok and not notices(run)
    (one,) = run.skipped()
    assert one.bad == (7,)


@pytest.mark.full
@pytest.mark.parametrize("rank", first(1, [0, 2]))
def test_a_lost_data_server_or_worker_is_replaced(rank: int) -> None:
    fields = {"strategy": "data_servers", "ranks": 3, "iterations": 9, "dtype": "float64"}
    kill = wb.Kill(rank=rank, at_iteration=4)
    run = wb.run(lenet(**fields, optimizer="adam", recovery="replace", faults=kill))
    result = run.wait(timeout=90)
    alone = lenet(**{**fields, "strategy": "sequential", "ranks": 1}, optimizer="adam")
    expected = wb.run(alone).wait(timeout=90).losses
    assert result.losses == pytest.approx(expected, rel=1e-12, abs=1e-12)
    (one,) = recoveries_of(run.store.metadata)
    assert one.fresh == (rank,) and len(set(result.digests.values())) == 1


def test_files_that_a_task_of_ours_misses_are_a_source_that_is_down(tmp_path: Path) -> None:
    with pytest.raises(wb.SpecError, match="does not hold the data set") as missing:
        idx.read(tmp_path, "validation")
    assert is_down(missing.value)
    assert is_down(ConnectionResetError()) and is_down(FileNotFoundError(2, "no such file"))
    assert not is_down(OSError("sample 3 cannot be read")), "of one sample"
    assert not is_down(wb.PeerLost("gone")) and not is_down(wb.SpecError("wrong"))
    assert not is_down(OSError(errno.EMFILE, "too many open files"))
