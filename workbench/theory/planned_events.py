"""Planned events: a collective as the α-β-γ model has it, in the columns of a run's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from workbench.formulas import (
    OPERATIONS,
    WITH_ROOT,
    Algorithm,
    Cost,
    Transfer,
    sends_something,
)
from workbench.formulas.hierarchical import HIERARCHICAL, levels, levels_told
from workbench.store.table import SCHEMA
from workbench.theory.algorithms import find


def plan(
    algorithm: str | Algorithm,
    n: int,
    nbytes: int,
    cost: Cost,
    *,
    operation: str = "all_reduce",
    root: int = 0,
    itemsize: int = 4,
    start_ns: int = 0,
    op: int = 0,
    group: str = "default",
    links: Callable[[int, int], Cost] | None = None,
) -> pl.DataFrame:
    """Return the predicted events of one operation, with the columns and types of a run's table.

    Every step lasts α + β·(its largest message) + γ·(the most that one rank adds) and begins when
    the step before it ended; if an algorithm adds last, all additions follow all messages. Each
    chunk is one slot; the chunks of a message follow each other. A rank sends and receives at once,
    in separate lanes. ``links``: α and β from one rank to another, if they differ; then a step
    lasts as long as its slowest message. The ``collective`` rows are named "planned"; their
    ``value`` is the bytes of an element. Raises ValueError for an algorithm without a schedule.
    """
    chosen = find(algorithm, operation)
    if chosen.schedule is None:
        able = ", ".join(name for name, each in OPERATIONS[operation].items() if each.schedule)
        raise ValueError(f"{chosen.name} has no schedule to plan; there is one of {able}")
    elements = whole_elements(nbytes, itemsize)
    transfers = chosen.schedule(n) if sends_something(operation, n, nbytes) else []
    sizes = [itemsize * each for each in chosen.cut(n, elements)]
    first = root if operation in WITH_ROOT else 0
    rows, end_s = _timed(
        transfers,
        sizes,
        cost,
        chosen.adds_last,
        lambda a, b: cost if links is None else links((a + first) % n, (b + first) % n),
    )
    if operation in WITH_ROOT:
        rows = [_seen_from(root, n, row, operation) for row in rows]
    whole: Row = dict(
        start=0.0,
        end=end_s,
        kind="collective",
        nbytes=nbytes,
        name="planned",
        value=itemsize,
        peer=root if operation in WITH_ROOT else -1,
        phase=_way(chosen, n) if transfers else "",
    )
    rows += [{"rank": r, **whole} for r in range(n)]
    same = {
        "generation": 0,
        "collective": operation,
        "algorithm": chosen.name,
        "group": group,
        "op": op,
    }
    return _as_table(rows, start_ns, same)


def _as_table(rows: Sequence[Row], start_ns: int, same: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows with the columns of a run's table; ``same``: the columns alike in all."""
    frame = pl.DataFrame(rows, schema_overrides={"value": pl.Float64}, infer_schema_length=None)
    frame = frame.with_columns(
        start_ns=start_ns + (pl.col("start") * 1e9).round().cast(pl.Int64),
        end_ns=start_ns + (pl.col("end") * 1e9).round().cast(pl.Int64),
        lane=pl.col("kind").replace_strict(_LANES, default="comm"),
        **{name: pl.lit(value) for name, value in same.items()},
    )
    frame = frame.with_columns(seq=pl.int_range(pl.len()).over("rank", "lane"))
    missing = [pl.lit(None).alias(name) for name in SCHEMA if name not in frame.columns]
    return frame.with_columns(missing).select(
        pl.col(name).cast(dtype).fill_null(_nothing(dtype)) for name, dtype in SCHEMA.items()
    )


def _way(chosen: Algorithm, n: int) -> str:
    """Return the variant as the algorithm's file names it."""
    return levels_told(levels(n)) if chosen is HIERARCHICAL else chosen.way


def whole_elements(nbytes: int, itemsize: int) -> int:
    """Return the number of elements in these bytes. Raises ValueError unless it is whole."""
    elements, rest = divmod(nbytes, itemsize)
    if rest:
        raise ValueError(f"{nbytes} bytes are not a whole number of elements of {itemsize} bytes")
    return elements


def _nothing(dtype: pl.DataType) -> object:
    return "" if dtype == pl.Categorical else float("nan") if dtype == pl.Float64 else -1


Row = dict[str, Any]
_LANES = {"send": "send", "recv": "recv"}


def _seen_from(root: int, n: int, row: Row, operation: str) -> Row:
    """Return the row with ranks instead of places, which count from the root.

    So are the chunks of a gather or scatter, one per rank.
    """
    of_ranks = ("rank", "peer", "chunk") if operation in ("gather", "scatter") else ("rank", "peer")
    return row | {name: (row[name] + root) % n for name in of_ranks}


def _timed(
    transfers: Sequence[Transfer],
    sizes: Sequence[int],
    cost: Cost,
    adds_last: bool,
    link: Callable[[int, int], Cost],
) -> tuple[list[Row], float]:
    """Return the transfers' rows, per rank in the order of writing, and their end (seconds)."""
    rows: list[Row] = []
    waiting: list[list[Transfer]] = []
    now = 0.0
    for _, group in groupby(transfers, lambda transfer: transfer.step):
        step = list(group)
        sent = dict.fromkeys(((t.source, t.target) for t in step), 0)
        for t in step:
            before = sent[t.source, t.target]  # bytes of the message
            sent[t.source, t.target] = after = before + sizes[t.chunk]
            pace = link(t.source, t.target)
            arrives = now + pace.alpha_s + before * pace.beta_s_per_byte
            end = now + pace.alpha_s + after * pace.beta_s_per_byte
            out, into = _ends(t, sizes)
            rows.append({"kind": "send", "start": arrives if before else now, "end": end, **out})
            rows.append({"kind": "recv", "start": arrives, "end": end, **into})
        costs = [(link(*ends), nbytes) for ends, nbytes in sent.items()]
        last = now + max(own.alpha_s + nbytes * own.beta_s_per_byte for own, nbytes in costs)
        waiting.append([t for t in step if t.adds])
        now = last
        if not adds_last:
            now = _added(waiting.pop(), sizes, cost, rows, now)
    for step in waiting:
        now = _added(step, sizes, cost, rows, now)
    return rows, now


def _added(
    step: Sequence[Transfer], sizes: Sequence[int], cost: Cost, rows: list[Row], now: float
) -> float:
    """Append the additions after one step; return when they end."""
    added: dict[int, float] = {}  # when each rank is done
    for t in step:
        start = added.get(t.target, now)
        added[t.target] = end = start + sizes[t.chunk] * cost.gamma_s_per_byte
        rows.append({"kind": "reduce", "start": start, "end": end, **_ends(t, sizes)[1]})
    return max(added.values(), default=now)


def _ends(t: Transfer, sizes: Sequence[int]) -> tuple[Row, Row]:
    """Return the rows of both ends of a transfer: the sender's, the receiver's."""
    both = {"phase": t.phase, "step": t.step, "chunk": t.chunk, "slot": 0, "nbytes": sizes[t.chunk]}
    sender, receiver = {"rank": t.source, "peer": t.target}, {"rank": t.target, "peer": t.source}
    return sender | both, receiver | both
