"""Records that travel between the judge and the ranks: a run that is asked for, and what it saw."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Loss = tuple[int, int]  # a rank, and the number of its loss
Copy = tuple[int, str]  # a rank, and the name of a leaf there


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A run that the judge asks for."""

    first: bool = False  # as the script is, with the weights of samples looked up
    lens: bool = False  # as the script is, with its collectives looked at
    nudge: dict[Copy, tuple[str, float]] = field(default_factory=dict)  # direction's key, length
    scale: dict[Loss, float] = field(default_factory=dict)  # of the seeds of these losses
    rest: float = 1.0  # of the seeds of all others
    until: dict[int, int] = field(default_factory=dict)  # rank -> its last loss that is needed
    alone: bool = False  # on rank 0 only, as a job of one rank
    real: bool = False  # with the script's own optimizer
    seconds: float = 60.0  # until it is given up

    def message(self) -> dict[str, Any]:
        """Return it as it travels."""
        return asdict(self) | {
            "nudge": [[*copy, *how] for copy, how in self.nudge.items()],
            "scale": [[*loss, factor] for loss, factor in self.scale.items()],
        }

    @staticmethod
    def of(message: dict[str, Any]) -> Ask:
        """Return what ``message`` describes."""
        nudge = {(rank, name): (key, eps) for rank, name, key, eps in message["nudge"]}
        scale = {(rank, number): factor for rank, number, factor in message["scale"]}
        until = {int(rank): count for rank, count in message["until"].items()}
        return Ask(**message | {"nudge": nudge, "scale": scale, "until": until})


@dataclass
class Vector:
    """The elements that a loss sums or averages. ``weight``: of each, as backward gives it."""

    count: float
    weight: float | None = None
    is_mean: bool = False  # the mean is known to be over them: else a sum may be one's intention
    alike: bool = True  # no weights of classes


@dataclass
class LossSeen:
    """A loss of a rank. ``vectors``: what it averages; None: not known."""

    value: float
    vectors: list[Vector] | None = None


@dataclass
class Leaf:
    """A parameter, or the part of it on one rank, around one update."""

    before: np.ndarray
    after: np.ndarray
    grad: np.ndarray | None
    parts: np.ndarray | None  # the gradient of this rank's own backward passes
    past: np.ndarray | None  # the gradient of the update before
    place: int | None  # in the order of use
    dtype: str
    owner: str  # the class of its module
    shards: list[list[Any]] | None  # a DTensor's placements that divide it, with coordinates
    optimized: bool  # an optimizer has it
    parameter: bool


@dataclass
class Carried:
    """A collective, and the leaves whose own gradients its buffer holds."""

    call: str
    line: str
    group: list[int]
    when: str
    names: list[str]


@dataclass
class Seen:
    """The record of one rank in one run."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    losses: list[LossSeen] = field(default_factory=list)
    error: str = ""
    steps: int = 0  # of optimizers
    groups: list[tuple[str, list[int]]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # leaves that were overwritten after their use
    hints: list[str] = field(default_factory=list)  # "!" begins one that is wrong in any case
    carried: list[Carried] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)  # imported late, in the first run

    @staticmethod
    def of(message: dict[str, Any]) -> Seen:
        """Return what ``message`` describes."""
        losses = [
            LossSeen(
                one["value"],
                None if one["vectors"] is None else [Vector(**each) for each in one["vectors"]],
            )
            for one in message["losses"]
        ]
        return Seen(
            **message
            | {
                "leaves": {name: Leaf(**one) for name, one in message["leaves"].items()},
                "losses": losses,
                "carried": [Carried(**one) for one in message["carried"]],
            }
        )


def message_of(seen: Seen) -> dict[str, Any]:
    """Return what a rank saw as it travels; arrays stay as they are."""
    leaves = {name: vars(leaf) for name, leaf in seen.leaves.items()}
    return {
        **vars(seen),
        "leaves": leaves,
        "losses": [asdict(one) for one in seen.losses],
        "carried": [vars(one) for one in seen.carried],
    }


def direction(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the random direction of this name, the same in every process."""
    return np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape)
