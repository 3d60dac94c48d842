"""Curves of a run: loss, metrics, speed, communication, recording; columns that grow with it.

``select(store, name)`` gives the columns of one curve. ``Curves(store)`` keeps them up to date: an
update costs what is new, so that a chart of a long run may be drawn anew twice a second.

What is measured, for one rank and one iteration:

    step      from the start of its first row to the end of its last one
    compute   the union of its spans forward, backward, weight_grad, optimizer, load, and of
              metrics that took time
    exposed   step - compute: communication and waiting that no computing hides, and what little
              lies between them

Only rows of computing, metrics and outer spans (collective, push, pull) are looked at, a tenth of
all. An iteration appears once every rank is through with it, so that no value changes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.events import KINDS
from workbench.store import Store
from workbench.table import Batch

NAMES = ("loss", "accuracy", "throughput", "communication", "overhead")
COMPUTE = ("forward", "backward", "weight_grad", "optimizer", "load", "metric")
OUTER = ("collective", "push", "pull")
BUCKET_NS = 100_000_000  # events are counted in tenths of a second
LAG = 2  # iterations by which a rank has gone on before one is closed: its other lanes are drained
MANY = 64  # pieces of a table; then they become one
RECENT = 20  # iterations that tell how many ranks take part

_ROWS = pl.Schema(
    {
        "rank": pl.Int32(), "iteration": pl.Int64(), "kind": pl.String(), "start_ns": pl.Int64(),
        "end_ns": pl.Int64(), "name": pl.String(), "phase": pl.String(), "value": pl.Float64(),
    }
)  # fmt: skip
_SPLITS = ("minibatch", "validation")  # the phase of a metric that the task measured
_WANTED = np.array([kind in COMPUTE + OUTER for kind in KINDS])
_NUMBERS = ("start_ns", "end_ns", "value")
_STEP = ["rank", "iteration"]


def select(store: Store, name: str, record_ns: float | None = None) -> pl.DataFrame:
    """The columns of a curve (one of NAMES) from what ``store`` has now; see ``Curves.select``."""
    curves = Curves(store, None if record_ns is None else lambda: record_ns)
    curves.update()
    return curves.select(name)


def record_ns(run: object) -> float | None:
    """What writing one record costs in this run, as its meter says; None where nobody measured."""
    overhead = getattr(run, "overhead", None)
    return (overhead().record_ns or None) if callable(overhead) else None


# ---- rows to steps to iterations, pure


def steps(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a rank and iteration: start_ns, end_ns, compute_ns, loss, samples, ended."""
    p = pl.col
    metric, lasts = p("kind") == "metric", p("end_ns") > p("start_ns")
    spans = rows.filter(lasts)
    compute = (
        spans.filter(p("kind").is_in(COMPUTE))
        .sort(*_STEP, "start_ns")
        .with_columns(p("end_ns").cum_max().shift(1).over(_STEP).alias("before"))
        .with_columns(
            (p("end_ns") - pl.max_horizontal("start_ns", "before")).clip(0).alias("own_ns")
        )
        .group_by(_STEP)
        .agg(p("own_ns").sum().alias("compute_ns"))
    )
    told = rows.filter(metric).group_by(_STEP).agg(
        p("value").filter(p("name") == "loss").last().alias("loss"),
        p("value").filter(p("name") == "samples").last().alias("samples"),
        (p("name") == "runqueue").any().alias("ended"),
    )  # fmt: skip
    return (
        spans.group_by(_STEP)
        .agg(p("start_ns").min(), p("end_ns").max())
        .join(compute, on=_STEP, how="left")
        .join(told, on=_STEP, how="left")
        .with_columns(p("compute_ns").fill_null(0), p("ended").fill_null(False))
    )


