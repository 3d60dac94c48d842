"""What theory says of an all-reduce: steps, bytes, seconds, planned events; and α, β, γ fitted.

The formulas and their papers are in ``formulas.py``. Units are seconds and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.formulas import (
    ALGORITHMS,
    Algorithm,
    Cost,
    Terms,
    Transfer,
    chunk_sizes,
    find,
    hierarchical,
    level_elements,
    lower_bound,
)
from workbench.table import SCHEMA

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Cost",
    "Fit",
    "Measurement",
    "Terms",
    "bytes_sent",
    "chunk_sizes",
    "crossover",
    "fit",
    "hierarchical",
    "level_elements",
    "lower_bound",
    "messages_sent",
    "plan",
    "predict",
    "steps",
    "terms",
]


def steps(algorithm: str | Algorithm, n: int) -> int:
    """Steps of one all-reduce over ``n`` ranks; of a single rank none."""
    return find(algorithm).steps(n) if n > 1 else 0


def messages_sent(algorithm: str | Algorithm, n: int) -> tuple[int, ...]:
    """Messages that each rank sends in one all-reduce of something."""
    return tuple(find(algorithm).sends(n)) if n > 1 else (0,)


def bytes_sent(
    algorithm: str | Algorithm, n: int, nbytes: int, itemsize: int = 4
) -> tuple[int, ...]:
    """Payload bytes that each rank sends, exactly: cut between elements of ``itemsize`` bytes.

    Raises ValueError if ``nbytes`` is no whole number of elements.
    """
    elements = _elements(nbytes, itemsize)
    if n == 1 or elements == 0:
        return (0,) * n
    return tuple(itemsize * each for each in find(algorithm).sent(n, elements))


def terms(algorithm: str | Algorithm, n: int, nbytes: float) -> Terms:
    """What stands before α, β and γ; zeros where nothing is sent."""
    return find(algorithm).terms(n, nbytes) if n > 1 and nbytes else Terms(0, 0, 0)


def predict(algorithm: str | Algorithm, n: int, nbytes: float, cost: Cost) -> float:
    """Seconds of one all-reduce of ``nbytes`` bytes over ``n`` ranks."""
    return terms(algorithm, n, nbytes).seconds(cost)


def crossover(first: str | Algorithm, second: str | Algorithm, n: int, cost: Cost) -> float:
    """The bytes L* at which both take equally long; below, the one with fewer messages wins.

    inf if there is no such size.
    """
    a, b = terms(first, n, 1), terms(second, n, 1)
    slope = Terms(0, b.sent - a.sent, b.added - a.added).seconds(cost)
    fixed = (a.messages - b.messages) * cost.alpha_s
    return fixed / slope if slope and fixed / slope > 0 else float("inf")


def _elements(nbytes: int, itemsize: int) -> int:
    elements, rest = divmod(nbytes, itemsize)
    if rest:
        raise ValueError(f"{nbytes} bytes are no whole number of elements of {itemsize} bytes")
    return elements


# -- planned events --


def plan(
    algorithm: str | Algorithm, n: int, nbytes: int, cost: Cost, *, itemsize: int = 4,
    start_ns: int = 0, op: int = 0, group: str = "default",
) -> pl.DataFrame:  # fmt: skip
    """The events of one all-reduce as the model has it, in the columns and types of a run's table.

    Every step lasts α + β·(its largest chunk) + γ·(the largest chunk added) and begins when the
    step before it ended; in ``one_shot`` all additions follow all messages. Each chunk is one slot.
    The ``collective`` rows are named "planned"; their ``value`` is the bytes of an element.
    Raises ValueError for an algorithm without a schedule.
    """
    chosen = find(algorithm)
    if chosen.schedule is None:
        able = ", ".join(name for name, each in ALGORITHMS.items() if each.schedule)
        raise ValueError(f"{chosen.name} has no schedule to plan; there is one of {able}")
    transfers = chosen.schedule(n) if n > 1 and nbytes else []
    chunks = chunk_sizes(
        _elements(nbytes, itemsize), 1 + max((t.chunk for t in transfers), default=0)
    )
    rows, end_s = _timed(transfers, [itemsize * each for each in chunks], cost, chosen.adds_last)
    whole = dict(
        start=0.0, end=end_s, kind="collective", nbytes=nbytes, name="planned", value=itemsize
    )
    rows += [{"rank": r, **whole} for r in range(n)]

    frame = pl.DataFrame(rows, schema_overrides={"value": pl.Float64}, infer_schema_length=None)
    same = {
        "lane": "comm",
        "generation": 0,
        "collective": "all_reduce",
        "algorithm": chosen.name,
        "group": group,
        "op": op,
    }
    frame = frame.with_columns(
        start_ns=start_ns + (pl.col("start") * 1e9).round().cast(pl.Int64),
        end_ns=start_ns + (pl.col("end") * 1e9).round().cast(pl.Int64),
        seq=pl.int_range(pl.len()).over("rank"),
        **{name: pl.lit(value) for name, value in same.items()},
    )
    missing = [pl.lit(None).alias(name) for name in SCHEMA if name not in frame.columns]
    return frame.with_columns(missing).select(
        pl.col(name).cast(dtype).fill_null(_nothing(dtype)) for name, dtype in SCHEMA.items()
    )


def _nothing(dtype: pl.DataType) -> object:
    return "" if dtype == pl.Categorical else float("nan") if dtype == pl.Float64 else -1


def _timed(
    transfers: Sequence[Transfer], sizes: Sequence[int], cost: Cost, adds_last: bool
) -> tuple[list[dict[str, object]], float]:
    """Rows of the transfers, each rank's in the order of writing, and the end of all (seconds)."""
    rows: list[dict[str, object]] = []
    waiting: list[list[Transfer]] = []
    now = 0.0
    for _, group in groupby(transfers, lambda transfer: transfer.step):
        step = list(group)
        first = now + cost.alpha_s  # the first byte is there
        last = first + max(sizes[t.chunk] for t in step) * cost.beta_s_per_byte
        for t in step:
            out, into = _ends(t, sizes)
            rows.append({"kind": "send", "start": now, "end": last, **out})
            rows.append({"kind": "recv", "start": first, "end": last, **into})
        waiting.append([t for t in step if t.adds])
        now = last
        if not adds_last:
            now = _added(waiting.pop(), sizes, cost, rows, now)
    for step in waiting:
        now = _added(step, sizes, cost, rows, now)
    return rows, now


