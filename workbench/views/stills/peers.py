"""A still picture of a run whose replicas mix: how much each sent to which, and their distances.

The distance is each one's from the mean of all, after the newest iteration that all have done; or,
where they are alike then, after the latest at which they were furthest apart.
``svg_peers.py`` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from workbench.analysis import replicas
from workbench.views.pages.link_facts import made_links

APART = ("metrics", "control")  # groups that do not train
RECENT = 40  # iterations whose sketches are read: the newest might not be whole
ALIKE = 1e-9


@dataclass(frozen=True)
class Mixing:
    """``planned`` are pairs that mix, whichever way; ``sent`` is the bytes from each rank to each;
    ``distances``: each rank's, () if nothing is known yet.
    """

    ranks: int
    planned: tuple[tuple[int, int], ...] = ()
    sent: tuple[tuple[int, int, int], ...] = ()
    distances: tuple[float, ...] = ()
    words: str = ""
    made_links: Mapping[tuple[int, int], bool] = field(default_factory=dict)


def select(rows: pl.LazyFrame, run_facts: dict[str, Any]) -> Mixing | None:
    """Return the picture's data; None if no replicas mix. ``run_facts``: the store's."""
    peers = run_facts.get("peers")
    if not peers:
        return None
    p = pl.col
    planned = sorted({(min(a, b), max(a, b)) for a, b, _ in peers["edges"]})
    sends = (p("kind") == "send") & ~p("group").cast(pl.String).is_in(APART) & (p("peer") >= 0)
    moved = rows.filter(sends).group_by("rank", "peer").agg(p("nbytes").sum()).collect()
    is_sketch = (p("kind") == "metric") & (p("name") == replicas.SKETCH)
    newest = rows.filter(is_sketch).group_by("rank").agg(p("iteration").max()).collect()
    distances, words = tuple[float, ...](), str(peers["words"])
    if newest.height:
        oldest = int(newest["iteration"].to_numpy().min()) - RECENT
        result = replicas.distances_of(
            replicas.pick(rows.filter(is_sketch & (p("iteration") > oldest)).collect()), peers
        )
        if result is not None:
            iterations, _, apart = result
            at = _worth_seeing(apart)
            distances = tuple(map(float, apart[:, at]))
            words = _words(int(iterations[at]), apart[:, at], int(iterations[-1]))
    return Mixing(
        ranks=run_facts["ranks"],
        planned=tuple(planned),
        sent=tuple(sorted(moved.iter_rows())),
        distances=distances,
        words=words,
        made_links=made_links(run_facts, moved.select("rank", "peer").iter_rows()),
    )


def _worth_seeing(apart: Any) -> int:
    """Return the column of the newest iteration, or that with the largest distance where replicas
    are alike by then. ``apart``: by rank and iteration.
    """
    last = apart.shape[1] - 1
    if apart[:, last].max() >= ALIKE:
        return int(last)
    return int(last - apart.max(0)[::-1].argmax())


def _words(iteration: int, distances: Any, newest: int) -> str:
    after = f"After iteration {iteration + 1}"
    if distances.max() < ALIKE:
        return f"{after} all replicas are alike."
    far = int(distances.argmax())
    return (
        f"{after}: rank {far} is furthest from the mean, ≈ {distances[far]:.2g}"
        f"{f'; alike after {newest + 1}' if newest > iteration else ''}."
    )
