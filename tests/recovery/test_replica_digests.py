"""A bit that flips in one replica is found by digests: which rank, since when, in which tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from tests.recovery.test_policies import (
    assert_as_sequential,
    assert_every_sample_once,
    experiment,
    sequential,
)
from workbench.rank.replica_digests import minority
from workbench.store.recoveries import recoveries_of


def test_the_minority_is_wrong_and_half_is_none() -> None:
    assert minority([[1, 2], [1, 2], [1, 2]]) == ([], [])
    assert minority([[1, 2], [1, 9], [1, 2]]) == ([1], [1])
    assert minority([[1, 2], [7, 9], [1, 2], [1, 8]]) == ([], [0, 1]), "of 4, 2 are not a majority"
    assert minority([[1, 2], [7, 2], [1, 9]]) == ([1, 2], [0, 1])
    assert minority([[1], [2]]) == ([], [0])


CASES: list[tuple[str, dict[str, Any], int, int, int]] = [
    # strategy, options, rank, iteration of the flip, found before iteration (every 4)
    ("data_parallel", {}, 1, 5, 8),
    ("ddp", {"bucket_cap_mb": 0.05}, 0, 4, 8),
    ("fusion", {}, 2, 11, 12),
    ("top_k", {"ratio": 0.5}, 1, 1, 4),
    ("ddp", {"compression": "powersgd", "powersgd_start": 2}, 2, 9, 10),
]


@pytest.mark.parametrize(("strategy", "options", "rank", "at", "until"), first(1, CASES), ids=str)
def test_a_flipped_bit_is_found_at_the_next_comparison(
    strategy: str, options: dict[str, Any], rank: int, at: int, until: int
) -> None:
    iterations = 10 if until == 10 else 16  # the last comparison is at the end
    exp = lenet(
        strategy=strategy,
        options=options,
        ranks=3,
        iterations=iterations,
        optimizer="adam",
        digest_every=4,
        faults=wb.Corrupt(rank=rank, at_iteration=at, kind="bitflip"),
    )
    run = wb.run(exp)
    since = at // 4 * 4
    words = rf"rank {rank} differs from the others since iteration {since + 1} in .*model/"
    with pytest.raises(wb.CorruptReplica, match=words) as error:
        run.wait(timeout=60)
    assert error.value.rank == rank and f"before iteration {until + 1}," in str(error.value)
    rows = run.events.with_columns(pl.col("kind", "name").cast(pl.String))
    detections = rows.filter(pl.col("kind") == "detect", pl.col("name") == "a replica differs")
    assert detections.select("peer", "value").rows() == [(rank, since)]
    struck = rows.filter(pl.col("kind") == "fault")
    assert struck.select("rank", "name", "iteration").rows() == [(rank, "corrupt bitflip", at)]


def test_of_two_ranks_it_is_not_known_which_is_right() -> None:
    flip = wb.Corrupt(rank=1, at_iteration=1, kind="bitflip")
    run = wb.run(lenet(digest_every=2, faults=flip, iterations=9))
    with pytest.raises(wb.CorruptReplica, match="none is known to be right") as error:
        run.wait(timeout=60)
    assert error.value.rank == -1


@pytest.mark.full
def test_two_ranks_that_differ_both_go_back_to_a_checkpoint(tmp_path: Path) -> None:
    flip = wb.Corrupt(rank=1, at_iteration=5, kind="bitflip")
    plan = wb.Checkpoint(folder=str(tmp_path / "checkpoints"), every=3)
    fields = {"recovery": "restart", "digest_every": 4, "checkpoint": plan, "faults": flip}
    run = wb.run(experiment("data_parallel", 2, **fields))
    assert_as_sequential(run, run.wait(timeout=90), {0, 1})
    (one,) = recoveries_of(run.store.metadata)
    assert one.lost == {"0": "corrupt", "1": "corrupt"} and one.fresh == (0, 1)
    assert one.iteration == 3, "the checkpoint of which all were the same"
    detection = run.detection()
    assert not detection.missed and not detection.false_alarms, detection


@pytest.mark.full
def test_replicas_that_are_equal_are_never_found_to_differ_and_train_the_same() -> None:
    exp = lenet(ranks=3, iterations=8, optimizer="adam", strategy="ddp")
    compared = wb.run(exp.replace(digest_every=1)).wait(timeout=60)
    assert compared.losses == wb.run(exp).wait(timeout=60).losses


def test_unchecked_replicas_end_apart() -> None:
    flip = wb.Corrupt(rank=1, at_iteration=1, kind="bitflip")
    result = wb.run(lenet(ranks=3, faults=flip)).wait(timeout=60)
    assert result.digests[0] == result.digests[2] != result.digests[1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"digest_every": -1}, "digest_every = -1"),
        ({"digest_every": 2, "ranks": 1, "strategy": "sequential"}, "no other to be compared with"),
        ({"digest_every": 2, "strategy": "gossip"}, "data_parallel, ddp, fusion"),
        ({"digest_every": 2, "strategy": "fsdp"}, "do not hold the same parameters"),
    ],
)
def test_what_cannot_be_compared_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**fields)


@pytest.mark.parametrize("policy", first(1, ["restart", "replace", "shrink", "wait"]))
def test_a_replica_that_differs_is_treated_as_lost(policy: str, tmp_path: Path) -> None:
    """``restart`` goes back to a time before the bit flipped, so that nothing is left of it."""
    flip = wb.Corrupt(rank=1, at_iteration=5, kind="bitflip")
    plan = wb.Checkpoint(folder=str(tmp_path / "checkpoints"), every=3)
    fields = {"recovery": policy, "digest_every": 4, "faults": flip}
    fields |= {"checkpoint": plan} if policy == "restart" else {}
    run = wb.run(experiment("data_parallel", 3, **fields))
    result = run.wait(timeout=90)
    ranks = {0, 1, 2} if policy in ("restart", "replace") else {0, 2}
    assert set(result.digests) == ranks and len(set(result.digests.values())) == 1
    (one,) = recoveries_of(run.store.metadata)
    assert one.lost == {"1": "corrupt"} and one.fresh == ((1,) if 1 in ranks else ())
    # Found before iteration 6, of which a checkpoint is due; without one, before iteration 8.
    failed_in, goes_on = (6, 3) if policy == "restart" else (8, 8)
    assert (one.failed_in, one.iteration) == (failed_in, goes_on)
    alone = sequential()
    if policy == "restart":
        assert_as_sequential(run, result, ranks)
    else:
        assert result.losses[:5] == pytest.approx(alone[:5], rel=1e-12)
        assert result.losses[5:] != pytest.approx(alone[5:], rel=1e-12), "one gradient was wrong"
        assert_every_sample_once(run)
    detection = run.detection()
    assert not detection.missed and not detection.false_alarms, detection
    assert detection.each[0].how == "a replica differs"
    assert "rank 1 was corrupt" in repr(run.recovery())
