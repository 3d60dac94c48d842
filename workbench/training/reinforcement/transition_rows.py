"""A row for each transition, wherever it goes: made, inserted or dropped, drawn, learned from.

With the option ``record_transitions``; ``laws/transitions.py`` follows each of them by these rows.
``peer`` is the other rank, ``chunk`` the actor that the transition names (where it is made: the
actor that makes it), ``value`` its number there. Without the option blocks are counted, and no row
is written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.recording.events import CODE, now

if TYPE_CHECKING:
    from workbench.rank.job import Job

MADE, INSERTED, DROPPED, DRAWN, LEARNED = (
    f"transition {what}" for what in ("made", "inserted", "dropped", "drawn", "learned")
)
CAPACITY = "replay capacity"  # of a replay that begins empty
_METRIC = CODE["metric"]


class TransitionRows:
    """The rows of one rank, in one of its lanes. ``on``: whether any are written."""

    def __init__(self, job: Job, on: bool, lane: str = "compute") -> None:
        self._job, self._on, self._lane = job, on, job.recorder.lane(lane)

    def holds(self, capacity: int) -> None:
        """Record that a replay begins, empty, and how many transitions it holds."""
        if self._on:
            self._lane.context(where=self._job.recorder.where)
            moment, name = now(), self._job.recorder.name(CAPACITY)
            self._lane.write(_METRIC, moment, moment, name=name, value=capacity)

    def note(self, what: str, transitions: np.ndarray, peer: int, actor: int | None = None) -> None:
        """Record what has become of transitions (records of ``layout_of``).

        ``peer``: the place of the other rank. ``actor``: the number of the actor that made them;
        left out: as each of them says.
        """
        if not self._on:
            return
        self._lane.context(where=self._job.recorder.where)
        moment, name = now(), self._job.recorder.name(what)
        run_rank, write = self._job.session.run_rank(peer), self._lane.write
        numbers = transitions["number"].tolist()
        actors = transitions["actor"].tolist() if actor is None else [actor] * len(numbers)
        for each, number in zip(actors, numbers, strict=True):
            write(_METRIC, moment, moment, run_rank, chunk=each, name=name, value=number)
