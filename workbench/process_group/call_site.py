"""The line of the user's program that a call of torch.distributed comes from: "train.py:42"."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    "<frozen",
    "/site-packages/",
    "/dist-packages/",
)


def call_site() -> str:
    """Return the innermost line outside of libraries, in this thread; "" where there is none.

    A bucket that DDP reduces in C++ belongs to the line of ``backward()``.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (name := _own_name(frame.f_code)) is None:
        frame = frame.f_back
    return f"{name}:{frame.f_lineno}" if frame is not None else ""


@lru_cache(4096)
def _own_name(code: CodeType) -> str | None:
    """Return the name of the file that the code is in; None if that is a library's."""
    file = code.co_filename
    if any(part in file for part in _LIBRARIES):
        return None
    return os.path.basename(file)
