"""The iterations that ranks have agreed on, as one word: what a rank without the driver's memory
has heard of, by its agent (rank/boundaries.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.shared_memory.control_block import CHECKPOINT, REGROUP, STOP

GONE = -1  # instead of it: the rank has ended. 0: it shares the driver's memory
_BITS = 20
_LOW = (1 << _BITS) - 1


def agreed_iterations(words: Sequence[int]) -> int:
    """Return the iterations before which all ranks stop, regroup and write a checkpoint, the low
    bits of each, as a word that is not 0.
    """
    stop, regroup, checkpoint = (words[at] & _LOW for at in (STOP, REGROUP, CHECKPOINT))
    return 1 << 3 * _BITS | stop << 2 * _BITS | regroup << _BITS | checkpoint
