"""Files to be read that are files: no pipe, which would wait, and no device."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_JSON = 256 << 20  # bytes


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file to read. Raises OSError where it is something else: reading a pipe would
    wait.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(number, "rb")


def json_of(path: Path) -> Any:
    """Return what a file of JSON says. Raises OSError where it is not a regular file or too large
    to be one of ours, ValueError for what is not JSON.
    """
    with opened(path) as file:
        data = file.read(LARGEST_JSON + 1)
    if len(data) > LARGEST_JSON:
        raise OSError(errno.EFBIG, f"has more than {LARGEST_JSON:,} bytes", str(path))
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
