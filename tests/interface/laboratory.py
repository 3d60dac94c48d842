"""What tests of ``wb.lab()`` share: a short run, waiting for what it shows, its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from tests.live import until
from workbench.interface.laboratory.panel import Lab

OURS = ("workbench charts", "workbench lab", "workbench page", "workbench run")


def threads(others: Collection[threading.Thread]) -> list[str]:
    """Return the names of our threads that are not among ``others``, such as other tests'."""
    return [one.name for one in threading.enumerate() if one.name in OURS and one not in others]


def wait_for(look: Callable[[], object], what: str, seconds: float = 60) -> None:
    until(look, seconds, what)


def small(lab: Lab, **values: object) -> None:
    """Fill in a run that is short."""
    for name, value in {"ranks": 2, "iterations": 20, "batch_size": 16, **values}.items():
        lab.sheet.entries[name].value = value