def _added(
    step: Sequence[Transfer],
    sizes: Sequence[int],
    cost: Cost,
    rows: list[dict[str, object]],
    now: float,
) -> float:
    """Append the additions of what one step brought; returns when they end."""
    end = now + max((sizes[t.chunk] for t in step), default=0) * cost.gamma_s_per_byte
    rows += ({"kind": "reduce", "start": now, "end": end, **_ends(t, sizes)[1]} for t in step)
    return end


def _ends(t: Transfer, sizes: Sequence[int]) -> tuple[dict[str, object], dict[str, object]]:
    """What the rows of both ends of a transfer say: the sender's, the receiver's."""
    both = {"phase": t.phase, "step": t.step, "chunk": t.chunk, "slot": 0, "nbytes": sizes[t.chunk]}
    sender, receiver = {"rank": t.source, "peer": t.target}, {"rank": t.target, "peer": t.source}
    return sender | both, receiver | both


# -- measured points --


@dataclass(frozen=True)
class Measurement:
    """How long one all-reduce took: best the median over repetitions of the slowest rank."""

    algorithm: str
    n: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """The model that fits the points best, and how well."""

    cost: Cost
    relative_error: float  # root mean square of (predicted - measured) / measured
    points: tuple[Measurement, ...]


def fit(points: Iterable[Measurement], gamma_s_per_byte: float | None = None) -> Fit:
    """α, β, γ >= 0 by least squares of the *relative* error: small and large sizes count alike.

    β and γ can be told apart only by algorithms whose sent and added bytes differ in proportion:
    ring and naive (2 : 1) together with one_shot (1 : 1). Else the one that alone explains the
    points gets all, and β if both do. ``gamma_s_per_byte`` sets γ where it was measured by itself.
    Raises ValueError if there is no point, or one without bytes, peers or duration.
    """
    points = tuple(points)
    empty = [p for p in points if p.seconds <= 0 or p.n < 2 or p.nbytes <= 0]
    if not points or empty:
        raise ValueError(
            "a fit needs measurements of 2 or more ranks, some bytes and some seconds; "
            f"got {empty or 'none'}"
        )
    seconds = np.array([p.seconds for p in points])
    A = np.array([terms(p.algorithm, p.n, p.nbytes) for p in points]) / seconds[:, None]
    target, columns = np.ones(len(points)), [0, 1, 2]
    if gamma_s_per_byte is not None:
        target, columns = target - A[:, 2] * gamma_s_per_byte, [0, 1]
    found = _non_negative(A, target, columns)
    found[2] = found[2] if gamma_s_per_byte is None else gamma_s_per_byte
    error = float(np.sqrt(np.mean((A @ found - 1) ** 2)))
    return Fit(Cost(*found.tolist()), error, points)


def _non_negative(
    A: npt.NDArray[np.float64], target: npt.NDArray[np.float64], columns: Sequence[int]
) -> npt.NDArray[np.float64]:
    """The x >= 0 with the least |Ax - target|, zero outside ``columns``.

    With three unknowns every choice of those that are not zero can be tried; of choices that are
    equally good the smallest is taken.
    """
    best = np.zeros(A.shape[1])
    least = float(np.linalg.norm(target))
    for count in range(1, len(columns) + 1):
        for chosen in map(list, combinations(columns, count)):
            some = A[:, chosen]
            scale = np.linalg.norm(some, axis=0)
            if not scale.all() or np.linalg.matrix_rank(some / scale, tol=1e-6) < count:
                continue  # they cannot be told apart
            x = np.linalg.lstsq(some / scale, target, rcond=None)[0] / scale
            rest = float(np.linalg.norm(some @ x - target))
            if (x >= 0).all() and rest < least * (1 - 1e-9) - 1e-12:
                least, best = rest, np.zeros(A.shape[1])
                best[chosen] = x
    return best
