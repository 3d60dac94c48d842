"""For each exercise a right answer and two wrong ones; a chapter's are a module beside this one.

ANSWERS = {"01.1": (right, wrong, wrong), ...}
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any


def answers() -> dict[str, tuple[Any, ...]]:
    """Return those of all chapters."""
    result: dict[str, tuple[Any, ...]] = {}
    folder = Path(__file__).parent
    for module in pkgutil.iter_modules([str(folder)]):
        if module.name.startswith("chapter_"):
            result |= importlib.import_module(f"tests.exercises.{module.name}").ANSWERS
    return result
