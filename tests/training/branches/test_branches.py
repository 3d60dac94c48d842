"""Two branches of a graph at the same time: equal to sequential training, and faster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

import workbench as wb
from tests.live import lenet
from workbench.training.branches.fork import find, fork_of
from workbench.training.splitting.traced import trace

WIDTH, BATCH = 24, 16


class Forked:
    """A task with two branches of equal length, and a pad in each."""

    def __init__(self, pad_ms: float = 0.0) -> None:
        self.pad_ms = pad_ms

    def model(self) -> Any:
        import time

        import torch
        from torch import nn

        class Passed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, seconds: float) -> Any:
                ctx.seconds = seconds
                time.sleep(seconds)
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                time.sleep(ctx.seconds)
                return grad, None

        class Padded(nn.Module):
            def __init__(self, seconds: float) -> None:
                super().__init__()
                self.layer, self.seconds = nn.Linear(24, 24), seconds

            def forward(self, x: Any) -> Any:
                return Passed.apply(self.layer(x), 0.0 if x.is_meta else self.seconds)

        class Net(nn.Module):
            def __init__(self, seconds: float) -> None:
                super().__init__()
                self.stem = nn.Linear(8, 24)
                self.left, self.right = Padded(seconds), Padded(seconds)
                self.head = nn.Linear(24, 3)

            def forward(self, x: Any) -> Any:
                x = torch.tanh(self.stem(x))
                left = torch.tanh(self.left(x))
                right = torch.tanh(self.right(x))
                return self.head(left * right + x)

        return Net(self.pad_ms / 1e3)

    def dataset(self, split: str) -> Any:
        import torch

        draw = torch.Generator().manual_seed(0)
        x = torch.randn(70, 8, generator=draw)
        return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long())

    def loss(self, model: Any, batch: Any) -> Any:
        import torch

        x, y = batch
        return torch.nn.functional.cross_entropy(model(x), y)

    def metrics(self, model: Any, batch: Any) -> dict[str, float]:
        x, y = batch
        return {"accuracy": float((model(x).argmax(1) == y).double().mean())}


def forked(strategy: str, **fields: Any) -> wb.Experiment:
    two = {"strategy": strategy, "ranks": 1 if strategy == "sequential" else 2}
    small = {"task": Forked, "batch_size": BATCH, "iterations": 9, "dtype": "float64"}
    return lenet(**{**small, **two, **fields})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("branch", [[], ["right"], ["left"]], ids=str)
def test_losses_and_parameters_equal_sequential(optimizer: str, branch: list[str]) -> None:
    alone = wb.run(forked("sequential", optimizer=optimizer)).wait(timeout=90)
    run = wb.run(forked("branches", optimizer=optimizer, options={"branch": branch}))
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(alone.losses, rel=1e-12, abs=1e-12)
    assert len(set(result.digests.values())) == 1
    for name, value in alone.parameters.items():
        torch.testing.assert_close(result.parameters[name], value, rtol=1e-11, atol=1e-12)
    assert result.metrics == pytest.approx(alone.metrics)
    side = json.loads(run.store.metadata["branch"])
    assert [name for name in side if name.partition(".")[0] in ("left", "right")]


def test_bytes_are_those_of_what_enters_and_leaves_the_branch() -> None:
    run = wb.run(forked("branches", options={"branch": ["right"]}))
    run.wait(timeout=90)
    sends = run.events.filter(kind="send").filter(pl.col("iteration") >= 0)
    sizes = [BATCH] * 4 + [70 % BATCH] + [BATCH] * 4  # samples of the nine minibatches
    each = sends.group_by("rank", "iteration").agg(pl.col("nbytes").sum(), pl.len())
    assert each.height == 2 * 9
    for row in each.iter_rows(named=True):
        whole = sizes[row["iteration"]] * WIDTH * 8
        # Rank 0: what enters, and the gradient of what leaves. Rank 1: the other way round.
        assert row["nbytes"] == 2 * whole and row["len"] == 2, row


def test_padded_branches_take_little_more_than_one_of_them() -> None:
    padded = {"task_options": {"pad_ms": 30}, "iterations": 8}

    def median(run: wb.Run) -> float:
        run.wait(timeout=90)
        ends = run.events.filter(kind="optimizer", rank=0).sort("iteration")["end_ns"]
        value: Any = ends.diff().drop_nulls().median()
        return float(value)

    alone = median(wb.run(forked("sequential", **padded)))
    both = median(wb.run(forked("branches", options={"branch": ["right"]}, **padded)))
    assert both <= 0.65 * alone, (both / 1e6, alone / 1e6)


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))
        self.after = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.one(x) + self.two(x) + self.after(self.three(x)))


def test_the_side_is_chosen_by_time() -> None:
    traced = trace(Inception())
    times = {"one": 5.0, "two": 1.0, "three": 2.0, "after": 2.5}
    fork = find(traced, [times.get(name, 0.1) for name in traced.names])
    side = {traced.names[one] for one in fork.side}
    rival = {traced.names[one] for one in fork.rival}
    longest = {"one"} if "one" in side else {"two", "three", "after"}
    assert longest <= side and {*times} - longest <= rival


def test_what_comes_back_to_a_branch_is_refused() -> None:
    traced = trace(Inception())
    assert fork_of(traced, ["three", "after"]).rival
    with pytest.raises(wb.SpecError, match="no such layer"):
        fork_of(traced, ["four"])
    line = trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
    with pytest.raises(wb.SpecError, match="comes back to it"):
        fork_of(line, ["0", "2"])
    with pytest.raises(wb.SpecError, match="nothing can be computed"):
        fork_of(line, ["0"])
    with pytest.raises(wb.SpecError, match="each layer of this model follows"):
        find(line, [1.0] * len(line.layers))


def test_a_run_that_goes_on_from_a_checkpoint_is_the_one_that_was_not_interrupted(
    tmp_path: Path,
) -> None:
    exp = forked("branches", optimizer="adam", options={"branch": ["right"]})
    whole = wb.run(exp).wait(timeout=90)
    saved = exp.replace(iterations=5, checkpoint=wb.Checkpoint(folder=str(tmp_path), every=5))
    wb.run(saved).wait(timeout=90)
    again = wb.run(exp.replace(resume=str(tmp_path))).wait(timeout=90)
    assert again.losses[-4:] == whole.losses[-4:]
    assert again.digests == whole.digests


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("branches", {"branch": ["right"]}),
        ("pipeline", {"microbatches": 2, "split": "layers"}),  # the model that was cut is garbage
    ],
)
def test_an_audit_finds_the_update_right(strategy: str, options: dict[str, Any]) -> None:
    report = forked(strategy, options=options).audit(progress=False)
    assert report.verdict == "RIGHT", report.sentence


def test_three_ranks_and_pads_are_refused() -> None:
    with pytest.raises(wb.SpecError, match="ranks=2"):
        wb.run(forked("branches", ranks=3))
    with pytest.raises(wb.SpecError, match="pad layers of the model"):
        wb.run(forked("branches", pad_compute="5 ms"))
