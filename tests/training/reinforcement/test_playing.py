"""Games, what becomes of their frames, and how actors explore."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workbench.common.errors import SpecError
from workbench.tasks import catch, gymnasium_game
from workbench.tasks._catch_game import Catch
from workbench.tasks._environments import Game, check_network, evaluate
from workbench.training.reinforcement.exploring import Exploration, ladder
from workbench.training.reinforcement.outliers import FEWEST, Outliers
from workbench.training.reinforcement.playing import Player
from workbench.training.reinforcement.transitions import NSteps, layout_of

# -- the games --


def test_the_pixel_game_keeps_gymnasiums_rules() -> None:
    check_env(Catch(), skip_render_check=True)


@pytest.mark.parametrize("follows", [True, False])
def test_a_player_that_follows_the_ball_catches_it(follows: bool) -> None:
    game, returns = Catch(), []
    game.reset(seed=3)
    for _ in range(20):
        board, _ = game.reset()
        over, frames = False, 0
        while not over:
            ball, paddle = board[0, :-1].sum(0).argmax(), board[0, -1].argmax()
            action = 1 + int(np.sign(ball - paddle)) if follows else 0  # else always to the left
            board, reward, over, _, _ = game.step(action)
            frames += 1
        assert frames == 9 and board.shape == (1, 10, 5) and board.sum() == 2 - (reward == 1)
        returns.append(reward)
    assert (np.mean(returns) == 1) == follows


def test_a_game_begins_alike_from_one_seed_and_not_from_another() -> None:
    games = [[Game(gymnasium.make("CartPole-v1"), seed).reset() for _ in "ab"] for seed in (1, 2)]
    assert (games[0][0] == games[0][1]).all() and (games[0][0] != games[1][0]).any()


def test_discrete_observations_are_a_one_among_zeros() -> None:
    game = Game(gymnasium.make("FrozenLake-v1"), 0)
    assert game.reset().tolist() == [1] + [0] * 15 and game.shape == (16,)


def test_nested_observations_of_an_id_are_one_flat_array() -> None:
    gymnasium_game.check("Blackjack-v1")
    task = gymnasium_game.Task("Blackjack-v1")
    game = Game(task.environment(), 0)
    assert game.shape == (32 + 11 + 2,) and game.reset().sum() == 3, "a one for each of three parts"
    check_network(task.model(), game, "Blackjack-v1")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: gymnasium_game.check("Pendulum-v1"), "takes actions Box.*discrete ones"),
        (lambda: Game(gymnasium.make("Blackjack-v1"), 0), "observations Tuple.*FlattenObservation"),
        (lambda: gymnasium_game.check("os:CartPole-v1"), "names a module to import"),
        (lambda: gymnasium_game.check("CartPool-v7"), "gymnasium cannot make it.*CartPool"),
        (lambda: check_network(nn.Linear(4, 3), cartpole(), "mine"), r"makes \(1, 3\).*\(1, 2\)"),
        (lambda: check_network(nn.Linear(5, 2), cartpole(), "mine"), r"of shape \(4,\)"),
    ],
)
def test_what_cannot_be_learned_is_named(wrong: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        wrong()  # type: ignore[operator]


def cartpole() -> Game:
    return Game(gymnasium.make("CartPole-v1"), 0)


def test_the_score_of_a_network_is_that_of_its_greedy_play() -> None:
    class Left(nn.Module):  # values the left most, whatever it sees
        def __init__(self) -> None:
            super().__init__()
            self.values = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.values.expand(len(x), 3)

    score = evaluate(catch.Task(), Left(), 0)["return"]
    assert -1 <= score < 0


# -- n steps --

EPISODES = st.lists(
    st.tuples(
        st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9),  # rewards
        st.booleans(),  # cut off, or at the end of the game
    ),
    min_size=1,
    max_size=4,
)


@given(EPISODES, st.integers(1, 5), st.sampled_from([1.0, 0.9]))
def test_a_transition_sums_up_its_rewards_and_every_frame_begins_one(
    episodes: list[tuple[list[float], bool]], n: int, gamma: float
) -> None:
    steps = NSteps(layout_of(np.dtype(np.int64), ()), 4, n, gamma)
    records, frame = [], 0
    expected = []
    for rewards, is_cut in episodes:
        for at, reward in enumerate(rewards):
            last = at == len(rewards) - 1
            records += steps.add(
                np.array(frame),
                frame % 3,
                0.5,
                reward,
                np.array(frame + 1),
                2.0,
                ended=last and not is_cut,
                cut=last and is_cut,
                version=frame // 2,
            )
            span = rewards[at : at + n]
            ends = at + len(span) == len(rewards) and not is_cut and len(span) <= n
            total = sum(gamma**k * one for k, one in enumerate(span))
            over = ends and at + n >= len(rewards)
            discount = 0.0 if over else gamma ** len(span)
            priority = abs(total + discount * 2.0 - 0.5)
            expected.append((frame, frame + len(span), total, discount, priority))
            frame += 1
    assert [int(one["number"]) for one in records] == list(range(frame))
    for record, (number, after, total, discount, priority) in zip(records, expected, strict=True):
        assert record["observation"] == number and record["next_observation"] == after
        assert record["action"] == number % 3 and record["version"] == number // 2
        assert record["reward"] == pytest.approx(total, rel=1e-6)
        assert record["discount"] == pytest.approx(discount, rel=1e-6)
        assert record["priority"] == pytest.approx(priority, rel=1e-5, abs=1e-6)
        assert record["actor"] == 4


def test_a_block_has_as_many_transitions_as_asked_and_no_frame_is_lost() -> None:
    task = catch.Task()
    player = Player(
        task.environment(), task.model(), Exploration(1, 1), seed=0, actor=2, steps=3, discount=0.9
    )
    blocks = np.concatenate([player.block(7, version) for version in range(12)])
    assert blocks["number"].tolist() == list(range(84))
    assert (np.diff(blocks["version"]) >= 0).all() and (blocks["actor"] == 2).all()


# -- exploring --


def test_the_ladder_of_eight_actors_is_the_papers() -> None:
    steps = [ladder(0.4, 7, actor, 8) for actor in range(8)]
    assert steps == pytest.approx([0.4**k for k in range(1, 9)])
    assert [round(one, 4) for one in steps] == [
        0.4, 0.16, 0.064, 0.0256, 0.0102, 0.0041, 0.0016, 0.0007
    ]  # fmt: skip
    assert ladder(0.4, 7, 0, 1) == 0.4


def test_exploration_goes_down_in_a_line() -> None:
    line = Exploration(1.0, 0.1, 100)
    assert [line.at(0), line.at(50), line.at(100), line.at(9999)] == [1, 0.55, 0.1, 0.1]


def test_a_player_explores_as_often_as_its_epsilon_says() -> None:
    class Right(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = nn.Parameter(torch.tensor([0.0, 0.0, 1.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.values.expand(len(x), 3)

    player = Player(Catch(), Right(), Exploration(0.3, 0.3), seed=1, actor=0, steps=1, discount=1.0)
    actions = player.block(4000, 0)["action"]
    assert (actions != 2).mean() == pytest.approx(0.2, abs=0.03)  # two of three random ones


# -- outliers --


def test_an_outlier_is_found_and_what_stays_high_is_none_for_long() -> None:
    noise = np.random.default_rng(0)
    outliers = Outliers(5.0)
    assert not any(outliers.is_one(1 + 0.1 * noise.standard_normal()) for _ in range(FEWEST + 200))
    assert outliers.is_one(3.0)
    assert sum(outliers.is_one(3.0) for _ in range(100)) < 20
    none = Outliers(0.0)
    assert not any(none.is_one(one) for one in [*[1.0] * 100, 1e9])
