"""Shards: which part of which layer a rank keeps, and what it has gathered."""

from __future__ import annotations

from workbench.views.stills.shards import Sharded, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_shards import marks

__all__ = ["draw", "select"]


def draw(selected: Sharded) -> list[str]:
    """Return a cell for each layer on each rank."""
    words = selected.words or "No layer has been gathered yet."
    return [*title_lines("Who kept which part of which layer", words), *marks(selected)]
