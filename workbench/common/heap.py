"""The C library's heap: how a process that lives for days gives memory back.

glibc keeps freed blocks, in an arena for each few threads. A block of megabytes that is freed once
raises the size from which blocks are mappings of their own, so that later ones lie in the arenas
too, and leave them full of holes: what is in use stays the same, and the process grows. Other C
libraries have none of these functions, and nothing is done there.
"""

from __future__ import annotations

import ctypes

ARENA_MAX, MMAP_THRESHOLD = -8, -3  # malloc.h
ARENAS = 2
LARGE = 256 << 10  # bytes


def trim() -> None:
    """Give free memory back to the system."""
    if (give_back := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        give_back(0)


def bound() -> None:
    """Keep the heap from growing with time: few arenas, and a large block is a mapping of its own,
    which goes back once it is freed. For the start of a process, before its threads.
    """
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_option(ARENA_MAX, ARENAS)
        set_option(MMAP_THRESHOLD, LARGE)
