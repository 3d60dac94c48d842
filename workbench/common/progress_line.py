"""A line of progress in the terminal, each over the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable


def progress_line(show: bool, begin: str = "") -> Callable[[str], None]:
    """Return what shows a text as the line of progress; "" removes it. ``begin``: what each begins
    with. Where ``show`` is false it shows nothing.
    """

    def say(text: str) -> None:
        if show:
            line = f"{begin}{text}" if text else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return say
