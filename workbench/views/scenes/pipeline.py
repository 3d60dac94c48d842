"""Pipeline: the stages of a model, what each computed when, and why it was idle."""

from __future__ import annotations

from workbench.views.stills.pipeline import Piped, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_pipeline import marks

__all__ = ["draw", "select"]

WIDE = True


def draw(selected: Piped) -> list[str]:
    """Return one iteration, a row for each rank."""
    words = selected.words or "No iteration is complete yet."
    return [*title_lines("Where the time went", words), *marks(selected)]
