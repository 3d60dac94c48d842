"""Bytes that each axis of a mesh sends, compared with its formula: see ``Run.axes``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from workbench.formulas import ALGORITHMS
from workbench.formulas.grid import DATA
from workbench.formulas.mesh import P2P, sent
from workbench.store.iterations import COMPUTE, union
from workbench.training.mesh.shapes import layout_of, microbatches

SCHEMA = pl.Schema(
    {
        "axis": pl.String,
        "collective": pl.String,
        "rank": pl.Int32,
        "iteration": pl.Int64,
        "calls": pl.Int64,
        "bytes": pl.Int64,
        "formula_calls": pl.Int64,
        "formula_bytes": pl.Int64,
        "exposed_ms": pl.Float64,
    }
)
KEY = ["axis", "collective", "rank", "iteration"]
_SPAN = ["axis", "rank", "iteration"]
p = pl.col


def axes(events: pl.DataFrame, metadata: Mapping[str, str]) -> pl.DataFrame:
    """Return a row per axis, collective, rank and iteration."""
    facts: dict[str, Any] = json.loads(metadata.get("mesh", "{}"))
    if not facts:
        return SCHEMA.to_frame()
    texts = ("kind", "group", "collective")
    rows = events.filter(p("iteration") >= 0).with_columns(p(one).cast(pl.String) for one in texts)
    of_lines = rows.filter(p("group").is_in([*facts["lines"]])).with_columns(
        axis=p("group").str.split(" ").list.first()
    )
    measured = _measured(of_lines)
    ranks = sorted({rank for line in facts["lines"].values() for rank in line["ranks"]})
    iterations = measured["iteration"].unique().sort().to_list()
    formula = pl.DataFrame(
        [*_formula(facts, ranks, iterations)],
        {**{one: SCHEMA[one] for one in KEY}, "formula_calls": pl.Int64, "formula_bytes": pl.Int64},
        orient="row",
    )
    return (
        measured.join(formula, on=KEY, how="full", coalesce=True)
        .join(_exposed(rows, of_lines, facts), on=_SPAN, how="left")
        .with_columns(p("calls", "bytes").fill_null(0), p("exposed_ms").fill_null(0.0))
        .select(p(one).cast(kind) for one, kind in SCHEMA.items())
        .sort(KEY)
    )


def _measured(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the calls of each rank, and the bytes of its sends."""
    is_call, is_send = p("kind") == "collective", p("kind") == "send"
    together = rows.filter(is_call).group_by(KEY).agg(together=pl.len())
    sends = rows.filter(is_send).group_by(KEY)
    message = pl.struct("group", "op", "peer")  # of several slices
    nbytes = sends.agg(p("nbytes").sum().alias("bytes"), messages=message.n_unique())
    calls = pl.when(p("collective") == P2P).then("messages").otherwise("together")
    both = together.join(nbytes, on=KEY, how="full", coalesce=True)
    return both.with_columns(calls=calls.cast(pl.Int64)).select(*KEY, "calls", "bytes")


def _formula(facts: Mapping[str, Any], ranks: list[int], iterations: list[int]) -> Iterator[Any]:
    """Yield the formula's rows; none of all-reduces whose algorithm is chosen by their size."""
    layout = layout_of(facts)
    shares, epoch = layout.grid.size(*DATA), -(-facts["samples"] // facts["batch_size"])
    known = facts["all_reduce"] in ALGORITHMS
    by_size: dict[tuple[int, int], Any] = {}
    for iteration in iterations:
        before = iteration % epoch * facts["batch_size"]
        size = min(facts["batch_size"], facts["samples"] - before)
        for rank in ranks:
            if (rank, size) not in by_size:
                share = layout.grid.place(rank, *DATA)
                parts = microbatches(size, share, shares, facts["microbatches"])
                by_size[rank, size] = sent(layout, rank, parts)
            for (axis, collective), (calls, nbytes) in by_size[rank, size].items():
                if collective != "all_reduce" or known:
                    yield axis, collective, rank, iteration, calls, nbytes


def _exposed(rows: pl.DataFrame, of_lines: pl.DataFrame, facts: Mapping[str, Any]) -> pl.DataFrame:
    """Return for how long each axis keeps a rank from computing, in ms."""
    blocking = ["tp", *(["fsdp"] if facts["zero"] == 3 else [])]
    waits = (p("kind") == "wait") & (p("collective") == P2P)
    spans = of_lines.filter((p("kind") == "collective") | waits)
    computing = rows.filter(p("kind").is_in(COMPUTE), p("end_ns") > p("start_ns"))
    names = spans.select("axis").unique().filter(~p("axis").is_in(blocking))
    by_axis = computing.join(names, how="cross").select(spans.columns)
    beside = pl.concat([spans.filter(~p("axis").is_in(blocking)), by_axis])
    over = union(beside, "both", _SPAN).join(union(by_axis, "own", _SPAN), on=_SPAN, how="left")
    exposed = over.select(*_SPAN, exposed_ms=(p("both") - p("own").fill_null(0)) * 1e-6)
    alone = union(spans.filter(p("axis").is_in(blocking)), "both", _SPAN)
    return pl.concat([exposed, alone.select(*_SPAN, exposed_ms=p("both") * 1e-6)])
