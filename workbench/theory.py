"""What an all-reduce costs by formula: steps, bytes and seconds, and planned events to lay over measured ones.

n ranks, L bytes; α seconds a message, β seconds a byte sent, γ seconds a byte added: T = a·α + b·β + g·γ,
where a counts messages, b bytes sent and g bytes added along the longest path through the ranks.

Papers Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
       JPDC 69(2), 2009: the ring, and the lower bound 2(n-1)/n·L on the bytes of a rank.
       Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005: trees, recursive doubling (butterfly), halving + doubling (Rabenseifner).

An algorithm is one entry of ``ALGORITHMS``. Its name is its file's: ``collectives/all_reduce_<name>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, log2, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.table import SCHEMA


@dataclass(frozen=True)
class Cost:
    """The α-β-γ model of a link and its ranks."""

    alpha_s: float  # seconds a message
    beta_s_per_byte: float  # seconds a byte sent
    gamma_s_per_byte: float = 0.0  # seconds a byte added


class Terms(NamedTuple):
    """What stands before α, β and γ on the longest path."""

    messages: float
    sent: float  # bytes
    added: float  # bytes

    def seconds(self, cost: Cost) -> float:
        return (
            self.messages * cost.alpha_s
            + self.sent * cost.beta_s_per_byte
            + self.added * cost.gamma_s_per_byte
        )


class Transfer(NamedTuple):
    """One message of a schedule."""

    step: int
    phase: str
    source: int
    target: int
    chunk: int
    adds: bool  # the target adds what it receives; otherwise it replaces


@dataclass(frozen=True)
class Algorithm:
    """An all-reduce as formulas. ``n`` ranks (>= 2), ``elements`` of the tensor (>= 1)."""

    name: str
    steps: Callable[[int], int]
    sends: Callable[[int], list[int]]  # messages sent by each rank
    sent: Callable[[int, int], list[int]]  # n, elements -> elements sent by each rank
    terms: Callable[[int, float], Terms]  # n, nbytes -> a, b, g
    schedule: Callable[[int], list[Transfer]] | None = None  # in the order of steps; for ``plan``
    chunks: Callable[[int, int], list[int]] | None = None  # elements, n -> chunks of the schedule
    adds_last: bool = False  # the additions wait until all messages have left


def chunk_sizes(elements: int, n: int) -> list[int]:
    """Elements of each of ``n`` chunks: the first ``elements`` mod ``n`` have one more."""
    whole, extra = divmod(elements, n)
    return [whole + (chunk < extra) for chunk in range(n)]


def steps(algorithm: str | Algorithm, n: int) -> int:
    """Steps of one all-reduce over ``n`` ranks; of a single rank none."""
    return find(algorithm).steps(n) if n > 1 else 0


def messages_sent(algorithm: str | Algorithm, n: int) -> tuple[int, ...]:
    """Messages that each rank sends in one all-reduce of something."""
    return tuple(find(algorithm).sends(n)) if n > 1 else (0,)


def bytes_sent(
    algorithm: str | Algorithm, n: int, nbytes: int, itemsize: int = 4
) -> tuple[int, ...]:
    """Payload bytes that each rank sends, exactly: chunks are cut between elements of ``itemsize`` bytes.

    Raises ValueError if ``nbytes`` is no whole number of elements.
    """
    elements, rest = divmod(nbytes, itemsize)
    if rest:
        raise ValueError(f"{nbytes} bytes are no whole number of elements of {itemsize} bytes")
    if n == 1 or elements == 0:
        return (0,) * n
    return tuple(itemsize * each for each in find(algorithm).sent(n, elements))


def lower_bound(n: int, nbytes: float) -> float:
    """Bytes that the busiest rank of any all-reduce must send, 2(n-1)/n·L (Patarasuk & Yuan, theorem 1)."""
    return 2 * (n - 1) / n * nbytes


def terms(algorithm: str | Algorithm, n: int, nbytes: float) -> Terms:
    """What stands before α, β and γ; zeros where nothing is sent."""
    return find(algorithm).terms(n, nbytes) if n > 1 and nbytes else Terms(0, 0, 0)


def predict(algorithm: str | Algorithm, n: int, nbytes: float, cost: Cost) -> float:
    """Seconds of one all-reduce of ``nbytes`` bytes over ``n`` ranks."""
    return terms(algorithm, n, nbytes).seconds(cost)


def crossover(first: str | Algorithm, second: str | Algorithm, n: int, cost: Cost) -> float:
    """The bytes L* at which both take equally long; the one with fewer messages wins below. inf: at no size."""
    a, b = terms(first, n, 1), terms(second, n, 1)
    slope = Terms(0, b.sent - a.sent, b.added - a.added).seconds(cost)
    fixed = (a.messages - b.messages) * cost.alpha_s
    return fixed / slope if slope and fixed / slope > 0 else float("inf")


# -- the algorithms --


def _folded(n: int) -> tuple[int, int]:
    """The largest power of two m <= n, and how many ranks fold into a neighbour first and unfold last."""
    m = 1 << (n.bit_length() - 1)
    return m, n - m


def _fold(n: int, inner: Callable[[int, int], int], whole: int) -> list[int]:
    """What each rank sends if ``inner(v, m)`` is sent by the v-th of the m ranks that remain after folding.

    As in MPICH: of the first 2·extra ranks the even ones give all to the odd ones, and get all back.
    """
    m, extra = _folded(n)
    first = [x for v in range(extra) for x in (whole, inner(v, m) + whole)]
    return first + [inner(v, m) for v in range(extra, m)]


def _ring_sent(n: int, elements: int) -> list[int]:
    c = chunk_sizes(elements, n)
    return [2 * elements - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)]


def _ring_schedule(n: int) -> list[Transfer]:
    last = n - 1  # the first step of the all-gather
    return [
        Transfer(
            step, "reduce_scatter" if step < last else "all_gather",
            r, (r + 1) % n, (r - step) % n, adds=step < last,
        )
        for step in range(2 * last)
        for r in range(n)
    ]  # fmt: skip


def _naive_schedule(n: int) -> list[Transfer]:
    up = [Transfer(r - 1, "reduce", r, 0, 0, adds=True) for r in range(1, n)]
    down = [Transfer(n - 2 + r, "broadcast", 0, r, 0, adds=False) for r in range(1, n)]
    return up + down


def _one_shot_schedule(n: int) -> list[Transfer]:
    return [
        Transfer(step, "exchange", r, (r + 1 + step) % n, 0, adds=True)
        for step in range(n - 1)
        for r in range(n)
    ]


def _tree_sends(n: int) -> list[int]:
    """Binomial tree with root 0: up to the parent once, down to each child r + 2^k with 2^k below r's lowest bit."""
    low = [n if r == 0 else r & -r for r in range(n)]
    return [(r > 0) + sum(r + 2**k < n and 2**k < low[r] for k in range(_lg(n))) for r in range(n)]


