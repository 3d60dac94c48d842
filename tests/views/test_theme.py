"""The colors of theme.css: told apart in both grounds, also by the color-blind; read on them.

Distances are those of CIELAB (dE 76), also after a simulation of what the color-blind see:
Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color Vision
Deficiency", IEEE TVCG 15(6), 2009, severity 1.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from workbench.front_end.assets import theme
from workbench.training.pipelines.schedule_picture import HUES, ON_DARK

GROUNDS = ("light", "dark")
TOKENS = {
    name: both for name, *both in re.findall(r"--([\w-]+):light-dark\((#\w+),(#\w+)\)", theme())
}
RANKS = [f"s{rank}" for rank in range(8)]
SIGHTS = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(name: str, ground: str) -> np.ndarray:
    """Return a token's red, green and blue, in linear light."""
    code = TOKENS.get(name, [name, name])[GROUNDS.index(ground)].removeprefix("#")
    code = "".join(2 * c for c in code) if len(code) == 3 else code
    value = np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(name: str, ground: str, sight: str) -> np.ndarray:
    """Return its place in CIELAB as one of this sight sees it."""
    color = np.clip(SIGHTS[sight] @ linear(name, ground), 0, 1)
    xyz = TO_XYZ @ color / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str, ground: str) -> float:
    a, b = sorted(float(TO_XYZ[1] @ linear(name, ground)) + 0.05 for name in (one, other))
    return b / a


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("ground", GROUNDS)
def test_ranks_are_told_from_each_other_from_bytes_and_from_waits(ground: str, sight: str) -> None:
    """Orange is bytes on their way, and rose is waiting, for everyone who looks."""
    named = {name: lab(name, ground, sight) for name in [*RANKS, "comm", "wait"]}
    for one, other in itertools.combinations(named, 2):
        if {one, other} != {"comm", "wait"}:
            far = float(np.linalg.norm(named[one] - named[other]))
            assert far >= 20, f"{one} and {other} on {ground}, {sight}: {far:.1f}"


# The roles of each key: of the timeline, of a pipeline, of the overview and of the ring.
KEYS = {
    "timeline": "forward backward weight-grad optimizer load comm reduce wait fault hold focus",
    "pipeline": f"{' '.join(RANKS)} comm optimizer wait focus hold fault",
    "overview": "backward comm wait hold done fault focus",
    "ring": f"{' '.join(RANKS)} comm wait hold fault focus",
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("ground", GROUNDS)
def test_roles_that_share_a_key_are_told_apart(ground: str, key: str) -> None:
    for one, other in itertools.combinations(KEYS[key].split(), 2):
        far = float(np.linalg.norm(lab(one, ground, "full") - lab(other, ground, "full")))
        assert far >= 15, f"{one} and {other} on {ground}: {far:.1f}"


@pytest.mark.parametrize("ground", GROUNDS)
def test_what_we_made_ourselves_is_not_taken_for_bytes(ground: str) -> None:
    for sight in SIGHTS:
        far = np.linalg.norm(lab("hold", ground, sight) - lab("comm", ground, sight))
        assert far >= 20, (sight, far)


@pytest.mark.parametrize("ground", GROUNDS)
def test_marks_stand_out_of_their_ground_and_inks_can_be_read(ground: str) -> None:
    for rank in RANKS:
        assert contrast(rank, "ground", ground) >= 3, rank
        assert contrast(rank, "panel", ground) >= 3, rank
        assert contrast(rank, f"on-{rank}", ground) >= 4.5, rank
    assert contrast("link", "ground", ground) >= 2
    for name in ("ink", "ink-2", "ink-3", "live", "hold", "focus", "fault", "wait"):
        assert contrast(name, "ground", ground) >= 4.5, name


def test_the_stills_have_the_colors_of_the_pages() -> None:
    assert list(HUES) == [TOKENS[name][0] for name in RANKS]
    assert list(ON_DARK) == [k for k in range(8) if TOKENS[f"on-s{k}"][0] == "#fff"]
