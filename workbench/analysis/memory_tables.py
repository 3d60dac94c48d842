"""Tables of what ranks hold, from the rows of their ledgers (rank/bands.py)."""

from __future__ import annotations

import polars as pl

from workbench.analysis.tables import COMPUTING

ALL = "all"  # stands for all kinds together
_BAND = ("rank", "generation", "band")

p = pl.col


def peaks(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return a row per rank and kind, and one of all kinds: see ``Run.memory``."""
    rows = ledger_rows(events)
    totals = rows.group_by("rank", "generation", "at_ns", maintain_order=True).agg(
        kind=pl.lit(ALL).first(), held=p("all_bytes").last()
    )
    each = rows.select("rank", "at_ns", "kind", held="kind_bytes")
    both = pl.concat([each, totals.select(each.collect_schema().names())])
    return (
        both.group_by("rank", "kind", maintain_order=True)
        .agg(peak_bytes=p("held").max(), at_ns=p("at_ns").get(p("held").arg_max()))
        .sort("rank", maintain_order=True)
        .collect()
    )


def bands(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return a row per band, in the order in which they are born: see ``Run.memory``."""
    rows = ledger_rows(events)
    table = (
        rows.group_by(_BAND, maintain_order=True)
        .agg(
            p("kind", "layer", "stage", "microbatch", "iteration", "at_ns").first(),
            freed_ns=p("at_ns").filter(p("band_bytes") == 0).last(),
            bytes=p("band_bytes").max(),
        )
        .filter(p("bytes") > 0)
        .rename({"at_ns": "born_ns"})
    )
    spans = _spans(events)
    for name in ("born", "freed"):
        table = _computing_at(table, spans, name)
    columns = "rank kind layer stage microbatch iteration born_ns born freed_ns freed bytes"
    return table.sort("born_ns", "rank", "band").select(columns.split()).collect()


def ledger_rows(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of all ledgers, in order for each rank.

    rank, generation, band: its number; kind; layer; stage, microbatch, iteration; at_ns;
    band_bytes, kind_bytes: held by the band, and by all of its kind; all_bytes: by all bands so
    far, which is what the rank holds after the last row of a moment.
    """
    texts = {"kind": p("name").cast(pl.String), "layer": p("phase").cast(pl.String)}
    order = ("rank", "generation", "seq")
    before = p("band_bytes").shift(1).over(_BAND).fill_null(0)
    return (
        events.lazy()
        .filter(p("kind").cast(pl.String) == "memory")
        .select(
            *order,
            *("stage", "microbatch", "iteration"),
            band="chunk",
            at_ns="end_ns",
            band_bytes="nbytes",
            kind_bytes=p("value").cast(pl.Int64),
            **texts,
        )
        .sort(order)
        .with_columns(change=p("band_bytes") - before)
        .with_columns(all_bytes=p("change").cum_sum().over("rank", "generation"))
        .drop("change", "seq")
    )


def _spans(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    kind = p("kind").cast(pl.String)
    rows = events.lazy().filter(kind.is_in(COMPUTING))
    return rows.select("rank", p("start_ns").alias("moment"), computing=kind).sort("moment")


def _computing_at(table: pl.LazyFrame, spans: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """Add ``name``: what the rank computed at ``name``_ns, or last before it; "" for nothing."""
    moments = table.with_columns(moment=p(f"{name}_ns")).sort("moment", nulls_last=True)
    joined = moments.join_asof(spans, on="moment", by="rank", check_sortedness=False)
    text = p("computing").fill_null("")
    return joined.with_columns(text.alias(name)).drop("moment", "computing")
