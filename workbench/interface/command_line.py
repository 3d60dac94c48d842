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
from typer.core import TyperGroup

Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]

NO_USER_INTERFACE = (
    "the user interface is not installed here; install it with: "
    "pip install 'distributed-training-workbench[ui]'"
)

EXAMPLES = """To begin with:

workbench lab

workbench run --preset "A slow link" --html run.html

workbench attach -- torchrun --nproc-per-node 4 train.py

workbench open run.parquet
"""


if os.environ.get("COLUMNS") == "0":  # a terminal of unknown width: rich would print nothing
    del os.environ["COLUMNS"]


class _Group(TyperGroup):
    """Commands whose usage errors look like all others: one message, without a frame."""

    def main(self, *args: Any, **options: Any) -> Any:
        standalone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **options)
        try:
            status = super().main(*args, **options)
        except typer.Abort:
            status = 1
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            if message := error.format_message().rstrip("."):  # else help was printed
                _print_error(f"{message[0].lower()}{message[1:]}. See: {_command(error)} --help")
            status = 2
        sys.exit(status if isinstance(status, int) else 0)


def _command(error: object) -> str:
    """Return the command that a usage error is of."""
    context = getattr(error, "ctx", None)
    return context.command_path if context else "workbench"


class Commands(typer.Typer):
    """Commands that write on any terminal: what its encoding lacks becomes an escape, no error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=_Group, **options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().__call__(*args, **options)


def fail(error: object) -> Never:
    """End with status 1 and the message, without a traceback: it says what to do."""
    _print_error(error)
    raise typer.Exit(1)


def _print_error(error: object) -> None:
    """Print an error, all in one style; the end of a run that its experiment planned is not one."""
    planned = getattr(error, "planned", "")
    words, style = (
        (f"ended as planned: {error}", "yellow") if planned else (f"error: {error}", "red")
    )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(words, style=style, markup=False)


def has_screen() -> bool:
    """Return whether there is a desktop; in a terminal alone a text browser would take it over."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