def _lg(n: int) -> int:
    """⌈lg n⌉."""
    return (n - 1).bit_length()


def _butterfly_terms(n: int, nbytes: float) -> Terms:
    m, extra = _folded(n)
    rounds, fold = log2(m), bool(extra)
    return Terms(rounds + 2 * fold, nbytes * (rounds + 2 * fold), nbytes * (rounds + fold))


def _rabenseifner_sent(n: int, elements: int) -> list[int]:
    """Halving gives away all chunks but one's own; doubling gives blocks of 1, 2, 4, ... chunks around it."""

    def inner(v: int, m: int) -> int:
        c = chunk_sizes(elements, m)
        blocks = [2**k for k in range(int(log2(m)))]
        return elements - c[v] + sum(sum(c[v // size * size :][:size]) for size in blocks)

    return _fold(n, inner, elements)


def _rabenseifner_terms(n: int, nbytes: float) -> Terms:
    m, extra = _folded(n)
    part, fold = (m - 1) / m * nbytes, bool(extra)
    return Terms(
        2 * log2(m) + 2 * fold, 2 * part + 2 * fold * nbytes, part + fold * nbytes
    )  # fold adds all, once


def hierarchical(levels: Sequence[int]) -> Algorithm:
    """Rings within rings: n = Π pᵢ ranks, ``levels`` from the inside of a host outwards, such as [4, 2].

    Level i reduce-scatters what its predecessors left, L/Π_{j<i} pⱼ, and gathers it on the way back.
    """
    if not levels or min(levels) < 1:
        raise ValueError(f"levels must be ranks a level, 1 or more, such as [4, 2]; got {levels!r}")
    n = prod(levels)

    def count(ranks: int) -> int:
        if ranks != n:
            raise ValueError(f"levels {list(levels)} make {n} ranks, not {ranks}")
        return 2 * sum(p - 1 for p in levels)

    return Algorithm(
        "hierarchical",
        steps=count,
        sends=lambda ranks: [count(ranks)] * ranks,
        sent=lambda _, elements: [
            sum(each) for each in zip(*level_elements(levels, elements), strict=True)
        ],
        terms=lambda ranks, L: Terms(count(ranks), lower_bound(n, L), lower_bound(n, L) / 2),
    )


def level_elements(levels: Sequence[int], elements: int) -> list[list[int]]:
    """Elements that each rank sends at each level of ``hierarchical(levels)``: level, then rank (level 0 varies fastest)."""
    n = prod(levels)
    mine, place = [elements] * n, list(range(n))  # what a rank still has to reduce; its coordinates
    table = []
    for p in levels:
        at = [c % p for c in place]
        table.append([_ring_sent(p, m)[i] if p > 1 else 0 for m, i in zip(mine, at, strict=True)])
        mine = [chunk_sizes(m, p)[(i + 1) % p] for m, i in zip(mine, at, strict=True)]
        place = [c // p for c in place]
    return table


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "ring",
            steps=lambda n: 2 * (n - 1),
            sends=lambda n: [2 * (n - 1)] * n,
            sent=_ring_sent,
            terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) / n * L, (n - 1) / n * L),
            schedule=_ring_schedule,
            chunks=chunk_sizes,
        ),
        Algorithm(
            "naive",
            steps=lambda n: 2 * (n - 1),
            sends=lambda n: [n - 1] + [1] * (n - 1),
            sent=lambda n, elements: [(n - 1) * elements] + [elements] * (n - 1),
            terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) * L, (n - 1) * L),
            schedule=_naive_schedule,
        ),
        Algorithm(
            "one_shot",
            steps=lambda n: n - 1,
            sends=lambda n: [n - 1] * n,
            sent=lambda n, elements: [(n - 1) * elements] * n,
            terms=lambda n, L: Terms(n - 1, (n - 1) * L, (n - 1) * L),
            schedule=_one_shot_schedule,
            adds_last=True,
        ),
        Algorithm(
            "tree",
            steps=lambda n: 2 * _lg(n),
            sends=_tree_sends,
            sent=lambda n, elements: [messages * elements for messages in _tree_sends(n)],
            terms=lambda n, L: Terms(2 * _lg(n), 2 * _lg(n) * L, _lg(n) * L),
        ),
        Algorithm(
            "butterfly",
            steps=lambda n: int(_butterfly_terms(n, 1).messages),
            sends=lambda n: _fold(n, lambda _, m: int(log2(m)), 1),
            sent=lambda n, elements: _fold(n, lambda _, m: int(log2(m)) * elements, elements),
            terms=_butterfly_terms,
        ),
        Algorithm(
            "rabenseifner",
            steps=lambda n: int(_rabenseifner_terms(n, 1).messages),
            sends=lambda n: _fold(n, lambda _, m: 2 * int(log2(m)), 1),
            sent=_rabenseifner_sent,
            terms=_rabenseifner_terms,
        ),
    )
}


