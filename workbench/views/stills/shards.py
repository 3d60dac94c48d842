"""A still picture of a run whose model is sharded: which rank held what of each layer.

It shows the moment at which a rank held most of the model, with the layers that were whole then.
``svg_shards.py`` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.analysis import shards as held
from workbench.common.units import print_size

RECENT = 2  # iterations that are looked at: the newest might not be whole
CHANGES = {"gathered": True, "freed": False}  # of a layer: is it whole then?


@dataclass(frozen=True)
class Sharded:
    """``layers``: names; ``parts``: of each layer the bytes that each rank keeps; ``whole``: (rank,
    layer) pairs; ``model`` and ``active``: bytes that each rank held, without and of activations.
    """

    ranks: int
    layers: tuple[str, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()
    whole: frozenset[tuple[int, int]] = frozenset()
    model: tuple[float, ...] = ()
    active: tuple[float, ...] = ()
    unsharded: int = 0
    words: str = ""


def select(rows: pl.LazyFrame, run_facts: dict[str, Any]) -> Sharded | None:
    """Return the picture's data; None if no model is sharded. ``run_facts``: the store's."""
    shards = run_facts.get("shards")
    if not shards:
        return None
    layers = shards["layers"]
    still = Sharded(
        ranks=run_facts["ranks"],
        layers=tuple(layer["name"] for layer in layers),
        parts=tuple(tuple(layer["parts"]) for layer in layers),
        unsharded=sum(layer["bytes"] for layer in layers) * (2 + shards["states"]),
    )
    p = pl.col
    name = p("name").cast(pl.String)
    metrics = (p("kind").cast(pl.String) == "metric") & name.is_in([*held.NAMES, *CHANGES])
    result = rows.filter(metrics).select(
        "rank", "iteration", name, p("phase").cast(pl.String), "value", "end_ns"
    )
    newest = int(result.select(p("iteration").max().fill_null(-1)).collect().item())
    recent = result.filter(p("iteration") > newest - RECENT).collect()
    now = held.curve(recent.with_columns(name=name), None, 0)
    if newest < 0 or not now.height:
        return still
    moment = now.sort("model", "end_ns").row(-1, named=True)
    return _at(still, recent.filter(p("end_ns") <= moment["end_ns"]), moment)


def _at(still: Sharded, until: pl.DataFrame, moment: dict[str, Any]) -> Sharded:
    """Return the picture at a moment, from the rows up to it."""
    p = pl.col
    last = until.sort("end_ns").group_by("rank", "name", "phase", maintain_order=True).last()
    table = last.select("rank", "name", "value").iter_rows()
    held_by = {(rank, name): value for rank, name, value in table}
    changes = until.filter(p("name").is_in(list(CHANGES))).sort("end_ns")
    newest = changes.group_by("rank", "phase", maintain_order=True).agg(p("name").last())
    at = {name: number for number, name in enumerate(still.layers)}
    whole = frozenset(
        (rank, at[layer])
        for rank, layer, name in newest.select("rank", "phase", "name").iter_rows()
        if CHANGES[name] and layer in at
    )
    active = [held_by.get((rank, "activations"), 0.0) for rank in range(still.ranks)]
    model = [held_by.get((rank, "held"), 0.0) - active[rank] for rank in range(still.ranks)]
    rank = moment["rank"]
    gathered = sum(1 for one, _ in whole if one == rank)
    share = f", {model[rank] / still.unsharded:.0%} of unsharded" if still.unsharded else ""
    words = (
        f"Rank {rank} at its most: {gathered} of {len(still.layers)} layers whole, "
        f"{_size(model[rank])} of the model{share}."
    )
    return Sharded(
        ranks=still.ranks,
        layers=still.layers,
        parts=still.parts,
        whole=whole,
        model=tuple(map(float, model)),
        active=tuple(map(float, active)),
        unsharded=still.unsharded,
        words=words,
    )


def _size(nbytes: float) -> str:
    return print_size(int(float(f"{nbytes:.3g}")))
