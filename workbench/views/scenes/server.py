"""Server: the servers of parameters, or of examples, and their workers."""

from __future__ import annotations

from typing import Any

from workbench.views.pages.server_facts import inputs_facts, server_facts
from workbench.views.scenes import RunRecord
from workbench.views.stills.server import Served, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_server import marks

__all__ = ["draw", "facts", "select"]


def facts(run: RunRecord) -> dict[str, Any]:
    """Return the facts about servers for the page; None if a run has none."""
    return {"server": server_facts(run), "inputs": inputs_facts(run)}


def draw(selected: Served) -> list[str]:
    """Return servers and workers at a busy moment."""
    words = selected.words or "Nothing was pushed yet."
    return [*title_lines("Who pushed and pulled", words), *marks(selected)]