def find(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm of this name. Raises ValueError, which lists the names that there are."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"theory knows no algorithm {algorithm!r}; it knows {', '.join(ALGORITHMS)}, and hierarchical([4, 2])"
        )
    return ALGORITHMS[algorithm]


# -- planned events --


def plan(
    algorithm: str | Algorithm, n: int, nbytes: int, cost: Cost, *, itemsize: int = 4,
    start_ns: int = 0, op: int = 0, group: str = "default",
) -> pl.DataFrame:  # fmt: skip
    """The events of one all-reduce as the model has it, in the columns and types of a run's table.

    Every step lasts α + β·(its largest chunk) + γ·(the largest chunk added) and begins when the step before
    ended; in ``one_shot`` all additions follow all messages. Each chunk is one slot. ``value`` of the
    ``collective`` rows is the bytes of an element, their ``name`` is "planned".
    Raises ValueError for an algorithm without a schedule.
    """
    chosen = find(algorithm)
    if chosen.schedule is None:
        able = ", ".join(name for name, each in ALGORITHMS.items() if each.schedule)
        raise ValueError(f"{chosen.name} has no schedule to plan; there is one of {able}")
    elements = sum(bytes_sent("naive", 2, nbytes, itemsize)) // 2 // itemsize
    sizes = [
        itemsize * each
        for each in (chosen.chunks(elements, n) if chosen.chunks else [elements])
    ]
    transfers = chosen.schedule(n) if n > 1 and elements else []
    rows, end_s = _timed(transfers, sizes, cost, chosen.adds_last)
    whole = dict(start=0.0, end=end_s, kind="collective", nbytes=nbytes, name="planned", value=itemsize)
    rows += [{"rank": r, **whole} for r in range(n)]

    frame = pl.DataFrame(rows, schema_overrides={"value": pl.Float64}, infer_schema_length=None)
    same = {"lane": "comm", "generation": 0, "collective": "all_reduce", "algorithm": chosen.name, "group": group, "op": op}
    frame = frame.with_columns(
        start_ns=start_ns + (pl.col("start") * 1e9).round().cast(pl.Int64),
        end_ns=start_ns + (pl.col("end") * 1e9).round().cast(pl.Int64),
        seq=pl.int_range(pl.len()).over("rank"),
        **{name: pl.lit(value) for name, value in same.items()},
    )
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).fill_null(_nothing(dtype)).alias(name)
        for name, dtype in SCHEMA.items()
    )  # fmt: skip


