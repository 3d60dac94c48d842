"""A small picture of the game, for pages: at most one a second, between two blocks.

Each row of it is one number: a 1, then four bits for each pixel. So 13 of them fill the 53 bits
that a double holds exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.recording.events import CODE, now

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.reinforcement.playing import Player

ROWS, COLUMNS, SHADES = 16, 13, 16  # at most
CHANNELS = 4  # at most, of what is a picture
EVERY_NS = 1_000_000_000


def rows_of(observation: np.ndarray) -> list[float]:
    """Return the rows of the picture that an observation is; [] if it is none. Of several channels,
    or frames, the last is taken; a pixel is the brightest of those that it stands for.
    """
    if observation.ndim == 3:
        first, last = observation.shape[0], observation.shape[-1]
        if min(first, last) > CHANNELS:
            return []
        observation = observation[-1] if first <= CHANNELS else observation[..., -1]
    if observation.ndim != 2 or 0 in observation.shape:
        return []
    small = observation.astype(np.float64)
    for axis, most in enumerate((ROWS, COLUMNS)):
        size = small.shape[axis]
        small = np.maximum.reduceat(small, np.arange(0, size, -(-size // most)), axis=axis)
    low, high = small.min(), small.max()
    shades = np.round((small - low) / (high - low or 1.0) * (SHADES - 1)).astype(np.int64)
    numbers = np.ones(len(small), np.int64)
    for column in shades.T:
        numbers = numbers * SHADES + column
    return [float(one) for one in numbers]


def show(job: Job, player: Player) -> None:
    """Record what the player sees, if the last time is one second ago."""
    moment = now()
    if moment - player.shown_ns < EVERY_NS:
        return
    player.shown_ns = moment
    lane, name = job.recorder.lane("compute"), job.recorder.name("picture")
    lane.context(where=job.recorder.where)
    for row, value in enumerate(rows_of(player.observation)):
        lane.write(CODE["metric"], moment, moment, chunk=row, name=name, value=value)
