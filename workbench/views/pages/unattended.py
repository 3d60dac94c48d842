"""Notebooks that a program executes: nbconvert --execute, nbclient, papermill. No page draws them.

Such a program keeps the state of widgets with the notebook, and what renders the notebook later
prefers a widget to its picture: without a network, which has the widgets' own scripts, the place
stays blank. So the widget is left out there, and the picture shows.
"""

from __future__ import annotations

import os
from typing import Any

from IPython import get_ipython

WIDGET = "application/vnd.jupyter.widget-view+json"
_OTHERS = ("text/html", "image/svg+xml", "image/png")


def is_unattended() -> bool:
    """Return whether the cell comes from a program: one that cannot answer a question. Voila is
    one, and has pages nevertheless.
    """
    ask = getattr(getattr(get_ipython(), "kernel", None), "get_parent", None)
    if ask is None or "voila" in os.environ.get("SERVER_SOFTWARE", "").lower():
        return False
    content = (ask("shell") or {}).get("content") or {}
    return content.get("allow_stdin", True) is False


def for_readers(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a cell shows, without its widget where no page runs it and a picture is there."""
    if any(kind in data for kind in _OTHERS) and is_unattended():
        return {kind: value for kind, value in data.items() if kind != WIDGET}
    return data
