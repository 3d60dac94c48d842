"""Displays of a run, by name: a widget, charts, a figure, a page, a Panel component.

A run offers them as methods and must not import the user interface, which stands on it. So the
package's face says where each is (``provide``), and it is imported the first time that it is asked
for.
"""

from __future__ import annotations

import importlib
from typing import Any

_places: dict[str, str] = {}  # name -> "module:attribute"


def provide(**places: str) -> None:
    """Register where displays are: by name, "module:attribute"."""
    _places.update(places)


def display(name: str) -> Any:
    """Return the function or class that makes the display ``name``.

    Raises ImportError where its user interface is not installed.
    """
    module, _, attribute = _places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
