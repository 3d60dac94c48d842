"""The parts that commands share: how one fails, and what several are asked.

Heavy imports wait inside the commands, so that ``workbench --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any, Never

import typer
from rich.console import Console

Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]

NO_USER_INTERFACE = (
    "the user interface is not installed here; install it with: "
    "pip install 'distributed-training-workbench[ui]'"
)


if os.environ.get("COLUMNS") == "0":  # a terminal of unknown width: rich would print nothing
    del os.environ["COLUMNS"]


class Commands(typer.Typer):
    """Commands that write on any terminal: what its encoding lacks becomes an escape, no error."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().__call__(*args, **options)


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
