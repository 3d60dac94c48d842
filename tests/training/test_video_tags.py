"""Tags of pictures: a long tail of tags that overlap, and a model that learns the common ones."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.tasks.video_tags import COARSE, COMMON, TAGS, Task


def test_tags_have_a_long_tail_and_overlap() -> None:
    pictures, tags = Task(samples=4_000).dataset("train").tensors  # type: ignore[attr-defined]
    assert pictures.shape == (4_000, 1, 28, 28) and tags.shape == (4_000, TAGS)
    own = COMMON / torch.arange(1, TAGS + 1)
    shares = own.clone()
    shares[:COARSE] = 1 - (1 - own[:COARSE]) * (1 - own[TAGS - COARSE :])
    spread = (shares * (1 - shares) / len(tags)).sqrt()
    assert ((tags.mean(0) - shares).abs() < 5 * spread).all(), tags.mean(0)
    fine = tags[:, TAGS - COARSE :]
    assert (tags[:, :COARSE] >= fine).all(), "a fine tag comes with its coarse one"
    assert (tags.sum(1) > 1).any() and tags.mean(0)[-1] < tags.mean(0)[0] / 5


def test_data_are_the_same_for_every_rank_and_others_for_validation() -> None:
    one, other = (Task().dataset("train").tensors for _ in range(2))  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    held_out, _ = Task().dataset("validation").tensors  # type: ignore[attr-defined]
    assert len(held_out) == 400 and not torch.equal(held_out, one[0][:400])


@pytest.mark.full
def test_it_learns_more_than_the_tags_shares() -> None:
    exp = wb.Experiment(
        strategy="sequential", task="video_tags", ranks=1, iterations=60, batch_size=64,
        optimizer="adam", lr=3e-3, threads=1,
    )  # fmt: skip
    result = wb.run(exp).wait(timeout=120, progress=False)
    _, tags = Task().dataset("validation").tensors  # type: ignore[attr-defined]
    shares = tags.mean(0)
    constant = torch.maximum(shares, 1 - shares).mean().item()  # the best answer without a look
    assert result.metrics["accuracy"] > constant + 0.02
    assert result.metrics["hit"] > shares.max().item() + 0.05


def test_a_server_and_three_workers_train_the_same_model() -> None:
    """As the example of the patterns has it."""
    job = {
        "task": "video_tags",
        "iterations": 4,
        "batch_size": 30,
        "dtype": "float64",
        "threads": 1,
    }
    alone = wb.run(wb.Experiment(strategy="sequential", ranks=1, **job))
    split = wb.run(wb.Experiment(strategy="parameter_server", ranks=4, **job))
    one, four = (run.wait(timeout=120, progress=False) for run in (alone, split))
    assert max(abs(a - b) for a, b in zip(one.losses, four.losses, strict=True)) < 1e-12
