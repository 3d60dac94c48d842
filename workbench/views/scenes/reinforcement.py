"""Reinforcement: actors, replay, learners and servers, and what goes from one to the other."""

from __future__ import annotations

from workbench.views.stills.reinforcement import Played, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_reinforcement import marks

__all__ = ["draw", "select"]


def draw(selected: Played) -> list[str]:
    """Return a box for each role, and the bytes that went from one to the other."""
    title = "Who played, remembered and learned, and what was sent"
    return [*title_lines(title, selected.words), *marks(selected)]