def iterations(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps of the ranks added up to iterations; ``merged`` adds such tables to each other."""
    p = pl.col
    weight = p("samples").fill_null(1.0)
    return (
        steps.group_by("iteration")
        .agg(
            p("start_ns").min(),
            p("end_ns").max(),
            pl.len().cast(pl.Int64).alias("ranks"),
            (p("end_ns") - p("start_ns")).sum().alias("step_ns"),
            p("compute_ns").sum(),
            (p("loss") * weight).filter(weight > 0).sum().alias("loss_sum"),
            weight.filter(p("loss").is_not_null()).sum().alias("loss_weight"),
            p("samples").sum(),
        )
        .sort("iteration")
    )


def merged(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """Two tables of ``iterations`` as one. Costs what the newer one touches."""
    if not newer.height or not older.height:
        return newer if not older.height else older
    first = older["iteration"].search_sorted(newer["iteration"][0])
    least, most = {"start_ns"}, {"end_ns"}
    touched = (
        pl.concat([older[first:], newer])
        .group_by("iteration")
        .agg(
            pl.col(name).min() if name in least else pl.col(name).max() if name in most
            else pl.col(name).sum()
            for name in older.columns if name != "iteration"
        )
        .sort("iteration")
    )  # fmt: skip
    whole = pl.concat([older[:first], touched], rechunk=False)
    return whole.rechunk() if whole.n_chunks() > MANY else whole


def metrics(rows: pl.DataFrame) -> pl.DataFrame:
    """What the task measures of its own, by split; with sums for the sample-weighted mean."""
    p = pl.col
    samples = rows.filter(p("name") == "samples").select(*_STEP, p("value").alias("samples"))
    weight = p("samples").fill_null(1.0)
    return (
        rows.filter((p("kind") == "metric") & p("phase").is_in(_SPLITS))
        .join(samples.unique(_STEP), on=_STEP, how="left")
        .group_by("iteration", metric="name", split="phase")
        .agg(
            (p("value") * weight).sum().alias("value_sum"),
            weight.sum().alias("weight"),
        )
        .sort("iteration", "metric", "split")
    )


# ---- kept up to date


class Curves:
    """The curves of one store, kept up to date by ``update``. One thread at a time may use it.

    ``record_ns`` gives what writing one record costs, as of now; it is asked at each update.
    """

    def __init__(self, store: Store, record_ns: Callable[[], float | None] | None = None) -> None:
        self._store, self._record_ns = store, record_ns
        self._tap = store.tap()
        self._before = self._tap.position  # rows that the store had before the tap
        self._texts: list[str] = []
        self._open = pl.DataFrame(schema=_ROWS)
        self._closed: dict[int, int] = {}  # rank -> its newest iteration that is closed
        self._iterations = iterations(steps(self._open))
        self._metrics = metrics(self._open)
        self._rate = Rate()
        self.rows = 0

    def update(self) -> bool:
        """Take in what is new; whether there was any."""
        over, rows = self.over, self.rows  # over first: what is read afterwards is all there is
        found: list[pl.DataFrame] = []
        if self._before:
            found += [self._of_frame(piece) for piece in self._store.pieces(self._before)]
            self._before = 0
        for batch in self._tap.take():
            if len(batch.rows):
                found += self._of_batch(batch)
        if found or (over and self._open.height):
            self._take(pl.concat([self._open, *found]), over)
        if self._record_ns is not None and self.rows and (cost := self._record_ns()) is not None:
            self._rate.costs(cost)
        return self.rows != rows

    @property
    def over(self) -> bool:
        """Nothing more will come: the run says how it ended, or the events are from elsewhere."""
        told = self._store.metadata
        return "ok" in told or "experiment" not in told

    def select(self, name: str) -> pl.DataFrame:
        """The columns of a curve. ``seconds`` count from the start of the first iteration.

        loss           iteration, seconds, loss: mean over the minibatch before its update
        accuracy       iteration, seconds, metric, split, value: the task's own metrics, before the
                       update, of the "minibatch"; of the "validation" samples at the end
        throughput     iteration, seconds, took_s, iterations_per_s, samples_per_s (null: not known)
        communication  iteration, seconds, step_ms, compute_ms, exposed_ms: means over ranks
        overhead       seconds, events_per_s; record_ns: of one record; share: of the ranks' time
                       (as far as there are cores) that is spent on writing records; both null
                       where nobody measured
        """
        if name not in NAMES:
            raise ValueError(f"there is no curve {name!r}; there are {', '.join(NAMES)}")
        made: pl.DataFrame = getattr(self, f"_{name}")()
        return made

    # -- reading

    def _of_frame(self, frame: pl.DataFrame) -> pl.DataFrame:
        p = pl.col
        self.rows += frame.height
        self._rate.count(frame["end_ns"].to_numpy())
        kept = p("kind").is_in([*COMPUTE, *OUTER]) & ((p("iteration") >= 0) | _at_the_end())
        return frame.filter(kept).select(p(name).cast(_ROWS[name]) for name in _ROWS)

    def _of_batch(self, batch: Batch) -> list[pl.DataFrame]:
        """The rows that matter, picked from the raw records: most of them are never looked at."""
        rows, where = batch.rows, batch.contexts["iteration"]
        self.rows += len(rows)
        self._rate.count(rows["end_ns"])
        rows = rows[_WANTED[rows["kind"]]]
        if not len(rows):
            return []
        if max(rows["name"].max(), rows["phase"].max()) >= len(self._texts):
            self._texts += self._store.names(len(self._texts))
        columns = {
            "rank": np.full(len(rows), batch.rank, np.int32),
            "iteration": where[rows["context"]],
            "kind": [KINDS[code] for code in rows["kind"]],
            "name": [self._texts[number] for number in rows["name"]],
            "phase": [self._texts[number] for number in rows["phase"]],
        }
        columns |= {name: np.ascontiguousarray(rows[name]) for name in _ROWS if name in _NUMBERS}
        frame = pl.DataFrame({name: columns[name] for name in _ROWS}, schema=_ROWS)
        return [frame.filter((pl.col("iteration") >= 0) | _at_the_end())]

    def _take(self, rows: pl.DataFrame, over: bool) -> None:
        """Close what is complete: of each rank, iterations that it has left behind."""
        p = pl.col
        at_end, rows = rows.filter(p("iteration") < 0), rows.filter(p("iteration") >= 0)
        newest = dict(rows.group_by("rank").agg(p("iteration").max()).iter_rows())
        ranks = pl.DataFrame(
            {
                "rank": list(newest),
                "closed": [self._closed.get(rank, -1) for rank in newest],
                "until": [top - (0 if over else LAG) for top in newest.values()],
            },
            schema={"rank": pl.Int32(), "closed": pl.Int64(), "until": pl.Int64()},
        )
        fresh = rows.join(ranks, on="rank").filter(p("iteration") > p("closed"))
        whole = fresh.filter(p("iteration") <= p("until")).select(rows.columns)
        self._open = fresh.filter(p("iteration") > p("until")).select(rows.columns)
        self._closed |= {r: max(u, self._closed.get(r, -1)) for r, _, u in ranks.iter_rows()}
        made = steps(whole)
        if over and made["ended"].any():  # the last iteration of a run that failed has no end
            made = made.filter("ended")
        self._iterations = merged(self._iterations, iterations(made))
        told = metrics(pl.concat([at_end, whole]))
        self._metrics = pl.concat([self._metrics, told], rechunk=self._metrics.n_chunks() > MANY)

    # -- columns

    def _shown(self) -> pl.DataFrame:
        """Iterations that all ranks are through with, and when each ended."""
        p, table = pl.col, self._iterations
        if not table.height:
            return table.with_columns(seconds=pl.lit(0.0))
        most = table["ranks"].tail(RECENT).max()
        complete = (table["ranks"] >= most).arg_true()
        return table.head(int(complete[-1]) + 1).with_columns(
            ((p("end_ns").cum_max() - p("start_ns").first()) * 1e-9).alias("seconds")
        )

    def _loss(self) -> pl.DataFrame:
        p = pl.col
        return (
            self._shown()
            .filter(p("loss_weight") > 0)
            .select("iteration", "seconds", loss=p("loss_sum") / p("loss_weight"))
        )

    def _accuracy(self) -> pl.DataFrame:
        p, shown = pl.col, self._shown().select("iteration", "seconds")
        last = shown.tail(1)
        told = self._metrics.group_by("iteration", "metric", "split").agg(
            (p("value_sum").sum() / p("weight").sum()).alias("value")
        )
        ended = p("split") == "validation"
        parts = [
            told.filter(~ended).join(shown, on="iteration"),
            told.filter(ended).drop("iteration").join(last, how="cross"),
        ]
        columns = ["iteration", "seconds", "metric", "split", "value"]
        return pl.concat([one.select(columns) for one in parts]).sort(
            "metric", "split", "iteration"
        )

    def _throughput(self) -> pl.DataFrame:
        p = pl.col
        return (
            self._shown()
            .with_columns(took_s=p("seconds").diff().fill_null(p("seconds")))
            .filter(p("took_s") > 0)
            .select(
                "iteration", "seconds", "took_s",
                iterations_per_s=1 / p("took_s"),
                samples_per_s=pl.when(p("samples") > 0).then(p("samples") / p("took_s")),
            )
        )  # fmt: skip

    def _communication(self) -> pl.DataFrame:
        p, per_rank = pl.col, 1e6 * pl.col("ranks")
        return self._shown().select(
            "iteration", "seconds",
            step_ms=p("step_ns") / per_rank,
            compute_ms=p("compute_ns") / per_rank,
            exposed_ms=(p("step_ns") - p("compute_ns")) / per_rank,
        )  # fmt: skip

    def _overhead(self) -> pl.DataFrame:
        starts, table = self._iterations["start_ns"].to_numpy(), self._rate.table(self.over)
        origin = int(starts.min()) if len(starts) else self._rate.first_ns
        at_once = min(len(self._closed) or 1, int(self._store.metadata.get("cores", 0)) or 2**16)
        return table.select(
            ((pl.col("at_ns") - origin) * 1e-9).alias("seconds"),
            "events_per_s", "record_ns",
            share=pl.col("events_per_s") * pl.col("record_ns") * 1e-9 / at_once,
        )  # fmt: skip


def _at_the_end() -> pl.Expr:
    """A metric of the whole run, which belongs to no iteration."""
    return (pl.col("kind") == "metric") & (pl.col("phase").cast(pl.String) == "validation")


class Rate:
    """Events by tenths of a second, and what one record cost then."""

    def __init__(self) -> None:
        self.first_ns = self.last_ns = 0
        self._counts = np.zeros(0, np.int64)
        self._base = 0  # the bucket of the first count
        self._costs: list[tuple[int, float]] = []

    def count(self, ends_ns: npt.NDArray[np.int64]) -> None:
        """Count events that ended then."""
        if not len(ends_ns):
            return
        first, last = int(ends_ns.min()), int(ends_ns.max())
        if not len(self._counts):
            self.first_ns, self._base = first, first // BUCKET_NS
        self.first_ns, self.last_ns = min(first, self.first_ns), max(last, self.last_ns)
        low, high = first // BUCKET_NS, last // BUCKET_NS
        self._make_room(low, high)
        if low == high:
            self._counts[low - self._base] += len(ends_ns)
        else:
            found = np.bincount(ends_ns // BUCKET_NS - low)
            self._counts[low - self._base :][: len(found)] += found

    def _make_room(self, low: int, high: int) -> None:
        if low < self._base:
            self._counts = np.concatenate([np.zeros(self._base - low, np.int64), self._counts])
            self._base = low
        missing = high - self._base + 1 - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate([self._counts, np.zeros(missing, np.int64)])

    def costs(self, record_ns: float) -> None:
        """What one record costs from now on."""
        self._costs.append((self.last_ns // BUCKET_NS, record_ns))

    def table(self, over: bool) -> pl.DataFrame:
        """at_ns (a bucket's middle), events_per_s, record_ns; one still filling is left out."""
        buckets = np.arange(len(self._counts)) + self._base
        start = np.maximum(buckets * BUCKET_NS, self.first_ns)
        end = np.minimum((buckets + 1) * BUCKET_NS, self.last_ns)
        covered = np.maximum(end - start, 0)
        whole = covered >= BUCKET_NS // 5
        if not over and len(whole):
            whole[-1] = False
        cost = np.full(len(buckets), np.nan)
        if self._costs:
            at, values = np.array(self._costs).T
            cost = values[np.maximum(np.searchsorted(at, buckets, "right") - 1, 0)]
        return pl.DataFrame(
            {
                "at_ns": (start[whole] + end[whole]) // 2,
                "events_per_s": self._counts[whole] / (covered[whole] * 1e-9),
                "record_ns": pl.Series(cost[whole], dtype=pl.Float64).fill_nan(None),
            }
        )
