"""The collectives view: which calls all their ranks have completed, and the rows of such a call.

Nothing here knows an algorithm: a call is what the rows with one (generation, group, op) say.
"""

from __future__ import annotations

import polars as pl

KEY = ["generation", "group", "op"]
MAX_ROWS = (
    20_000  # of one call; of a larger one the first pieces of each chunk are sent, and said so
)
_LAST_SLOT = pl.max_horizontal(pl.col("slot"), pl.lit(0))


def collective_rows(events: pl.DataFrame) -> pl.DataFrame:
    """The rows of collectives that train: no point-to-point messages, none of the metrics' own."""
    p = pl.col
    return events.filter((p("op") >= 0) & (p("group") != "metrics") & (p("collective") != "p2p"))


def calls(events: pl.DataFrame) -> pl.DataFrame:
    """One row a call that sent chunks, oldest end first.

    Columns: generation group op, collective algorithm name iteration, start_ns end_ns, nbytes (one
    rank's tensor: the largest outer span), rows, ``complete``: every rank that took part is
    through. A rank takes part if it sends, receives, or is named as the other end.
    """
    p = pl.col
    moves = p("kind").is_in(["send", "recv"])
    outer = p("kind") == "collective"
    parties = p("rank").append(p("peer").filter(moves & (p("peer") >= 0)))
    return (
        collective_rows(events)
        .group_by(KEY)
        .agg(
            p("collective", "algorithm", "iteration").first(),
            p("name").filter(outer).first(),
            p("start_ns").min(),
            p("end_ns").max(),
            p("nbytes").filter(outer).max(),
            pl.len().alias("rows"),
            (p("kind") == "send").sum().alias("sends"),
            parties.n_unique().alias("parties"),
            p("rank").filter(outer).n_unique().alias("ended"),
        )
        .filter(p("sends") > 0)
        .with_columns((p("ended") == p("parties")).alias("complete"))
        .sort("end_ns", *KEY)
    )


def select(events: pl.DataFrame, chosen: pl.DataFrame, origin: int = 0) -> pl.DataFrame:
    """The rows of the ``chosen`` calls (rows of ``calls``), call after call: ``WIRE`` and ``KEY``.

    ``start`` and ``end`` count from ``origin`` in nanoseconds. Of a call of more than MAX_ROWS
    rows, only the slots below the column ``slots`` are kept: as many as fit, of every chunk alike.
    """
    p = pl.col
    marked = chosen.select(*KEY, p("rows").alias("of_call")).with_row_index("call")
    rows = (
        collective_rows(events)
        .join(marked, on=KEY, how="inner")
        .with_columns(_LAST_SLOT.max().over("call").alias("last_slot"))
        .with_columns(
            pl.when(p("of_call") > MAX_ROWS)
            .then(((p("last_slot") + 1) * MAX_ROWS // p("of_call")).clip(1))
            .otherwise(p("last_slot") + 1)
            .alias("slots")
        )
        .filter(p("slot") < p("slots"))
    )
    return rows.sort("call", "start_ns", "rank", "seq").select(
        "call", *KEY, "slots", "last_slot",
        (p("start_ns") - origin).alias("start"), (p("end_ns") - origin).alias("end"),
        "nbytes", "step", "chunk", "slot", "seq", "rank", "peer", "kind", "phase", "name", "lane",
    )  # fmt: skip
