"""Changes of emulated links in the event table: one row of kind ``fault`` each.

    name     "link", or "cut" for a link that lets nothing through
    group    the direction, as an experiment's YAML names it: "0->1"
    peer     the receiver
    value    latency in seconds
    nbytes   bandwidth in bytes per second, -1 unlimited

Latency 0 and unlimited bandwidth are a link as the machine has it: it was restored. NaN is not
known.
"""

from __future__ import annotations

import math

from workbench.shared_memory.link_state import LinkState

LINK, CUT = "link", "cut"  # names of the rows
UNLIMITED = -1


def direction(source: int, target: int) -> str:
    """Return the text of the column ``group``."""
    return f"{source}->{target}"


def row_values(link: LinkState) -> tuple[str, float, int]:
    """Return ``name``, ``value`` and ``nbytes`` of the row that says that a link is so now."""
    rate = round(1e12 / link.ps_per_byte) if link.ps_per_byte else UNLIMITED
    return CUT if link.down else LINK, link.latency_ns * 1e-9, rate


def link_of_row(
    name: str, group: str, value: float, nbytes: int
) -> dict[tuple[int, int], LinkState] | None:
    """Return the link, by (source, target), as a fault's row says that it is now; None if the row
    is of another fault.
    """
    source, _, target = group.partition("->")
    if name not in (LINK, CUT) or not (source.isdecimal() and target.isdecimal()):
        return None
    latency_ns = round(value * 1e9) if math.isfinite(value) else 0
    rate = round(1e12 / nbytes) if nbytes > 0 else 0
    return {(int(source), int(target)): LinkState(latency_ns, rate, name == CUT)}
