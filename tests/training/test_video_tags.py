"""Tags of pictures: a long tail of tags that overlap, and a model that learns the common ones."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.tasks import _tag_features as features
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


def test_400_tags_have_a_long_tail_and_fine_ones_bring_their_coarse_one() -> None:
    data = Task(samples=6_000, tags=400).dataset("train")
    vectors, tags = data.tensors  # type: ignore[attr-defined]
    assert vectors.shape == (6_000, 128) and tags.shape == (6_000, 400)
    counts = tags.sum(0)
    assert counts[:20].min() > 10 * counts[-20:].max() and counts[-20:].max() < 30
    for tag in range(features.COARSE, 400):
        assert (tags[:, features.coarse_of(tag)] >= tags[:, tag]).all()
    again = Task(samples=6_000, tags=400).dataset("train").tensors[0]  # type: ignore[attr-defined]
    assert again is vectors, "computed once"
    held_out = Task(samples=6_000, tags=400).dataset("validation")
    assert len(held_out) == 1_200 and not torch.equal(held_out[0][0], vectors[0])  # type: ignore[arg-type]


def test_gap_is_the_precision_of_all_guesses_in_the_order_of_their_scores() -> None:
    tags = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2]])
    # By score: 0.9 right, 0.8 wrong, 0.7 right, 0.3 wrong: (1 / 1 + 2 / 3) / 3 tags.
    assert features.gap(scores, tags, most=2) == pytest.approx((1 + 2 / 3) / 3)
    assert features.gap(tags, tags) == pytest.approx(1.0)
    assert features.gap(-tags, tags) < 0.6
    each = features.precision_by_tag(scores, tags)
    assert each == pytest.approx([1.0, 0.5, 1.0])


def test_the_tail_is_learned_worse_than_the_head_and_better_than_by_counting() -> None:
    exp = wb.Experiment(
        strategy="sequential", task="video_tags", ranks=1, iterations=120, batch_size=96,
        optimizer="adam", lr=1e-2, threads=1,
        task_options={"samples": 6_000, "noise": 0.1, "tags": 400},
    )  # fmt: skip
    result = wb.run(exp).wait(timeout=120, progress=False)
    task = Task(**exp.task_options)
    model = task.model()
    model.load_state_dict(result.parameters)
    vectors, tags = task.dataset("validation").tensors  # type: ignore[attr-defined]
    with torch.no_grad():
        scores = model(vectors)
    often = task.dataset("train").tensors[1].mean(0)  # type: ignore[attr-defined]
    assert features.gap(scores, tags) > 2 * features.gap(often.expand_as(tags), tags)
    each = torch.tensor(features.precision_by_tag(scores, tags))
    head, tail = (part[~part.isnan()].mean() for part in (each[:50], each[-200:]))
    assert head > 2 * tail


def test_other_numbers_of_tags_are_refused() -> None:
    with pytest.raises(ValueError, match="10 of pictures, or 400"):
        Task(tags=20)
