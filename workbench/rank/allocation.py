"""A bound on the memory that a rank allocates: its share of what a server gives to a whole run.

The server looks at its ranks' memory once per second, and a rank fills a gigabyte in less. So the
system refuses to allocate more, at once: what asked for the memory raises.
"""

from __future__ import annotations

import resource
from pathlib import Path

from workbench.common import environment
from workbench.common.errors import MemoryLimit

NAME = "WORKBENCH_RANKS_MEMORY"
SPARE = 256_000_000  # bytes that a rank may have beyond its share: ranks are not all alike
_SIGNS = ("can't allocate memory", "bad_alloc", "bad allocation", "Cannot allocate memory")


def bound(ranks: int) -> None:
    """Let this process allocate its share, beside what it has already: memory of its own that can
    be written. What ranks share is bounded before they start (chunk_bytes).
    """
    if most := environment.text(NAME):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = _allocated() + int(most) // ranks + SPARE
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def in_words(error: BaseException, rank: int) -> str:
    """Explain an error of memory that the bound refused; "" if it is another one, an experiment's
    own memory_limit among them.
    """
    refused = isinstance(error, MemoryError) or any(sign in str(error) for sign in _SIGNS)
    refused &= not isinstance(error, MemoryLimit)
    if not environment.text(NAME) or not refused:
        return ""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return (
        f"rank {rank} could not allocate more memory: {most / 1e9:,.2f} GB are the most for this "
        "rank, an equal share of what a run has here. Smaller task_options take less. "
        f"(--max-memory) ({str(error).strip()[:200] or type(error).__name__})"
    )


def _allocated() -> int:
    """Return the bytes that count toward RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
