"""Changes of emulated links in the event table: one row of kind ``fault`` each.

    name     "link", or "cut" for a link that lets nothing through
    group    the direction, as an experiment's YAML names it: "0->1"
    peer     the receiver
    value    latency in seconds
    nbytes   bandwidth in bytes per second, -1 unlimited

Latency 0 and unlimited bandwidth are a link as the machine has it: it was restored. NaN is not
known. Runs that were
saved before these columns were used had all of it in the name; ``upgrade`` reads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.common.units import bytes_per_second, duration_ns
from workbench.shared_memory.link_state import LinkState

if TYPE_CHECKING:
    import polars as pl

LINK, CUT = "link", "cut"  # names of the rows
UNLIMITED = -1
_OLD_NAME = re.compile(r"link (\d+)->(\d+) ?(.*)")  # "link 0->1 20 ms, 10 Mbit/s"


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


def upgrade(frame: pl.LazyFrame, collect: Callable[[pl.LazyFrame], pl.DataFrame]) -> pl.LazyFrame:
    """Return an older version's table with its changes of links in columns.

    ``collect`` reads the names that say so, and raises its own errors where that fails.
    """
    import polars as pl  # here: the driver steers a run without it

    name = pl.col("name").cast(pl.String)
    ours = (pl.col("kind").cast(pl.String) == "fault") & name.str.starts_with("link ")
    old = collect(frame.filter(ours).select(name.unique()))["name"]
    rows = [(text, *facts) for text in old if (facts := _read_old(text)) is not None]
    if not rows:
        return frame
    texts, names, groups, values, rates = map(list, zip(*rows, strict=True))

    def changed(column: pl.Expr, new: list[Any], dtype: pl.DataType) -> pl.Expr:
        replacement = name.replace_strict(texts, new, default=None)
        return pl.when(ours).then(pl.coalesce(replacement, column)).otherwise(column).cast(dtype)

    return frame.with_columns(
        name=changed(name, names, pl.Categorical()),
        group=changed(pl.col("group").cast(pl.String), groups, pl.Categorical()),
        value=changed(pl.col("value"), values, pl.Float64()),
        nbytes=changed(pl.col("nbytes"), rates, pl.Int64()),
    )


def _read_old(text: str) -> tuple[str, str, float, int] | None:
    """Return name, group, value and nbytes for a name such as "link 0->1 20 ms, 10 Mbit/s"."""
    match = _OLD_NAME.fullmatch(text)
    if match is None:
        return None
    latency, rate = 0.0 if match[3] else math.nan, UNLIMITED  # very old rows did not say to what
    try:
        for part in filter(None, match[3].split(", ")):
            if part.endswith("/s"):
                rate = round(bytes_per_second(part))
            elif part not in (CUT, "restored"):
                latency = duration_ns(part) * 1e-9
    except ValueError:
        return None  # not written by us: it stays a name
    return CUT if match[3] == CUT else LINK, direction(int(match[1]), int(match[2])), latency, rate
