"""The options that every strategy of reinforcement learning has, and what they must be.

Each strategy's ``Config`` names and explains them; here is what reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from workbench.common.errors import SpecError
from workbench.experiment.option_ranges import check_counts
from workbench.training.reinforcement.exploring import Exploration

MOST_CAPACITY = 10_000_000  # transitions: replay is in memory


class Options(Protocol):
    """The part of a strategy's ``Config`` that playing, replay and learning need."""

    @property
    def replay(self) -> str: ...
    @property
    def capacity(self) -> int: ...
    @property
    def learn_from(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def n_step(self) -> int: ...
    @property
    def discount(self) -> float: ...
    @property
    def double(self) -> bool: ...
    @property
    def target_every(self) -> int: ...
    @property
    def priority_exponent(self) -> float: ...
    @property
    def importance_exponent(self) -> float: ...


def exponents(options: Options) -> tuple[float, float] | None:
    """Return α and β of prioritised replay; None: replay is uniform."""
    if options.replay == "uniform":
        return None
    return options.priority_exponent, options.importance_exponent


def annealed(first: float, last: float, frames: int) -> Exploration:
    """Return the exploration of an actor whose ε goes down. Raises SpecError."""
    for name, value in (("epsilon_first", first), ("epsilon", last)):
        _need_probability(name, value)
    if frames < 0:
        raise SpecError.at("epsilon_frames", "must be 0 or more", frames)
    return Exploration(first, last, frames)


def check_options(options: Options) -> None:
    """Raise SpecError for values that make no sense by themselves."""
    check_counts(options, "capacity", "learn_from", "block", "n_step", "target_every")
    if options.capacity > MOST_CAPACITY:
        raise SpecError.at("capacity", f"must be {MOST_CAPACITY:,} at most", options.capacity)
    for name in ("discount", "priority_exponent", "importance_exponent"):
        _need_probability(name, getattr(options, name))
    for name in ("learn_from", "block"):
        if getattr(options, name) > options.capacity:
            raise SpecError.at(
                name,
                f"replay holds capacity = {options.capacity} transitions: take no more than that",
                getattr(options, name),
            )


class Distributed(Options, Protocol):
    """The options of strategies with several roles."""

    @property
    def actors(self) -> int | None: ...
    @property
    def pull_every(self) -> int: ...
    @property
    def ask_ahead(self) -> int: ...
    @property
    def max_policy_lag(self) -> int | None: ...
    @property
    def lockstep(self) -> bool: ...
    @property
    def record_transitions(self) -> bool: ...


def check_distributed(options: Distributed, counts: Mapping[str, int]) -> None:
    """Raise SpecError for roles that no rank has, and for bounds that cannot be kept.

    ``counts``: ranks of each role, by the option's name.
    """
    least = {**dict.fromkeys(counts, 1), "pull_every": 1, "ask_ahead": 0}
    if options.actors is not None:
        least["actors"] = 1
    if options.max_policy_lag is not None:
        least["max_policy_lag"] = 1
    for name, lowest in least.items():
        if (value := getattr(options, name)) < lowest:
            raise SpecError.at(name, f"must be {lowest} or more", value)
    shards = counts.get("replays", 1)  # servers divide parameters: their number is checked later
    if shards > options.capacity:
        why = f"there are only capacity = {options.capacity} transitions to divide"
        raise SpecError.at("replays", why, shards)


def check_lockstep(options: Distributed, ranks: int, needed: int) -> None:
    """Raise SpecError unless there is one rank of each role, where they take turns."""
    if options.lockstep and ranks != needed:
        why = f"is one rank of each role in turns, so ranks={needed}, and ranks={ranks}"
        raise SpecError.at("options.lockstep", why)


def warm_up_blocks(options: Options) -> int:
    """Return how many blocks are played before the first update, in sequential training and in
    lockstep.
    """
    return -(-options.learn_from // options.block)


def _need_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise SpecError.at(name, "must be between 0 and 1", value)