def _nothing(dtype: pl.DataType) -> object:
    return "" if dtype == pl.Categorical else float("nan") if dtype == pl.Float64 else -1


def _timed(
    transfers: Sequence[Transfer], sizes: Sequence[int], cost: Cost, adds_last: bool
) -> tuple[list[dict[str, object]], float]:
    """Rows of the transfers, each rank's in the order in which it would write them, and when the last ends (seconds)."""
    rows: list[dict[str, object]] = []
    later: list[dict[str, object]] = []
    begin, added_later = 0.0, 0.0
    for step in sorted({transfer.step for transfer in transfers}):
        now = [transfer for transfer in transfers if transfer.step == step]
        largest = max(sizes[transfer.chunk] for transfer in now)
        here = begin + cost.alpha_s
        end = here + largest * cost.beta_s_per_byte
        adding = max((sizes[t.chunk] for t in now if t.adds), default=0) * cost.gamma_s_per_byte
        for t in now:
            what = dict(phase=t.phase, step=step, chunk=t.chunk, slot=0, nbytes=sizes[t.chunk])
            into = {"rank": t.target, "peer": t.source, **what}
            rows.append({"rank": t.source, "peer": t.target, "kind": "send", "start": begin, "end": end, **what})
            rows.append({"kind": "recv", "start": here, "end": end, **into})
            if t.adds:
                since = added_later if adds_last else end
                add = {"kind": "reduce", "start": since, "end": since + adding, **into}
                (later if adds_last else rows).append(add)
        added_later += adding * adds_last
        begin = end + adding * (not adds_last)
    for row in later:  # their times were counted from the last message's end
        row["start"], row["end"] = (begin + float(str(row[side])) for side in ("start", "end"))
    return rows + later, begin + added_later


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
    """The model that fits the points best, and how well: ``relative_error`` is the root mean square of (T - t)/t."""

    cost: Cost
    relative_error: float
    points: tuple[Measurement, ...]


def fit(points: Iterable[Measurement], gamma_s_per_byte: float | None = None) -> Fit:
    """α, β, γ >= 0 by least squares of the *relative* error, so that small and large sizes count alike.

    β and γ can be told apart only by algorithms whose sent and added bytes differ in proportion: the ring
    and naive (2 : 1) together with one_shot (1 : 1). Otherwise the one that alone explains the points gets
    all, and β if both do. ``gamma_s_per_byte`` sets γ where it was measured by itself.
    Raises ValueError if there is no point, or one without bytes, peers or duration.
    """
    points = tuple(points)
    empty = [p for p in points if p.seconds <= 0 or p.n < 2 or p.nbytes <= 0]
    if not points or empty:
        raise ValueError(
            f"a fit needs measurements of 2 or more ranks, some bytes and some seconds; got {empty or 'none'}"
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

    With three unknowns every choice of those that are not zero can be tried; of choices that are equally
    good the smallest is taken.
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
