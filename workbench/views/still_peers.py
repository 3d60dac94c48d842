"""A run whose replicas mix in one still picture: who sent how much to whom, how far each is from
the mean of all after the newest iteration that all have done. ``svg_peers.py`` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.views import mixed

APART = ("metrics", "control")  # groups that do not train
RECENT = 3  # iterations whose sketches are read: the newest may not be whole
ALIKE = 1e-9


@dataclass(frozen=True)
class Mixing:
    """``planned`` are pairs that mix, whichever way; ``sent`` is who sent whom how many bytes;
    ``distances``: each rank's, () if nothing is known yet.
    """

    ranks: int
    planned: tuple[tuple[int, int], ...] = ()
    sent: tuple[tuple[int, int, int], ...] = ()
    distances: tuple[float, ...] = ()
    words: str = ""


def select(rows: pl.LazyFrame, told: dict[str, Any]) -> Mixing | None:
    """None where no replicas mix. ``told``: the store's facts."""
    peers = told.get("peers")
    if not peers:
        return None
    p = pl.col
    planned = sorted({(min(a, b), max(a, b)) for a, b, _ in peers["edges"]})
    sends = (p("kind") == "send") & ~p("group").cast(pl.String).is_in(APART) & (p("peer") >= 0)
    moved = rows.filter(sends).group_by("rank", "peer").agg(p("nbytes").sum()).collect()
    is_sketch = (p("kind") == "metric") & (p("name") == mixed.SKETCH)
    newest = rows.filter(is_sketch).group_by("rank").agg(p("iteration").max()).collect()
    found = None
    if newest.height:
        oldest = int(newest["iteration"].to_numpy().min()) - RECENT
        found = mixed.distances_of(
            mixed.pick(rows.filter(is_sketch & (p("iteration") > oldest)).collect()), peers
        )
    return Mixing(
        ranks=told["ranks"],
        planned=tuple(planned),
        sent=tuple(sorted(moved.iter_rows())),
        distances=() if found is None else tuple(map(float, found[2][:, -1])),
        words=peers["words"] if found is None else _words(int(found[0][-1]), found[2][:, -1]),
    )


def _words(iteration: int, distances: Any) -> str:
    after = f"After iteration {iteration + 1}"
    if distances.max() < ALIKE:
        return f"{after} all replicas are alike."
    far = int(distances.argmax())
    return (
        f"{after}, estimated: rank {far} is furthest from the mean of all, ≈ {distances[far]:.2g}."
    )
