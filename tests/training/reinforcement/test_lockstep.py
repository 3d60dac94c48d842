"""In lockstep, with one of each role, Gorila and Ape-X are sequential DQN, bit by bit."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.pairwise import first
from tests.training.reinforcement.played import ALONE, IN_STEP, done, game, lawful, metric, same


def in_step(kind: str, **fields: object) -> tuple[wb.Run, wb.Result, wb.Result]:
    """A run in lockstep, and the result of the same by one process."""
    ranks, options = IN_STEP[kind]
    strategy = "gorila" if kind == "bundle" else kind
    run, result = done(game(strategy, ranks, **options, **fields))
    _, alone = done(game("sequential", **ALONE[kind], **fields))
    return run, result, alone


@pytest.mark.parametrize("kind", first(2, IN_STEP))
def test_one_of_each_in_turns_is_sequential_training(kind: str) -> None:
    run, result, alone = in_step(kind, iterations=40)
    lawful(run)
    assert same(result, alone) and len(result.losses) == 40
    assert len(set(result.losses)) == 40, "it learns"
    assert result.metrics == alone.metrics


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("kind", IN_STEP)
def test_it_stays_so_over_500_updates(kind: str, optimizer: str) -> None:
    run, result, alone = in_step(kind, iterations=500, optimizer=optimizer)
    assert same(result, alone)
    lag = metric(run.events, "policy lag")["value"]
    assert kind == "bundle" or lag.max() <= 1


@pytest.mark.full
def test_other_options_change_nothing_about_it() -> None:
    fields = {"iterations": 200, "n_step": 1, "double": False, "target_every": 7}
    options = {"replay": "prioritised", "outlier_above": 0.0, "lockstep": True}
    _, result = done(game("gorila", 4, **options, **fields))
    _, alone = done(game("sequential", replay="prioritised", **fields))
    assert same(result, alone)
