"""Ranges of options that several strategies have, each with its words."""

from __future__ import annotations

from workbench.common.errors import SpecError


def check_counts(config: object, *names: str) -> None:
    """Raise SpecError for an option of these names that is not 1 or more."""
    for name in names:
        if getattr(config, name) < 1:
            raise SpecError.at(name, "must be 1 or more", getattr(config, name))


def check_buddies(every: int) -> None:
    """Raise SpecError for a ``buddy_every`` below 0."""
    if every < 0:
        raise SpecError.at("buddy_every", "must be 0 (no copies) or more", every)


def check_memory_weight(weight: float) -> None:
    """Raise SpecError for a ``memory_weight`` that is not from 0 to 1."""
    if not 0 <= weight <= 1:
        raise SpecError.at("memory_weight", "must be 0 (computing) to 1 (memory)", weight)
