"""The parts that commands share: how one fails, and what several are asked.

Heavy imports wait inside the commands, so that ``workbench --help`` answers at once.
"""

from __future__ import annotations

import os
from typing import Annotated, Never

import typer
from rich.console import Console

Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]

NO_USER_INTERFACE = (
    "the user interface is not installed here; install it with: "
    "pip install 'distributed-training-workbench[ui]'"
)


def fail(error: object) -> Never:
    """End with status 1 and the message, without a traceback: it says what to do."""
    kind = f"{type(error).__name__}: " if isinstance(error, Exception) else ""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"{kind}{error}", style="red", markup=False
    )
    raise typer.Exit(1)


def has_screen() -> bool:
    """Return whether there is a desktop; in a terminal alone a text browser would take it over."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
