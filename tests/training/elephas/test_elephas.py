"""Elephas's modes: each row trained once per epoch, the mean of differences, each push subtracted
once, and what is refused.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.pairwise import first
from tests.training.elephas.one_row_each import ROWS
from workbench import laws
from workbench.common.errors import SpecError
from workbench.experiment.checks import prepare
from workbench.rank import partition_rows
from workbench.rank.partition_rows import columns_of
from workbench.tasks.mlp_layers import Task
from workbench.training.elephas.partition import Partition
from workbench.training.elephas.rounds import Rounds
from workbench.training.parameter_servers import laws as server_laws

FILE = Path(__file__).with_name("one_row_each.py")
EPOCHS, RATE = 3, 0.5


def counted(mode: str, frequency: str, **fields: Any) -> wb.Experiment:
    """Two workers train partitions of 8 and 6 rows, two rows an iteration: an epoch is four."""
    options = {"mode": mode, "frequency": frequency, "rows": f"{FILE}:rows"}
    base = {"ranks": 3, "iterations": 4 * EPOCHS, "batch_size": 4, "lr": RATE, "dtype": "float64"}
    return wb.Experiment(
        strategy="elephas", task=f"{FILE}:Task", **{**base, "options": options, **fields}
    )


def times(result: wb.Result, share: float = 1.0) -> np.ndarray:
    """Return how often each row was trained and counted: a step on two rows lowers each by half."""
    return -result.parameters["times"].numpy() / (RATE / 2 * share)


def applies(run: wb.Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind").cast(pl.String) == "apply").sort("start_ns")


@pytest.mark.parametrize(
    ("mode", "frequency"),
    first(
        3,
        [
            ("synchronous", "epoch"),
            ("asynchronous", "batch"),
            ("hogwild", "batch"),
            ("synchronous", "batch"),
            ("asynchronous", "epoch"),
            ("hogwild", "epoch"),
        ],
    ),
)
def test_each_row_is_trained_once_per_epoch_and_each_push_counts_once(
    mode: str, frequency: str
) -> None:
    run = wb.run(counted(mode, frequency))
    result = run.wait(120)
    counts = times(result, 1 / 2 if mode == "synchronous" else 1)
    if mode == "hogwild":  # an update may be lost, and none counts twice
        assert (np.abs(counts - counts.round()) < 1e-9).all() and (counts <= EPOCHS).all()
    else:
        np.testing.assert_allclose(counts, np.full(ROWS, EPOCHS), atol=1e-12)
    events = run.events
    assert laws.check_events(events) == []
    assert server_laws.every_push_counts_once(events) == []
    assert server_laws.own_updates_are_seen(events) == []
    rounds = 4 * EPOCHS if frequency == "batch" else EPOCHS
    versions = 1 if mode == "synchronous" else 2
    assert applies(run).height == 2 * rounds
    assert applies(run)["version"].max() == versions * rounds
    trained = events.filter(pl.col("kind").cast(pl.String) == "forward")
    assert trained.group_by("rank").len().sort("rank")["len"].to_list() == [12, 9]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two that wait for each other crawl on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.full
def test_a_synchronous_round_is_the_mean_of_partitions_trained_one_after_another() -> None:
    """Against a loop over partitions in this process; momentum begins again in each round."""
    options = {"layers": 2, "width": 16, "samples": 50}
    for frequency in ("epoch", "batch"):
        exp = wb.Experiment(
            strategy="elephas",
            task="mlp_layers",
            task_options=options,
            ranks=4,
            iterations=13,
            batch_size=10,
            momentum=0.9,
            lr=0.1,
            dtype="float64",
            seed=7,
            options={"mode": "synchronous", "frequency": frequency},
        )
        result = wb.run(exp).wait(120)
        for name, value in one_after_another(exp, Task(**options)).items():
            torch.testing.assert_close(result.parameters[name], value, rtol=0, atol=1e-12)


def one_after_another(exp: wb.Experiment, task: Task) -> dict[str, torch.Tensor]:
    """Return the parameters of Elephas's loop, without ranks."""
    data, workers = task.dataset("train"), exp.ranks - 1
    edges = [number * len(data) // workers for number in range(workers + 1)]
    sizes = tuple(stop - start for start, stop in pairwise(edges))
    per_epoch = exp.options["frequency"] == "epoch"
    rounds = Rounds(sizes, exp.batch_size, exp.iterations, exp.seed, per_epoch)
    torch.manual_seed(exp.seed)
    server = task.model().double()
    for begin in range(0, exp.iterations, rounds.length):
        changes = [torch.zeros_like(one) for one in server.parameters()]
        for worker in range(workers):
            model = copy.deepcopy(server)
            optimizer = torch.optim.SGD(model.parameters(), lr=exp.lr, momentum=exp.momentum)
            for iteration in range(begin, min(begin + rounds.length, exp.iterations)):
                places = rounds.ids(worker, iteration) + edges[worker]
                if len(places):
                    x, labels = data[torch.from_numpy(places)]
                    optimizer.zero_grad()
                    task.loss(model, [x.double(), labels]).backward()
                    optimizer.step()
            for change, old, new in zip(
                changes, server.parameters(), model.parameters(), strict=True
            ):
                change += (old.detach() - new.detach()) / workers
        with torch.no_grad():
            for value, change in zip(server.parameters(), changes, strict=True):
                value -= change
    return {name: value.detach() for name, value in server.named_parameters()}


def test_only_hogwild_subtracts_several_pushes_at_a_time() -> None:
    """On a server that is slow: its updates overlap in time, or follow each other."""
    slow = wb.Slow(rank=0, factor=200)
    at_a_time = {}
    for mode in ("asynchronous", "hogwild"):
        run = wb.run(counted(mode, "batch", faults=(slow,)))
        run.wait(120)
        at_a_time[mode] = len(server_laws.applies_never_overlap(run.events))
    assert at_a_time["asynchronous"] == 0 < at_a_time["hogwild"]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(0, 3),
)
def test_an_epoch_has_each_row_of_each_partition_once(
    sizes: list[int], batch_size: int, epoch: int
) -> None:
    rounds = Rounds(tuple(sizes), max(batch_size, len(sizes)), 10_000, 3, True)
    for worker, size in enumerate(sizes):
        first = epoch * rounds.epoch
        mine = [rounds.ids(worker, first + number) for number in range(rounds.epoch)]
        assert sorted(np.concatenate(mine).tolist()) == [*range(size)]
    begins = [one for one in range(3 * rounds.epoch) if rounds.begins(one)]
    assert begins == [0, rounds.epoch, 2 * rounds.epoch]


