"""What the ranks of a pipeline hold, and what a limit on it does."""

from __future__ import annotations

import json

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first


def test_what_one_rank_cannot_hold_four_can() -> None:
    fields = {"iterations": 4, "batch_size": 64}
    whole = wb.run(lenet(strategy="sequential", ranks=1, memory_limit="100 MB", **fields))
    alone = whole.wait(timeout=60).memory[0]
    limit = alone // 2
    stopped = wb.run(
        lenet(strategy="sequential", ranks=1, memory_limit=f"{limit} B", **fields)
    ).wait(timeout=60, check=False)
    assert isinstance(stopped.error, wb.MemoryLimit)
    assert "rank 0 holds" in str(stopped.error) and "activations" in str(stopped.error)
    split = wb.run(lenet(strategy="pipeline", ranks=4, memory_limit=f"{limit} B", **fields))
    result = split.wait(timeout=60)
    assert sorted(result.memory) == [0, 1, 2, 3] and max(result.memory.values()) <= limit
    memory_rows = split.events.filter(
        pl.col("kind").cast(pl.String) == "metric", pl.col("name").cast(pl.String) == "memory"
    )
    assert memory_rows["value"].max() == max(result.memory.values())


@pytest.mark.full
def test_nothing_stays_held_when_a_pass_is_over() -> None:
    """An iteration that is over holds no activation, whole backwards or in two."""
    for schedule in ("1f1b", "zb_h1", "pipedream"):
        options = {"schedule": schedule, "microbatches": 4}
        run = wb.run(lenet(strategy="pipeline", ranks=3, options=options))
        run.wait(timeout=60)
        metrics = run.events.filter(pl.col("kind").cast(pl.String) == "metric")
        held = metrics.filter(pl.col("name").cast(pl.String) == "activations")
        last = held.sort("start_ns").group_by("rank").last()
        stashed = 0.0 if schedule != "pipedream" else 1e9
        assert (last["value"] <= stashed).all(), last
        flying = metrics.filter(pl.col("name").cast(pl.String) == "in flight")
        assert (flying.sort("start_ns").group_by("rank", "stage").last()["value"] == 0).all()


@pytest.mark.full
@pytest.mark.parametrize(
    ("second", "third"),
    first(
        1,
        [
            ("blocks.0.attention.key", "blocks.0.attention.scaled_dot_product_attention"),
            ("blocks.0.attention.scaled_dot_product_attention", "blocks.0.add"),
            ("blocks.1.attention_norm", "norm"),
        ],
    ),
)
def test_a_rank_holds_what_was_planned_wherever_it_is_cut(second: str, third: str) -> None:
    """Received tensors lie in memory as where nothing is cut: attention's answer does as its query,
    and what follows copies the one that does not suit it, and keeps the copy. Of the last stage,
    the logarithms of all characters' probabilities are most of it.
    """
    run = wb.run(
        wb.Experiment(
            strategy="pipeline",
            task="char_transformer",
            ranks=3,
            iterations=2,
            batch_size=32,
            task_options={"layers": 2, "width": 64, "context": 32},
            memory_limit="1 GB",
            options={"split": (second, third), "microbatches": 8},
        )
    )
    memory = run.wait(timeout=60).memory
    planned = json.loads(run.store.metadata["model"])["memory"]
    assert [memory[rank] / planned[rank] for rank in range(3)] == pytest.approx([1] * 3, rel=2e-3)


def test_a_limit_that_no_cut_can_keep_is_said_with_what_would_be_needed() -> None:
    exp = lenet(strategy="pipeline", ranks=2, batch_size=64, memory_limit="50 kB")
    result = wb.run(exp).wait(timeout=60, check=False)
    assert not result.ok and "the thriftiest needs" in str(result.error)
    assert "aborted by its driver" not in str(result.error)
