"""What cannot be is refused by name before any process starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from torch import nn

import workbench as wb
from tests.training.reinforcement.played import IN_STEP, game

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"strategy": "data_parallel", "ranks": 2}, r"strategy.*trains on samples.*ape_x, gorila"),
        ({"strategy": "ape_x", "ranks": 3, "task": "lenet_digits"}, r"no environment\(\).*catch"),
        ({"strategy": "ape_x", "ranks": 2}, r"leaves 0 actors.*at least 1.*ranks=3"),
        ({"strategy": "ape_x", "ranks": 4, "actors": 1}, r"leaves 2 of ranks=4: take ranks=3"),
        ({"strategy": "ape_x", "ranks": 4, "actors": 0}, r"actors.*1 or more"),
        ({"strategy": "gorila", "ranks": 4, "learners": 0}, r"learners.*1 or more"),
        ({"strategy": "ape_x", "ranks": 900, "replays": 500}, r"replays.*only capacity = 400"),
        (
            {"strategy": "gorila", "ranks": 9, "servers": 3, "replays": 2}
            | {"capacity": 1, "learn_from": 1, "block": 1},
            r"replays = 2.*only capacity = 1",
        ),
        ({"strategy": "ape_x", "ranks": 4, "lockstep": True}, r"lockstep.*ranks=3, and ranks=4"),
        ({"strategy": "gorila", "ranks": 4, "lockstep": True}, r"outlier_above.*0 in lockstep"),
        ({"strategy": "gorila", "ranks": 4, "bundle": True, "replays": 2}, r"replays.*bundle"),
        ({"strategy": "sequential", "learn_from": 500}, r"learn_from.*capacity = 400"),
        ({"strategy": "sequential", "capacity": 10**9}, r"capacity.*10,000,000 at most"),
        ({"strategy": "sequential", "discount": 1.5}, r"discount.*between 0 and 1"),
        ({"strategy": "sequential", "recovery": "shrink"}, r"recovery.*leave it out"),
        (
            {"strategy": "ape_x", "ranks": 4, "recovery": "shrink"},
            r"recovery.*no other rank a copy.*gorila",
        ),
        ({"strategy": "gorila", "ranks": 4, "recovery": "quorum"}, r"recovery.*'wait' or 'shrink'"),
        ({"strategy": "gorila", "ranks": (4, 6), "recovery": "shrink"}, r"none comes or goes"),
        ({"strategy": "gorila", "ranks": 4, "replicas": 2}, r"replicas.*between 1 and servers = 1"),
        ({"strategy": "gorila", "ranks": 4, "restored_from": "checkpoint"}, r"no checkpoints"),
        (
            {"strategy": "gorila", "ranks": 4, "recovery": "shrink", **IN_STEP["gorila"][1]},
            r"recovery.*lockstep",
        ),
        ({"strategy": "sequential", "device": "cuda"}, r"device.*cpu"),
        ({"strategy": "sequential", "pad_environment": "soon"}, r"pad_environment"),
    ],
    ids=lambda one: " ".join(map(str, one.values())) if isinstance(one, dict) else "",
)
def test_an_impossible_experiment_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        game(**fields)


def test_options_of_games_are_refused_for_samples() -> None:
    with pytest.raises(wb.SpecError, match=r"options.*tasks with an environment.*leave them out"):
        wb.Experiment(strategy="sequential", ranks=1, options={"n_step": 2})
    with pytest.raises(wb.SpecError, match=r"pad_environment.*no environment.*pad_compute"):
        wb.Experiment(pad_environment="1 ms")


class Continuous:
    """A task of a user's own whose actions are numbers."""

    def environment(self) -> Any:
        return gymnasium.make("Pendulum-v1")

    def model(self) -> nn.Module:
        return nn.Linear(3, 1)


class TooFew(Continuous):
    """One whose network has a value for one action only."""

    def environment(self) -> Any:
        return gymnasium.make("CartPole-v1")

    def model(self) -> nn.Module:
        return nn.Linear(4, 1)


@pytest.mark.parametrize(
    ("task", "words"),
    [(Continuous, "Pendulum-v1 takes actions Box"), (TooFew, r"makes \(1, 1\).*\(1, 2\)")],
)
@pytest.mark.parametrize("strategy", ["sequential", "ape_x"])
def test_a_users_own_game_is_looked_at_before_ranks_start(
    task: type, words: str, strategy: str
) -> None:
    exp = game(strategy, 1 if strategy == "sequential" else 3, task=task)
    with pytest.raises(wb.SpecError, match=words):
        wb.run(exp)


def test_more_servers_than_parameters_are_refused() -> None:
    class Tiny:
        def environment(self) -> Any:
            return gymnasium.make("CartPole-v1")

        def model(self) -> nn.Module:
            return nn.Linear(4, 2)

    exp = game("gorila", 14, task=Tiny, servers=11)
    with pytest.raises(wb.SpecError, match=r"servers = 11: the network has only 10 parameters"):
        wb.run(exp)


@pytest.mark.full
def test_an_experiment_leaves_gymnasium_alone_and_a_run_without_it_says_what_to_install() -> None:
    code = """
import sys
import workbench as wb
exp = wb.Experiment(strategy="sequential", task="catch", ranks=1)
print("imported:", "gymnasium" in sys.modules)
sys.modules["gymnasium"] = None
try:
    wb.run(exp)
except wb.SpecError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert 'pip install "distributed-training-workbench[rl]"' in done.stdout, done.stderr
    assert done.stdout.startswith("imported: False\n"), done.stderr
