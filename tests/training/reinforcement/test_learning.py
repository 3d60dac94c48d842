"""It learns: the pixel game in seconds, CartPole in less than a minute. One process, in turns, so
that a seed decides all of it; with actors it is in the benchmarks, where time counts too.
"""

from __future__ import annotations

from dataclasses import fields
from statistics import median

import pytest

import workbench as wb
from tests.training.reinforcement.played import done
from workbench.interface import form
from workbench.interface.form_labels import OPTION_PLACES
from workbench.presets.catalogue import presets
from workbench.strategies import ape_x, gorila, sequential

OURS = [one.name for one in presets().values() if one.group == "Reinforcement learning"]


@pytest.mark.full
def test_the_pixel_game_is_learned() -> None:
    exp = presets()["DQN in one process"].experiment
    _, result = done(exp.replace(iterations=700, lr=0.002, pad_environment=None, threads=1))
    assert result.metrics["return"] >= 0.8, "of 20 balls at most two are missed"


@pytest.mark.full
def test_a_pole_is_balanced() -> None:
    exp = presets()["CartPole"].experiment
    scores = [done(exp.replace(seed=seed))[1].metrics["return"] for seed in range(3)]
    assert median(scores) >= 195, scores


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in OURS if name != "CartPole"])
def test_with_actors_the_pixel_game_is_learned_too(name: str) -> None:
    exp = presets()[name].experiment
    scores = [done(exp.replace(seed=seed))[1].metrics["return"] for seed in range(3)]
    assert median(scores) >= 0.8, scores


def test_every_option_has_a_label_in_the_form_and_each_preset_is_the_same_after_it() -> None:
    options = {one.name for module in (ape_x, gorila, sequential) for one in fields(module.Config)}
    assert options <= {*OPTION_PLACES}
    assert len(OURS) >= 6
    for name in OURS:
        exp: wb.Experiment = presets()[name].experiment
        assert form.experiment(form.values(exp)) == exp
