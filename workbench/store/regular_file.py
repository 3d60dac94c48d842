"""Files to be read that are files: no pipe, which would wait, and no device."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file to read. Raises OSError where it is something else: reading a pipe would
    wait.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return os.fdopen(number, "rb")
