"""The checksum that a Parquet file of ours carries of itself, in the document of its metadata."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from workbench.common.errors import WorkbenchError
from workbench.store.regular_file import opened

BLANK = "0" * 8  # stands for the checksum while it is worked out
TAIL = b"PAR1"
_LARGEST_FOOTER = 1 << 28  # bytes
_READ_BYTES = 1 << 20
_SEALED = re.compile(rb'\{"format": \d+, "checksum": "([0-9a-f]{8})"')


def seal(path: Path) -> None:
    """Put the checksum of the file, itself blank, into the file."""
    result = _find(path)
    assert result is not None, "the document was written a moment ago"
    at, _ = result
    checksum = _checksum(path, at)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(f"{checksum:08x}".encode())


def check(path: Path) -> bool:
    """Raise WorkbenchError if the file is not as it was written; return False if it has no
    checksum, as a file of another program.
    """
    result = _find(path)
    if result is not None and _checksum(path, result[0]) != result[1]:
        raise WorkbenchError(damage_words(path, "it differs"))
    return result is not None


def damage_words(path: Path, how: str) -> str:
    return (
        f"{path}: expected the bytes that were written, found others (of the checksum: {how}): the "
        "file was damaged since. Which of its numbers are still right cannot be told. Copy it "
        "again, or save the run again."
    )


def _find(path: Path) -> tuple[int, int] | None:
    """Return where the checksum stands in the file, and its value."""
    size = path.stat().st_size
    with opened(path) as file:
        file.seek(max(size - 8, 0))
        end = file.read()
        length = int.from_bytes(end[:4], "little")
        if end[4:] != TAIL or length > min(size - 8, _LARGEST_FOOTER):
            return None
        begin = size - 8 - length
        file.seek(begin)
        match = _SEALED.search(file.read(length))
    return (begin + match.start(1), int(match[1], 16)) if match else None


def _checksum(path: Path, at: int) -> int:
    """Return the CRC-32 of all bytes, with those at ``at`` as blanks."""
    result, place = 0, 0
    with opened(path) as file:
        while piece := bytearray(file.read(_READ_BYTES)):
            inside = slice(max(at - place, 0), max(at + len(BLANK) - place, 0))
            piece[inside] = b"0" * len(piece[inside])
            result = zlib.crc32(piece, result)
            place += len(piece)
    return result
