"""Charts of the measures that decide a comparison of runs: measured, and by formula."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import polars as pl

from workbench.analysis.call_tables import calls
from workbench.analysis.chart_cells import Cell
from workbench.analysis.deciding_charts import charts
from workbench.common.errors import CollectiveError, SpecError
from workbench.runs.history import Past, label
from workbench.studies.fits import ALL, fits
from workbench.theory.cost_model import bytes_sent

_known: WeakKeyDictionary[Past, dict[str, float | None]] = WeakKeyDictionary()


def deciding_charts(
    pasts: Sequence[Past], measures: Sequence[str], theme: str = "light"
) -> list[Cell]:
    """Return a chart for each of ``measures`` that two or more of these runs have at their end."""
    titles = [past.title for past in pasts]
    names = titles if len({*titles}) == len(titles) else [label(past) for past in pasts]
    runs = {name: past.summary() for name, past in zip(names, pasts, strict=True)}
    formulas = {
        name: {one: by_formula(past, one) for one in measures}
        for name, past in zip(names, pasts, strict=True)
        if past.over
    }
    return charts(runs, measures, formulas, theme)


def by_formula(past: Past, measure: str) -> float | None:
    """Return what a formula says of a measure of a run that is over; None where there is none.

    Computed once per run: memory takes building its model, and bytes its events, which may be let
    go later.
    """
    known = _known.setdefault(past, {})
    if measure not in known:
        known[measure] = _compute(past, measure)
    return known[measure]


def _compute(past: Past, measure: str) -> float | None:
    if measure == "bubble":
        planned: float | None = past.summary()["bubble_planned"]
        return planned
    if measure == "memory":
        with suppress(SpecError):  # no formula for what it does
            return max(held[ALL] for held in fits(past.experiment).peaks.values())
    if measure == "bytes_all" and past.run is not None:
        return _bytes_of_calls(past.run.store.scan())
    return None


def _bytes_of_calls(events: pl.LazyFrame) -> float | None:
    """Return the bytes that the collective calls of a run should have sent; None where it sent
    others, too, or a call has no formula.
    """
    if events.filter(pl.col("collective").cast(pl.String) == "p2p").head(1).collect().height:
        return None
    kinds = calls(events).group_by("collective", "algorithm", "nbytes", "ranks").len()
    total = 0
    for operation, algorithm, nbytes, ranks, many in kinds.iter_rows():
        try:
            sent = bytes_sent(algorithm, ranks, nbytes, 1, operation=operation)
        except (CollectiveError, SpecError, ValueError):
            return None
        total += many * sum(sent)
    return float(total) if total else None
