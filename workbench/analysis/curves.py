"""Curves of a run: loss, metrics, speed, communication, recording; columns that grow with it.

``select(store, name)`` gives the columns of one curve. ``Curves(store)`` keeps them up to date: an
update costs what is new, so that a chart of a long run can be drawn again twice per second.

What a step, computing, exposed communication and waiting are: store/iterations.py; curves of
iterations: iteration_curves.py. An iteration appears once every rank is through with it, so that no
value changes afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl

from workbench.analysis import actors, iteration_curves, replicas, servers, shards, stages
from workbench.analysis.actors import Actors
from workbench.analysis.ledgers import Ledgers, river
from workbench.analysis.rate import Rate
from workbench.analysis.replicas import Mixed
from workbench.analysis.server_rows import Served
from workbench.analysis.shards import Held
from workbench.analysis.stage_rows import Staged
from workbench.common.errors import SpecError
from workbench.recording.events import KINDS, ROW
from workbench.store.event_store import Store, Tap
from workbench.store.holds import STILL, holds_of
from workbench.store.iterations import (
    COMPUTE,
    MANY,
    OUTER,
    ROWS,
    iterations,
    merge,
    metrics,
    steps,
)
from workbench.store.table import Batch

NAMES = ("loss", "accuracy", "throughput", "communication", "overhead")
SERVED = ("updates", "time", "clocks", "staleness", "waiting", "servers")  # of a parameter server
STAGED = ("bubble", "stages", "activations")  # of a pipeline
MEMORY, RIVER = "memory", "river"  # where ranks count what they hold
MIXED = "disagreement"  # where replicas differ and mix
HELD = "held"  # where a model is sharded
PLAYED = ("returns", "returns_by_frames", "frames", "ages")  # where an environment is played
KINDS_SENT = "kinds"  # where actors, replay, learners and servers are ranks of their own
INPUT = "input"  # where examples come from servers
OVERLAP = "overlap"  # where gradients travel in buckets while backward still runs
SERVER = "server"  # the lane of a parameter server's rows; "server 1": of one worker's pushes
LAG = 2  # iterations by which a rank has gone on before one is closed: its other lanes are drained
LOST = 200  # iterations by which a rank lags that is counted out
RECENT = 20  # iterations that tell how many ranks took part in a run that is over

_KINDS = pl.Series(KINDS)
_WANTED = np.array([kind in COMPUTE + OUTER for kind in KINDS])
_NUMBERS = ("start_ns", "end_ns", "value")


def select(store: Store, name: str, record_ns: float | None = None) -> pl.DataFrame:
    """Return a curve's columns (one of NAMES) from ``store`` now; see ``Curves.select``."""
    curves = Curves(store, None if record_ns is None else lambda: record_ns)
    curves.update()
    return curves.select(name)


def record_ns(run: object) -> float | None:
    """Return the cost of writing one record in this run, in ns; None if it was not measured."""
    overhead = getattr(run, "overhead", None)
    return (overhead().record_ns or None) if callable(overhead) else None