# -- rows --


def test_rows_arrive_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(np.arange(4.0), 1), ([4.0, 5.0, 6.0, 7.0], 2)]
    columns = columns_of(rows, 0)
    fd = partition_rows.write(columns)
    try:
        monkeypatch.setenv(partition_rows.VARIABLE, str(fd))
        again = partition_rows.inherited()
        assert again is not None
        for ours, theirs in zip(columns, again, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    finally:
        monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file"):
        os.close(fd)  # the rank has closed what it inherited
    like = (torch.zeros(1, 2, 2), torch.tensor(0))
    part = Partition(again, like, "squares")
    assert len(part) == 2 and part[1][0].tolist() == [[[4, 5], [6, 7]]]
    assert part[1][0].dtype == torch.float32 and part[1][1].dtype == torch.int64
    assert partition_rows.inherited() is None


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "partition 1 has no rows"),
        ([(1.0, "cat")], "field 1 of row 0 of partition 1 is 'cat'.*numbers"),
        ([(1.0, None)], "field 1 of row 0 of partition 1 is None"),
        ([(1.0, 2), (1.0,)], "row 1 of partition 1 has 1 fields, others 2"),
        ([([1.0, 2.0],), ([1.0],)], "field 0 of row 1 of partition 1 has the shape"),
        ([([[1.0], [1.0, 2.0]],)], "field 0 of row 0"),
    ],
)
def test_rows_that_are_not_numbers_are_refused(rows: list[Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        columns_of(rows, 1)


def test_rows_that_do_not_fit_the_task_are_refused() -> None:
    like = (torch.zeros(3), torch.tensor(0))
    with pytest.raises(SpecError, match=r"field 0 of a row has 2 numbers.*3 \(shape \(3,\)\)"):
        Partition([np.zeros((5, 2)), np.zeros(5)], like, "threes")
    with pytest.raises(SpecError, match="a row has 1 fields, and a sample of task threes 2"):
        Partition([np.zeros((5, 3))], like, "threes")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ranks": 1}, "ranks.*rank 0 is the server"),
        ({"batch_size": 1}, "batch_size.*divided by 2 workers"),
        ({"options": {"mode": "lazy"}}, "mode.*'synchronous', 'asynchronous' or 'hogwild'"),
        ({"options": {"frequency": "hour"}}, "frequency.*'epoch' or 'batch'"),
        ({"options": {"rows": "digits"}}, "rows.*names a table of a Spark session.*'local'"),
        ({"backend": "gloo"}, "backend.*elephas"),
        ({"memory_limit": "1 GB"}, "memory_limit.*elephas"),
        ({"checkpoint": wb.Checkpoint(folder="x", every=2)}, "checkpoint.*elephas"),
        ({"recovery": "shrink"}, "recovery"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=f"(?s){why}"):
        counted("asynchronous", "epoch", **fields)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return [[(1.0,)]]", "there are 1 partitions for 2 workers"),
        ("return 3", "returns a list of partitions.*int"),
        ("return [[(1.0,)], []]", "partition 1 has no rows"),
        ("raise OSError('no disk')", r"rows\(None\) raised OSError: no disk"),
    ],
)
def test_rows_are_looked_at_before_any_rank_starts(tmp_path: Path, body: str, why: str) -> None:
    file = tmp_path / f"rows_{re.sub(r'[^a-z]', '', body)}.py"
    file.write_text(f"def rows(spark):\n    {body}\n")
    exp = counted("asynchronous", "epoch").replace(options={"rows": f"{file}:rows"})
    with pytest.raises(SpecError, match=why):
        prepare(exp)


def test_hogwild_takes_no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_VERIFY", "1")
    with pytest.raises(SpecError, match="no checksum fits"):
        prepare(counted("hogwild", "epoch"))


def test_vectors_of_spark_are_arrays() -> None:
    vector = SimpleNamespace(toArray=lambda: np.array([1.0, 2.0]))
    assert columns_of([(vector, 3)], 0)[0].tolist() == [[1.0, 2.0]]
