"""Outputs of a notebook that follow what happens, and stay when it is over.

Each output is a part of a whole (a picture, a table) with a mark that says when it has changed. A
thread brings them up to date, and ends with what they show.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from IPython.display import display

from workbench.common import threads

EVERY_SECONDS = 1.0
PLOTLY = "application/vnd.plotly.v1+json"


class Output(NamedTuple):
    """One output: its MIME bundle as of now, and what differs when that does."""

    bundle: Callable[[], dict[str, Any]]
    mark: Callable[[], Any]


def show(
    parts: Sequence[Output],
    ended: threading.Event,
    followers: list[threading.Thread],
    name: str,
) -> None:
    """Display the parts here; where they were displayed before, they stay as they are.

    ``followers`` gains the thread that follows, until ``ended``: a caller that waits for the end
    waits for it too, so that the last picture is drawn.
    """
    ids = [f"workbench-{uuid.uuid4()}" for _ in parts]
    for part, place in zip(parts, ids, strict=True):
        display(part.bundle(), raw=True, display_id=place)
    if not ended.is_set():
        followers.append(threads.start(partial(_follow, parts, ids, ended), name))


def _follow(parts: Sequence[Output], ids: Sequence[str], ended: threading.Event) -> None:
    drawn: list[Any] = [object() for _ in parts]
    done = False
    while not done:
        done = ended.wait(EVERY_SECONDS)
        for at, part in enumerate(parts):
            mark = part.mark()
            if done or mark != drawn[at]:
                display(part.bundle(), raw=True, display_id=ids[at], update=True)
            drawn[at] = mark
