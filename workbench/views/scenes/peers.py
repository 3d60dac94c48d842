"""Peers: replicas that mix their parameters with each other."""

from __future__ import annotations

from workbench.views.stills.peers import Mixing, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_peers import marks

__all__ = ["draw", "select"]


def draw(selected: Mixing) -> list[str]:
    """Return which ranks mixed, and how far each is from the mean."""
    title = "Who mixed with whom, and how far each is from the mean"
    return [*title_lines(title, selected.words), *marks(selected)]
