"""Measurements of a training beside the right one, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.studies.drift.first_update import Match
from workbench.studies.drift.measure import Numbers
from workbench.studies.drift.resuming import Resumed

EXACT = 1e-12  # a share, or a relative loss, that float64 alone explains


@dataclass(frozen=True)
class Evidence:
    """One training against the sequential one; "by iteration" from 0, ``shares`` by updates."""

    ranks: int
    loss32: Numbers  # |loss - sequential loss| by iteration
    loss64: Numbers
    level: float  # the sequential loss at the start: what a difference of losses is measured by
    shares32: Mapping[int, float] = field(default_factory=dict)
    shares64: Mapping[int, float] = field(default_factory=dict)
    identical: Mapping[int, bool] = field(default_factory=dict)  # were all digests equal?
    first: Match | None = None
    uneven: int | None = None  # the first iteration whose minibatch the ranks cannot share evenly
    error: str | None = None
    resumed: Resumed | None = None  # the known bug of resuming whose parameters it has
    ours: bool = False  # a strategy of the workbench's own, which has its laws
    rule: str = "sgd"  # the update rule of sequential training
    draws: bool = False  # the task draws random numbers while it computes
    couples: bool = False  # a minibatch's gradient is not the mean of its samples' gradients
    one_rank: Evidence | None = None  # the same loop on one rank, where sequential was not equal

    @property
    def begins_apart(self) -> bool:
        """Whether the loss differs before the first update."""
        return bool(len(self.loss64)) and float(self.loss64[0]) > 1e-9 * self.level


@dataclass(frozen=True)
class Finding:
    """A verdict with its reasons.

    ``since``: the iteration of the first wrong update; None if that is unknown, or nothing is
    wrong.
    """

    kind: str
    which: str = ""
    reasons: tuple[str, ...] = ()
    since: int | None = None

    @property
    def verdict(self) -> str:
        return f"{self.kind}: {self.which}" if self.which else self.kind
