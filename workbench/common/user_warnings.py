"""Warnings name the line of the user's that led to them, however deep in the workbench they are."""

from __future__ import annotations

import sys
import warnings


def warn_user(words: str) -> None:
    """Warn at the nearest caller that is not a module of the workbench; in a thread of the
    workbench's own that is where the thread begins.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "workbench":
        level, frame = level + 1, frame.f_back
    warnings.warn(words, stacklevel=level)
