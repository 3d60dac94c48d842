"""Recovery: what each loss of ranks cost, phase after phase, and the goodput of the run.

    fault     a rank ends: the origin, if a row says when; otherwise detect is
    detect    the driver has noticed the end of every rank that this failure took, or each survivor
              has by itself, whichever is earlier; where none was lost: that those are there which
              are to join
    abort     the last survivor has left the group
    rebuild   the last member has joined the next group
    restore   the last member has what is trained
    first     the last member has finished its first iteration

Times are milliseconds since the origin; null: not reached, or not recorded.

    goodput   the share of the time, from the first iteration's start to the end of the record, that
              passed in iterations that count: those that no later generation did again

Where a parameter server was lost, its keys come from elsewhere (``sources``):

    staleness     the most updates that its keys lack, of those that it had made
    updates_lost  how many of them no worker does again, over all lost servers

Source  Goodput of training: https://cloud.google.com/blog/products/ai-machine-learning/
        goodput-metric-as-measure-of-ml-productivity
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, overload

import polars as pl

from workbench.common.names import named_ranks
from workbench.common.units import counted, print_size
from workbench.store.recoveries import Recovery, absent_of, recoveries_of

ORIGINS = {"fault": "the fault", "detect": "the loss was noticed"}  # of the times, in words
PLANNED = {"removed", "ended"}  # ways of a rank to leave: it was told to, or had notice
PHASES = ("detect", "abort", "rebuild", "restore", "first")
MOST_NAMED = 6
TRAINING = ("forward", "backward", "weight_grad", "optimizer", "load", "collective", "push", "pull")
_STEPS = ("abort", "rebuild", "restore")
_ROWS = pl.Schema(
    {
        "rank": pl.Int32(),
        "generation": pl.Int32(),
        "kind": pl.String(),
        "name": pl.String(),
        "peer": pl.Int32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "nbytes": pl.Int64(),
        "iteration": pl.Int64(),
        "value": pl.Float64(),
        "version": pl.Int64(),
    }
)


@dataclass(frozen=True)
class Recovered:
    """One recovery: the ranks lost, those that went on, the time of each phase, and its cost."""

    generation: int  # that followed
    lost: tuple[int, ...]
    how: tuple[str, ...]  # each of them ended: "killed", "evicted", "removed" ...
    failed_in: int  # iteration
    iteration: int  # that training went on with
    members: tuple[int, ...]
    fresh: tuple[int, ...]  # members that were not in the team before, or have a new process
    state: str  # "memory", "checkpoint" or "beginning"
    since: str  # the origin of the times: "fault" or "detect"
    detect_ms: float | None
    abort_ms: float | None
    rebuild_ms: float | None
    restore_ms: float | None
    first_ms: float | None
    samples_repeated: int
    bytes_received: int
    sources: tuple[str, ...] = ()  # of a lost server's keys: replica, pull, checkpoint, beginning
    staleness: int = 0  # updates
    updates_lost: int = 0

    @property
    def iterations_lost(self) -> int:
        """Whole iterations that were done, and are done again; 0 where the lost rank was behind the
        others, as a server may be.
        """
        return max(0, self.failed_in - self.iteration)

    @property
    def joined(self) -> tuple[int, ...]:
        """Ranks that were not in the team before."""
        return tuple(rank for rank in self.fresh if rank not in self.lost)

    @property
    def planned(self) -> bool:
        """Whether ranks only joined, or left as they were told to: no failure."""
        return {*self.how} <= PLANNED

    @property
    def words(self) -> str:
        """The recovery in a sentence."""
        origin = "the change was noticed" if self.planned else ORIGINS[self.since]
        if self.iteration < 0:  # torchrun's doing: only the script knows its iterations
            subject = f"{_ranks(self.lost)} failed" if self.lost else "nodes joined or left"
            return f"{subject}; torchrun restarted the job with {_ranks(self.members)}"
        on = f"{_ranks(self.members)} went on with iteration {self.iteration + 1}"
        # A rank that joins may have kept its process, as a late one does that comes back.
        replaced = [rank for rank in self.fresh if rank not in self.joined]
        fresh = f", {_ranks(replaced)} in a new process" if replaced else ""
        took = (
            ""
            if self.first_ms is None
            else f"; the first ended {self.first_ms:.0f} ms after {origin}"
        )
        cost = [counted(self.iterations_lost, "iteration") + " lost"]
        cost.append(counted(self.samples_repeated, "sample") + " repeated")
        if self.bytes_received:
            cost.append(f"{print_size(int(float(f'{self.bytes_received:.3g}')))} received")
        if self.sources:
            cost.append(f"restored from {' and '.join(self.sources)}")
            if self.sources != ("buddy",):
                cost.append(counted(self.updates_lost, "update") + " lost")
        return (
            f"{self._event} in iteration {self.failed_in + 1}; {on}{fresh}{took}: {', '.join(cost)}"
        )

    @property
    def _event(self) -> str:
        joined = f"{_ranks(self.joined)} joined" if self.joined else ""
        if not self.lost:
            return joined or "no rank was lost"
        one, *more = sorted({*self.how})
        verb = one if one in ("evicted", "removed", "corrupt", "late") and not more else "lost"
        words = f"{_ranks(self.lost)} {'was' if len(self.lost) == 1 else 'were'} {verb}"
        if {*self.how} == {"ended"}:
            words = f"{_ranks(self.lost)} left"
        return f"{words} and {joined}" if joined else words

    def __repr__(self) -> str:
        return self.words


@dataclass(frozen=True, repr=False)
class Recoveries(Sequence[Recovered]):
    """The recoveries of a run, oldest first. ``goodput``: NaN before the first iteration.
    ``absent``: ranks that training began without, and why.
    """

    each: tuple[Recovered, ...]
    goodput: float
    absent: Mapping[int, str] = field(default_factory=dict)

    @property
    def table(self) -> pl.DataFrame:
        """A row per recovery, with a column for each field, and iterations_lost."""
        kinds: dict[str, Any] = {
            **dict.fromkeys(("lost", "members", "fresh"), pl.List(pl.Int64)),
            **dict.fromkeys(("how", "sources"), pl.List(pl.String())),
            **dict.fromkeys(("state", "since"), pl.String()),
            **{f"{phase}_ms": pl.Float64() for phase in PHASES},
        }
        schema = {one.name: kinds.get(one.name, pl.Int64()) for one in fields(Recovered)}
        table = pl.DataFrame([asdict(one) for one in self.each], schema=schema)
        lost = pl.col("failed_in") - pl.col("iteration")
        return table.with_columns(iterations_lost=pl.max_horizontal(lost, pl.lit(0)))

    @overload
    def __getitem__(self, at: int) -> Recovered: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Recovered]: ...
    def __getitem__(self, at: int | slice) -> Recovered | Sequence[Recovered]:
        return self.each[at]

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[Recovered]:
        return iter(self.each)

    def __repr__(self) -> str:
        end = f"goodput {self.goodput:.1%}" if self.goodput == self.goodput else "no iteration yet"
        planned = sum(one.planned for one in self.each)
        failures = len(self.each) - planned
        counts = [f"{failures} {'recovery' if failures == 1 else 'recoveries'}"] * bool(failures)
        counts += [counted(planned, "planned change")] * bool(planned)
        head = " and ".join(counts) or "no recovery"
        began = [
            f"  training began without rank {rank}, which {why}"
            for rank, why in self.absent.items()
        ]
        return "\n".join([f"{head}, {end}", *began, *(f"  {one.words}" for one in self.each)])


def measure(events: pl.DataFrame | pl.LazyFrame, metadata: Mapping[str, str]) -> Recoveries:
    """Measure the recoveries of a run, so far, from its rows and its metadata."""
    p = pl.col
    kind, name = p("kind").cast(pl.String), p("name").cast(pl.String)
    row_filter = kind.is_in(["fault", "detect", "apply", *_STEPS, *TRAINING]) | (
        (kind == "metric") & name.is_in(["samples", "runqueue"])
    )
    picked = events.lazy().filter(row_filter).with_columns(kind=kind, name=name)
    rows = picked.select(p(column).cast(_ROWS[column]) for column in _ROWS).collect()
    recoveries = recoveries_of(metadata)
    counts = _with_repeat(rows, recoveries)
    return Recoveries(
        tuple(_recovered(rows, counts, recoveries, at) for at in range(len(recoveries))),
        _goodput(counts, rows),
        absent_of(metadata),
    )


def _with_repeat(rows: pl.DataFrame, recoveries: Sequence[Recovery]) -> pl.DataFrame:
    """Return the rows of training with ``repeated``: the generation that went back before their
    iteration and did it again; null: they count.
    """
    p = pl.col
    again = pl.lit(None, pl.Int32)
    for one in reversed(recoveries):  # the first that went back is the one that repeats them
        undone = (p("generation") < one.generation) & (p("iteration") >= one.iteration)
        again = pl.when(undone).then(one.generation).otherwise(again)
    training = p("kind").is_in([*TRAINING, "metric"]) & (p("iteration") >= 0) & (p("rank") >= 0)
    return rows.filter(training).with_columns(repeated=again.cast(pl.Int32))


def _goodput(counts: pl.DataFrame, rows: pl.DataFrame) -> float:
    """Compute the share of time in iterations that count."""
    if not counts.height:
        return float("nan")
    p = pl.col
    good = (
        counts.filter(p("repeated").is_null())
        .group_by("generation")
        .agg(spent=p("end_ns").max() - p("start_ns").min())
    )
    steps = rows.filter(p("kind").is_in(_STEPS))["end_ns"]
    ends = [end for end in (counts["end_ns"].max(), steps.max()) if isinstance(end, int)]
    start = counts["start_ns"].min()
    whole = max(ends) - start if isinstance(start, int) else 0
    return min(1.0, int(good["spent"].sum()) / whole) if whole > 0 else 1.0


def _recovered(
    rows: pl.DataFrame, counts: pl.DataFrame, recoveries: Sequence[Recovery], at: int
) -> Recovered:
    one, p = recoveries[at], pl.col
    before = recoveries[at - 1].generation if at else 0
    lost = sorted(map(int, one.lost))
    new, old = (rows.filter(p("generation") == which) for which in (one.generation, before))
    changed = lost or [rank for rank in one.fresh]  # a rank that came is noticed too
    detect = old.filter(p("kind") == "detect", p("rank") == -1, p("peer").is_in(changed))
    aborts, survivors = old.filter(p("kind") == "abort"), set(one.members) - set(one.fresh)
    begun = _last(aborts, "rank", survivors, "start_ns")  # a survivor may look before the driver
    either = (_last(detect, "peer", changed), begun)
    noticed = min((when for when in either if when is not None), default=None)
    fault = _fault(old, lost, noticed)
    left = _last(aborts, "rank", survivors)
    steps = {kind: new.filter(p("kind") == kind) for kind in ("rebuild", "restore")}
    ends = {
        "detect": noticed,
        "abort": left,
        **{kind: _last(each, "rank", one.members) for kind, each in steps.items()},
        "first": _last(_first_iterations(new), "rank", one.members),
    }
    since = fault if fault is not None else noticed
    received = steps["restore"].filter(p("name") == "received", p("nbytes") > 0)
    repeated = counts.filter(p("repeated") == one.generation, p("name") == "samples")
    took: dict[str, Any] = {
        f"{phase}_ms": None if end is None or since is None else (end - since) / 1e6
        for phase, end in ends.items()
    }
    return Recovered(
        one.generation,
        tuple(lost),
        tuple(one.lost[str(rank)] for rank in lost),
        one.failed_in,
        one.iteration,
        one.members,
        one.fresh,
        one.state,
        "detect" if fault is None else "fault",
        **took,
        samples_repeated=round(float(repeated["value"].sum())),
        bytes_received=int(received["nbytes"].sum()),
        sources=tuple(dict.fromkeys(part.source for part in one.regained)),
        **_updates_lacking(rows.filter(p("kind") == "apply"), one),
    )


def _updates_lacking(applied: pl.DataFrame, one: Recovery) -> dict[str, int]:
    """Count the updates that lost servers had made, by their rows, and that their keys lack; and
    those of them that no worker does again.
    """
    p, staleness, lost = pl.col, 0, 0
    for server in sorted(map(int, one.lost)):
        applied_after = applied.filter(p("rank") == server, p("generation") < one.generation)
        parts = [part for part in one.regained if part.server in (server, -1)]
        if not parts or not applied_after.height:
            continue
        lacking = applied_after.filter(p("version") > min(part.version for part in parts))
        staleness = max(staleness, lacking["version"].n_unique())
        lost += max(part.updates_lost for part in parts)
    return {"staleness": staleness, "updates_lost": lost}


def _fault(old: pl.DataFrame, lost: Sequence[int], noticed: int | None) -> int | None:
    """Return when the first of the lost ranks was killed; None where no row says so."""
    p = pl.col
    struck = pl.when(p("rank") >= 0).then("rank").otherwise("peer")
    kills = old.filter(p("kind") == "fault", p("name") == "kill", struck.is_in(lost))
    first = kills["end_ns"].min()
    if not isinstance(first, int) or (noticed is not None and first > noticed):
        return None
    return first


def _first_iterations(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with which each rank ended its first iteration of a generation."""
    p = pl.col
    ends = rows.filter(
        p("kind").is_in(["optimizer", "apply"]) | (p("name") == "runqueue"), p("iteration") >= 0
    )
    return ends.filter(p("iteration") == p("iteration").min().over("rank"))


def _last(
    rows: pl.DataFrame, column: str, values: Sequence[int] | set[int], at: str = "end_ns"
) -> int | None:
    """Return when the last of these ended its last such row; None while some have none."""
    ends = rows.filter(pl.col(column).is_in(list(values))).group_by(column).agg(pl.max(at))
    last = ends[at].max()
    return last if ends.height == len(values) and isinstance(last, int) else None


def _ranks(ranks: Sequence[int]) -> str:
    """Return "rank 2", "ranks 0, 1 and 3", "12 ranks"."""
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} ranks"
    return named_ranks(ranks)
