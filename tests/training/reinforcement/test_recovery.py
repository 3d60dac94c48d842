"""A rank of Gorila is lost and the others go on: its parameters come from a replica, from a
learner's latest pull or from a checkpoint; actors and replays keep what they have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.training.reinforcement.played import counts, game, metric
from workbench.laws import check_events
from workbench.training.parameter_servers.laws import every_push_counts_once

ALL, AT = 30, 12
SERVER, LEARNER, REPLAY, ACTOR = 1, 2, 4, 6  # a rank of each role among seven


def played(lost: int, recovery: str, **fields: Any) -> tuple[wb.Run, wb.Result]:
    """Play with two servers and two learners, and lose a rank on the way."""
    base = {"ranks": 7, "servers": 2, "learners": 2}
    own = {name: one for name, one in base.items() if not fields.get("bundle") and name != "ranks"}
    exp = game(
        "gorila",
        fields.pop("ranks", 7),
        iterations=ALL,
        pad_environment="1 ms",
        pull_every=20,
        record_transitions=True,
        recovery=recovery,
        faults=wb.Kill(rank=lost, at_iteration=AT),
        **{**own, **fields},
    )
    run = wb.run(exp)
    result = run.wait(timeout=120)
    assert result.ok and len(result.losses) == ALL
    assert check_events(run.events, complete=False) == []
    for (_,), part in run.events.group_by("generation"):
        assert every_push_counts_once(part, complete=False) == []
    return run, result


def lost_experience(run: wb.Run) -> int:
    return int(metric(run.events, "lost experience")["value"].sum())


@pytest.mark.parametrize(
    ("lost", "recovery"),
    [(SERVER, "replace"), pytest.param(0, "shrink", marks=pytest.mark.full)],
)
def test_a_lost_servers_parameters_are_whole_in_its_replica(lost: int, recovery: str) -> None:
    run, result = played(lost, recovery, replicas=2)
    (one,) = run.recovery()
    assert (one.lost, one.sources, one.updates_lost) == ((lost,), ("replica",), 0)
    assert result.lost == ([lost] if recovery == "shrink" else [])
    behind = replace(one, failed_in=AT - 1, iteration=AT)  # a server is counted as its learners are
    assert behind.iterations_lost == 0 and "0 iterations lost" in behind.words
    # what was on its way when the group ended is all that is lost of what was played
    came = sum(sum(each["came"].values()) for each in counts(run).values())
    produced = metric(run.events, "transition made").height
    assert came <= produced <= came + lost_experience(run)
    last = run.events.filter(pl.col("generation") == 1)
    assert metric(last, "frames")["rank"].unique().sort().to_list() == [5, 6]


@pytest.mark.full
@pytest.mark.parametrize("recovery", ["shrink", pytest.param("replace", marks=pytest.mark.full)])
def test_without_a_replica_they_come_from_the_latest_pull(recovery: str) -> None:
    run, _ = played(SERVER, recovery)
    (one,) = run.recovery()
    assert (one.lost, one.sources) == ((SERVER,), ("pull",))


@pytest.mark.full
@pytest.mark.parametrize("recovery", ["replace", "shrink"])
def test_or_from_the_last_checkpoint_and_what_they_lack_is_told(
    tmp_path: Path, recovery: str
) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=10, background=False)
    run, _ = played(SERVER, recovery, restored_from="checkpoint", checkpoint=plan)
    (one,) = run.recovery()
    assert (one.lost, one.sources) == ((SERVER,), ("checkpoint",)) and one.updates_lost > 0


@pytest.mark.full
def test_all_ranks_restart_from_a_checkpoint(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=10, background=False)
    run, result = played(SERVER, "restart", checkpoint=plan)
    assert result.lost == [] and len(run.recovery()) == 1


@pytest.mark.full
@pytest.mark.parametrize("recovery", ["replace", "shrink", "wait"])
@pytest.mark.parametrize("lost", [LEARNER, ACTOR])
def test_a_learner_or_an_actor_is_lost_too(lost: int, recovery: str) -> None:
    run, result = played(lost, recovery)
    assert result.lost == ([] if recovery == "replace" else [lost])
    assert run.recovery()[0].updates_lost == 0


@pytest.mark.full
def test_a_fresh_replay_begins_empty_and_what_it_had_is_named() -> None:
    run, _ = played(REPLAY, "replace")
    rows = metric(run.events, "lost experience")
    assert set(rows["rank"]) == {5, 6} and set(rows["peer"]) == {REPLAY}
    produced = metric(run.events, "transition made").filter(pl.col("generation") == 0).height
    assert lost_experience(run) == produced, "all that was sent to it"


@pytest.mark.full
@pytest.mark.parametrize("lost", [0, 2])
def test_bundles_go_on_with_their_games_and_their_replay(lost: int) -> None:
    run, result = played(lost, "replace", ranks=4, bundle=True)
    assert result.lost == []
    frames = metric(run.events, "frames").sort("end_ns")
    for rank in {1, 2, 3} - {lost}:
        assert frames.filter(pl.col("rank") == rank)["value"].is_sorted(), "the same game"


def test_without_any_rank_of_a_role_the_run_ends_and_says_which() -> None:
    fault = wb.Kill(rank=3, at_iteration=5)
    run = wb.run(game("gorila", 4, iterations=40, recovery="shrink", faults=fault))
    with pytest.raises(wb.TooFewRanks, match="every actor has ended") as caught:
        run.wait(timeout=60)
    assert (caught.value.rank, caught.value.how) == (3, "killed")