class Curves:
    """The curves of one store, kept up to date by ``update``. One thread at a time may use it.

    ``record_ns`` gives what writing one record costs, as of now; it is asked at each update.
    """

    def __init__(self, store: Store, record_ns: Callable[[], float | None] | None = None) -> None:
        self._store, self._record_ns = store, record_ns
        self._tap: Tap | None = None
        self._texts = pl.Series([], dtype=pl.String)
        self._open = pl.DataFrame(schema=ROWS)
        self._closed: dict[int, int] = {}  # rank -> its newest iteration that is closed
        self._newest: dict[int, int] = {}  # rank -> its newest iteration
        self._iterations = iterations(steps(self._open))
        self._metrics = metrics(self._open)
        self._rate = Rate()
        self._served, self._staged = Served(store), Staged(store)
        self._mixed, self._held, self._actors = Mixed(store), Held(store), Actors(store)
        self._ledgers = Ledgers(store)
        self.rows = 0

    def update(self) -> bool:
        """Read new rows; return whether there were any."""
        over, rows = self.over, self.rows  # over first: what is read afterwards is all there is
        parts: list[pl.DataFrame] = []
        if self._tap is None:
            self._tap = self._store.tap()
            parts += [self._of_frame(piece) for piece in self._missed(self._tap.position)]
        batches = self._tap.take()
        self._served.of_batches(batches, self.rows)
        self._staged.of_batches(batches)
        self._mixed.of_batches(batches)
        self._held.of_batches(batches)
        self._actors.of_batches(batches)
        self._ledgers.of_batches(batches)
        parts += self._of_batches(batches)
        if parts or (over and self._open.height):
            self._take(pl.concat([self._open, *parts]), over)
        if self._record_ns is not None and self.rows and (cost := self._record_ns()) is not None:
            self._rate.costs(cost)
        return self.rows != rows

    def rest(self) -> None:
        """Keep nothing that waits to be read: the next update reads it from the store."""
        self._tap = None

    @property
    def began_ns(self) -> int:
        """The start of the first iteration, or of playing, from which ``seconds`` count."""
        if self._actors.active:
            return self._actors.began_ns
        rows = self._served.rows
        if servers.is_served(rows):
            return servers.origin(rows)
        starts = self._iterations["start_ns"]
        return int(starts[0]) if len(starts) else 0

    @property
    def updates_made(self) -> int:
        """The number of parameter updates by one server; 0 without a server."""
        return servers.updates_made(self._served.rows)

    @property
    def samples_dropped(self) -> int:
        """The number of samples whose gradients one server dropped as too stale."""
        return servers.dropped(self._served.rows)

    @property
    def is_staged(self) -> bool:
        """Whether the run is a pipeline."""
        return self._staged.active

    @property
    def offered(self) -> tuple[str, ...]:
        """The curves that have something to say of this run, as far as is known."""
        names: tuple[str, ...] = NAMES
        if self._served.active:
            names = (*names, *SERVED)
        if self._staged.active:  # what no computing hides is its bubble, which has reasons
            names = (*(name for name in names if name != "communication"), *STAGED)
        if self._iterations["hidable_ns"].sum() > 0:
            names = (*names, OVERLAP)
        if self._iterations["asked_ms"].sum() > 0:
            names = (*names, INPUT)
        if self._mixed.active:
            names = (*names, MIXED)
        if self._held.active:
            names = (*names, HELD)
        if self._actors.active:
            sent = (KINDS_SENT,) if "roles" in self._store.metadata else ()
            names = (*names, *PLAYED, *sent)
        if self._staged.memory:
            names = (*names, MEMORY, RIVER) if self._ledgers.active else (*names, MEMORY)
        return names

    @property
    def over(self) -> bool:
        """Nothing more will come: the run says how it ended, or the events are from elsewhere."""
        metadata = self._store.metadata
        return "ok" in metadata or "experiment" not in metadata

    def select(self, name: str) -> pl.DataFrame:
        """Return the columns of a curve. ``seconds`` count from the start of the first iteration.

        loss           iteration, seconds, loss: mean over the minibatch before its update
        accuracy       iteration, seconds, metric, split, value: the task's own metrics, before the
                       update, of the "minibatch"; of the "validation" samples at the end
        throughput     iteration, seconds, took_s, iterations_per_s, samples_per_s (null: not known)
        communication  iteration, seconds, step_ms, compute_ms, exposed_ms: means over ranks
        overlap        iteration, seconds, hidden_ms, exposed_ms, hidable_ms: means over ranks
        input          iteration, seconds, stall_ms, step_ms: mean over the ranks that train
        disagreement   iteration, end_ns, rms, nearest, furthest, alone: see mixed.py
        held           rank, iteration, end_ns, seconds, model, held, unsharded: see held.py
        overhead       seconds, events_per_s; record_ns: of one record; share: of the ranks' time
                       (as far as there are cores) that is spent on writing records; both null
                       where it was not measured
        updates, time  iteration, updates, seconds, loss: by updates of the parameters
        clocks, staleness, waiting, servers: of a parameter server, see served.py
        bubble, stages, activations: of a pipeline, and memory: see staged.py
        river          rank, seconds, a column for each kind, limit: see ledgers.py
        returns (and returns_by_frames, the same), frames and ages, kinds: see actors.py
        """
        if name in ("staleness", "waiting", "servers"):
            of_served: pl.DataFrame = getattr(servers, name)(self._served.rows)
            return of_served
        every = (*NAMES, *SERVED, *STAGED, MEMORY, RIVER, OVERLAP, INPUT, MIXED, HELD, KINDS_SENT)
        if name not in (*every, *PLAYED):
            known = ", ".join((*every, *PLAYED))
            raise SpecError(f"there is no curve {name!r}; there are {known}")
        if name in iteration_curves.BY_NAME:
            return iteration_curves.BY_NAME[name](self._shown())
        # What keeps the rows of "held" has its name.
        frame: pl.DataFrame = self._held_curve() if name == HELD else getattr(self, f"_{name}")()
        return frame

    # -- reading

    def _missed(self, position: int) -> Iterator[pl.DataFrame]:
        """Yield the store's rows up to ``position`` that were not read yet."""
        skip = self.rows
        for piece in self._store.pieces(position):
            if piece.height > skip:
                yield piece.slice(skip)
            skip = max(skip - piece.height, 0)

    def _of_frame(self, frame: pl.DataFrame) -> pl.DataFrame:
        p = pl.col
        self._served.of_frame(frame, self.rows)
        self._staged.of_frame(frame)
        self._mixed.of_frame(frame)
        self._held.of_frame(frame)
        self._actors.of_frame(frame)
        self._ledgers.of_frame(frame)
        self.rows += frame.height
        self._rate.count(frame["end_ns"].to_numpy())
        kept = p("kind").is_in([*COMPUTE, *OUTER]) & ((p("iteration") >= 0) | _at_the_end())
        served = p("lane").cast(pl.String).str.starts_with(SERVER)
        kept &= ~served  # a server is in its workers' iterations, not in its own
        return frame.filter(kept).select(p(name).cast(ROWS[name]) for name in ROWS)

    def _of_batches(self, batches: Sequence[Batch]) -> list[pl.DataFrame]:
        """Return the relevant rows, picked from raw records: most are never parsed."""
        ranks, where, picked = [], [], []
        names = self._store.names()
        served = {number for number, name in enumerate(names) if name.startswith(SERVER)}
        for batch in batches:
            self.rows += len(batch.rows)
            self._rate.count(batch.rows["end_ns"])
            if batch.lane in served:  # it is in its workers' iterations, not in its own
                continue
            rows = batch.rows[_WANTED[batch.rows["kind"]]]
            if len(rows):
                ranks.append(np.full(len(rows), batch.rank, np.int32))
                where.append(batch.contexts["iteration"][rows["context"]])
                picked.append(rows)
        if not picked:
            return []
        # As plain bytes: numpy would copy records field by field.
        rows = np.concatenate([each.view(f"V{ROW.itemsize}") for each in picked]).view(ROW)
        if max(rows["name"].max(), rows["phase"].max()) >= len(self._texts):
            self._texts = pl.Series(self._store.names(), dtype=pl.String)
        columns = {
            "rank": np.concatenate(ranks),
            "iteration": np.concatenate(where),
            "kind": _KINDS.gather(rows["kind"].astype(np.uint32)),
            "name": self._texts.gather(rows["name"].astype(np.uint32)),
            "phase": self._texts.gather(rows["phase"].astype(np.uint32)),
        }
        columns |= {name: np.ascontiguousarray(rows[name]) for name in _NUMBERS}
        frame = pl.DataFrame({name: columns[name] for name in ROWS}, schema=ROWS)
        return [frame.filter((pl.col("iteration") >= 0) | _at_the_end())]

    def _take(self, rows: pl.DataFrame, over: bool) -> None:
        """Close the complete iterations of each rank: those before its present one."""
        p = pl.col
        if "roles" in self._store.metadata:  # actors and replay have no iterations of their own
            learners = json.loads(self._store.metadata["roles"])["learners"]
            rows = rows.filter(p("rank").is_in(learners))
        at_end, rows = rows.filter(p("iteration") < 0), rows.filter(p("iteration") >= 0)
        newest = dict(rows.group_by("rank").agg(p("iteration").max()).iter_rows())
        self._newest |= newest
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
        new_steps = steps(whole, holds_of(self._store.metadata, STILL))
        if over and new_steps["ended"].any():  # the last iteration of a run that failed has no end
            new_steps = new_steps.filter("ended")
        self._iterations = merge(self._iterations, iterations(new_steps))
        new_metrics = metrics(pl.concat([at_end, whole]))
        self._metrics = pl.concat(
            [self._metrics, new_metrics], rechunk=self._metrics.n_chunks() > MANY
        )

    # -- columns

    def _shown(self) -> pl.DataFrame:
        """Return iterations that all ranks have finished, and when each ended."""
        p, table = pl.col, self._iterations
        if not table.height:
            return table.with_columns(seconds=pl.lit(0.0))
        complete = (table["ranks"] >= self._expected()).arg_true()
        if not len(complete):
            return table.clear().with_columns(seconds=pl.lit(0.0))
        began = self._actors.began_ns if self._actors.active else int(table["start_ns"][0])
        return table.head(int(complete[-1]) + 1).with_columns(
            ((p("end_ns").cum_max() - began) * 1e-9).alias("seconds")
        )

    def _expected(self) -> int:
        """Return the number of ranks that take part, by the newest iterations."""
        if self.over:
            return int(self._iterations["ranks"].tail(RECENT).to_numpy().max())
        newest = max(self._newest.values())
        return sum(iteration >= newest - LOST for iteration in self._newest.values())

    def _updates(self) -> pl.DataFrame:
        """Return the updates; without a server, an iteration is an update."""
        if servers.is_served(rows := self._served.rows):
            later = (servers.origin(rows) - self.began_ns) * 1e-9  # than playing has begun
            return servers.progress(rows).with_columns(pl.col("seconds") + later)
        return iteration_curves.loss(self._shown()).select(
            "iteration", pl.col("iteration").cast(pl.Float64).alias("updates"), "seconds", "loss"
        )

    _time = _updates

    def _clocks(self) -> pl.DataFrame:
        limit = servers.bound(self._store.metadata)
        return servers.clocks(self._served.rows).with_columns(bound=pl.lit(limit, pl.Int64))

    def _bubble(self) -> pl.DataFrame:
        return stages.bubble(self._staged.rows, self._plan)

    def _stages(self) -> pl.DataFrame:
        return stages.stages(self._staged.rows, self._plan)

    def _activations(self) -> pl.DataFrame:
        return stages.activations(self._staged.rows, self._plan, self.began_ns)

    def _disagreement(self) -> pl.DataFrame:
        return replicas.disagreement(self._mixed.rows, replicas.facts(self._store.metadata))

    def _held_curve(self) -> pl.DataFrame:
        whole = shards.unsharded(self._store.metadata)
        return shards.curve(self._held.rows, whole, self.began_ns)

    def _returns(self) -> pl.DataFrame:
        return actors.returns(self._actors.rows, self.began_ns)

    _returns_by_frames = _returns

    def _ages(self) -> pl.DataFrame:
        return actors.ages(self._actors.rows, self.began_ns)

    _frames = _ages

    def _kinds(self) -> pl.DataFrame:
        return self._actors.kinds(self._store.metadata)

    def _memory(self) -> pl.DataFrame:
        return stages.memory(self._staged.memory, stages.limit_bytes(self._store.metadata))

    def _river(self) -> pl.DataFrame:
        limit = stages.limit_bytes(self._store.metadata)
        return river(self._ledgers.rows, limit, self.began_ns)

    @property
    def _plan(self) -> stages.Plan | None:
        return stages.plan(self._store.metadata)

    def _accuracy(self) -> pl.DataFrame:
        return iteration_curves.accuracy(self._shown(), self._metrics)

    def _overhead(self) -> pl.DataFrame:
        starts, table = self._iterations["start_ns"].to_numpy(), self._rate.table(self.over)
        origin = int(starts.min()) if len(starts) else self._rate.first_ns
        at_once = min(len(self._closed) or 1, int(self._store.metadata.get("cores", 0)) or 2**16)
        return table.select(
            ((pl.col("at_ns") - origin) * 1e-9).alias("seconds"),
            "events_per_s",
            "record_ns",
            share=pl.col("events_per_s") * pl.col("record_ns") * 1e-9 / at_once,
        )


def _at_the_end() -> pl.Expr:
    """Return the filter for metrics of the whole run, which belong to no iteration."""
    return (pl.col("kind") == "metric") & (pl.col("phase").cast(pl.String) == "validation")
