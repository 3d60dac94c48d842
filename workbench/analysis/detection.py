"""Detection: what was done to a run on purpose, scored against what was noticed.

What was done are the ``fault`` rows, written as each fault struck: of the experiment, its scenario,
or of the user. What was noticed are the ``detect`` rows.

    found        a row names the rank, or the link's end, while the fault lasts or soon after
    missed       nothing did, although it is looked for
    not looked   a freeze stops the clocks of the run, a slow rank is not lost, a link that is cut,
                 or a data source that is down, for less than two seconds is used again, a rank that
                 joins is not lost (it is found as it arrives), one that is told to go in the last
                 iteration leaves with all others, one that is told twice leaves once, one that is
                 killed before it leaves is found as killed, a share is not looked at where its
                 iteration is given up and its rank leaves, and what the experiment does not check
    false alarm  something was noticed, and no fault was there that could explain it. A stall or an
                 end passes from rank to rank; a kill or a minibatch is of the rank that a fault
                 struck, and so is a replica, unless there is no majority to tell which it is

That a peer is late because it computes, or has no core, is not an alarm: it is so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

import polars as pl

from workbench.common.units import counted
from workbench.experiment.stored import settings
from workbench.store.link_faults import CUT, LINK

GRACE_NS = 5_000_000_000  # after a fault has ended, for what follows from it
TOGETHER_NS = 100_000_000  # cuts of links within this time count as one
CUT_IS_FELT_NS = 2_000_000_000  # a stall is named after one second, by a rank that uses the link
LOST = ("killed", "exited", "ended", "left", "lost", "evicted")
ENDS = ("kill", "preempt", "remove", "fail to start")  # faults that end a rank
NOTICES = ("preempt", "remove")  # the faults that let a rank finish its iteration first
LEFT = "preempted"  # what a rank writes that had a notice, as it goes
# A rank that joins, began late or is late (for want of a core, say), and data that cannot be read
# for a while: no fault.
# Not of ranks that failed: some come or wait, and a host may be cut off from the driver alone.
COME = (
    *("arrived", "absent", "left out", "data source down", "data source back"),
    *("cut off", "back"),
)
STALLED = ("stalled", "stalled: stopped", "evicted", "left out")
DIFFERS = "a replica differs"
BAD = "bad minibatch"
FLIPPED = "corrupt bitflip"
SOURCE = "source down"
_DATA = ("corrupt nan", "corrupt raises", "corrupt shape")


@dataclass(frozen=True)
class Scored:
    """One fault, and how it was noticed.

    ``ranks``: those that it struck, of cut links both ends. ``at_ns``, ``until_ns``: when it
    began and ended. ``latency_ms``: from then to the first row that names it; None: none does.
    ``by``: the rank that wrote it, -1 for the driver; ``how``: its name. ``expected``: it is looked
    for.
    """

    fault: str
    ranks: tuple[int, ...]
    at_ns: int
    until_ns: int
    latency_ms: float | None
    by: int
    how: str
    expected: bool

    @property
    def missed(self) -> bool:
        """Whether no rank noticed what is looked for."""
        return self.expected and self.latency_ms is None

    @property
    def words(self) -> str:
        """The fault and what became of it, in a line."""
        struck = f"{'rank' if len(self.ranks) == 1 else 'ranks'} {', '.join(map(str, self.ranks))}"
        if self.latency_ms is not None:
            by = "the driver" if self.by < 0 else f"rank {self.by}"
            return f"{self.fault}, {struck}: {self.how!r} after {self.latency_ms:.1f} ms, by {by}"
        return f"{self.fault}, {struck}: {'missed' if self.expected else 'not looked for'}"


@dataclass(frozen=True)
class Alarm:
    """A notice without a fault: ``by`` a rank (-1: the driver), about ``rank``."""

    name: str
    by: int
    rank: int
    at_ns: int
    iteration: int


@dataclass(frozen=True, repr=False)
class Detection:
    """The faults of a run, in order, and the alarms that no fault explains."""

    each: tuple[Scored, ...]
    false_alarms: tuple[Alarm, ...]

    @property
    def missed(self) -> list[Scored]:
        """The faults that are looked for, and that no rank noticed."""
        return [one for one in self.each if one.missed]

    @property
    def latency_ms(self) -> float:
        """The median time from a fault to its detection; NaN where none was found."""
        latencies = [one.latency_ms for one in self.each if one.latency_ms is not None]
        return median(latencies) if latencies else math.nan

    @property
    def table(self) -> pl.DataFrame:
        """A row per fault, with a column for each field, and ``missed``."""
        kinds: dict[str, Any] = {
            "fault": pl.String,
            "how": pl.String,
            "ranks": pl.List(pl.Int64),
            "latency_ms": pl.Float64,
            "expected": pl.Boolean,
        }
        schema = {one.name: kinds.get(one.name, pl.Int64) for one in fields(Scored)}
        table = pl.DataFrame([asdict(one) for one in self.each], schema=schema)
        return table.with_columns(missed=pl.col("expected") & pl.col("latency_ms").is_null())

    def __repr__(self) -> str:
        detections = sum(one.latency_ms is not None for one in self.each)
        head = f"{counted(len(self.each), 'fault')}, {detections} found"
        if detections:
            head += f" (median {self.latency_ms:.1f} ms)"
        alarms = counted(len(self.false_alarms), "false alarm")
        lines = [f"{head}, {len(self.missed)} missed, {alarms}"]
        lines += [f"  {one.words}" for one in self.each]
        lines += [f"  false alarm: {one.name!r} about rank {one.rank}" for one in self.false_alarms]
        return "\n".join(lines)


def score(events: pl.DataFrame | pl.LazyFrame, metadata: Mapping[str, str]) -> Detection:
    """Score what was noticed in a run against what was done to it, so far."""
    p = pl.col
    text = [p(name).cast(pl.String) for name in ("kind", "name", "group")]
    rows = events.lazy().with_columns(text)
    fault_rows = rows.filter(p("kind").is_in(["fault", "detect"])).sort("start_ns").collect()
    last = events.lazy().select(p("end_ns").max()).collect().item()
    done = fault_rows.filter(p("kind") == "fault")
    noticed = fault_rows.filter(p("kind") == "detect").to_dicts()
    spec = settings(metadata)
    looks = _looked_for(spec)
    overtaken = _overtaken(done)
    idle = _trained_to_the_end(rows, done, spec) | _given_up(rows, done) | overtaken
    claimed = set[int]()
    corrupt = {row["peer"] for row in noticed if row["name"] == DIFFERS}
    each = []
    for name, ranks, at, until in _faults(done.to_dicts(), int(last or 0)):
        index = next(
            (
                number
                for number, row in enumerate(noticed)
                if number not in claimed
                and (ranks[0], at) not in overtaken
                and at <= row["start_ns"] <= until + GRACE_NS
                and _names(row, name, ranks)
            ),
            None,
        )
        expected = (ranks[0], at) not in idle and _expected(name, at, until, looks)
        if index is None:
            each.append(Scored(name, ranks, at, until, None, -1, "", expected))
            continue
        claimed.add(index)
        row = noticed[index]
        took = (row["start_ns"] - at) / 1e6
        each.append(Scored(name, ranks, at, until, took, row["rank"], row["name"], expected))
    alarms = [
        Alarm(row["name"], row["rank"], row["peer"], row["start_ns"], row["iteration"])
        for number, row in enumerate(noticed)
        if number not in claimed
        and not row["name"].startswith("late")
        and row["name"] not in COME
        and not (row["name"] == "corrupt" and row["peer"] in corrupt)  # it is ended for that
        and not any(_explains(one, row) for one in each)
    ]
    return Detection(tuple(each), tuple(alarms))


def _faults(
    rows: Sequence[Mapping[str, Any]], last: int
) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
    """Yield each fault's name, ranks, begin and end. Cuts of the same moment are one, and so is a
    share that is corrupt again as its iteration is done again, after a recovery.
    """
    cut: list[Mapping[str, Any]] = []
    corrupt = {_share(row): row["start_ns"] for row in rows}  # the last time
    for at, row in enumerate(rows):
        name, rank = row["name"], _struck(row)
        if name == CUT:
            if cut and row["start_ns"] - cut[0]["start_ns"] > TOGETHER_NS:
                yield _cut(cut, rows, last)
                cut = []
            cut.append(row)
        elif name.startswith("corrupt"):
            if (last_time := corrupt.pop(_share(row), None)) is not None:
                yield name, (rank,), row["start_ns"], last_time
        elif name in (*ENDS, "join"):
            yield name, (rank,), row["start_ns"], _left_at(rank, row, rows[at + 1 :])
        elif name == SOURCE:
            yield name, (rank,), row["start_ns"], int(row["start_ns"] + row["value"] * 1e9)
        elif name == "freeze" or (name == "slow" and row["value"] > 1):
            yield name, (rank,), row["start_ns"], _until(name, rank, row, rows[at + 1 :], last)
    if cut:
        yield _cut(cut, rows, last)


def _struck(row: Mapping[str, Any]) -> int:
    """Return the rank that a fault struck: it wrote the row itself, or the driver did."""
    return int(row["peer"] if row["rank"] < 0 else row["rank"])


def _share(row: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return what is the same of a corrupt share whenever it is loaded."""
    return row["name"], row["rank"], row["iteration"]


def _left_at(rank: int, row: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> int:
    """Return when a rank that had a notice left; of any other fault, when it struck."""
    at = int(row["start_ns"])
    if row["name"] not in NOTICES:
        return at
    left = (one["start_ns"] for one in later if one["name"] == LEFT and one["rank"] == rank)
    return int(next(left, at))


def _until(
    name: str, rank: int, row: Mapping[str, Any], later: Sequence[Mapping[str, Any]], last: int
) -> int:
    """Return when a freeze or a slowness ended: by itself, by a later row, or with the run."""
    if name == "freeze" and math.isfinite(row["value"]):
        return int(row["start_ns"] + row["value"] * 1e9)
    over = "thaw" if name == "freeze" else "slow"
    ends = (one["start_ns"] for one in later if one["name"] == over and one["peer"] == rank)
    return int(next(ends, last))


def _cut(
    cut: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], last: int
) -> tuple[str, tuple[int, ...], int, int]:
    """Return cuts of one moment as one fault: until the last of these links is there again."""
    links, at = {one["group"] for one in cut}, int(cut[0]["start_ns"])
    ends = {
        row["group"]: int(row["start_ns"])
        for row in reversed(rows)
        if row["name"] == LINK and row["group"] in links and row["start_ns"] > at
    }
    ranks = {int(rank) for link in links for rank in link.split("->")}
    until = max(ends.values()) if ends.keys() == links else last
    return CUT, tuple(sorted(ranks)), at, until


def _explains(fault: Scored, row: Mapping[str, Any]) -> bool:
    """Return whether what was noticed may follow from this fault."""
    if not fault.at_ns <= row["start_ns"] <= fault.until_ns + GRACE_NS:
        return False
    stays = row["name"] in ("killed", DIFFERS) or row["name"].startswith(BAD)
    return not stays or row["peer"] in fault.ranks or fault.fault == FLIPPED


def _names(row: Mapping[str, Any], fault: str, ranks: Sequence[int]) -> bool:
    """Return whether a row of what was noticed names this fault."""
    name, about = row["name"], row["peer"] in ranks
    if fault == "join":
        return about and name == "arrived"
    if fault in ENDS:
        return about and (name in LOST or (fault == "fail to start" and name == "absent"))
    if fault == "freeze":
        return about and name in STALLED
    if fault == "slow":
        return about and name in ("late: computes", "left out")
    if fault == CUT:
        return about and name in STALLED and (row["rank"] < 0 or row["rank"] in ranks)
    if fault == SOURCE:
        return bool(name == "data source down")
    if fault in _DATA:
        return about and name.startswith(BAD)
    return about and name == DIFFERS


def _expected(fault: str, at: int, until: int, looks: Mapping[str, bool]) -> bool:
    if fault in (CUT, SOURCE):
        return until - at >= CUT_IS_FELT_NS
    if fault in _DATA:
        return looks["data"]
    if fault == FLIPPED:
        return looks["replicas"]
    return fault in ENDS


def _trained_to_the_end(
    rows: pl.LazyFrame, done: pl.DataFrame, spec: Mapping[str, Any]
) -> set[tuple[int, int]]:
    """Return rank and time of each notice to leave that came so late that the rank took part in the
    last iteration, of this generation or of a later one that it was in.
    """
    p = pl.col
    struck = pl.when(p("rank") < 0).then(p("peer")).otherwise(p("rank"))
    notices = done.filter(p("name").is_in(NOTICES)).with_columns(rank=struck)
    if notices.is_empty():
        return set()
    iterations = spec.get("iterations")
    if not isinstance(iterations, int):
        return set()
    there = (
        rows.filter(p("iteration") == iterations - 1)
        .group_by("rank")
        .agg(last=p("generation").max())
        .collect()
    )
    left = dict(done.filter(name=LEFT).group_by("rank").agg(p("start_ns").max()).iter_rows())
    late = notices.join(there, on="rank").filter(p("generation") <= p("last"))
    return {
        (rank, at)
        for rank, at in late.select("rank", "start_ns").iter_rows()
        if left.get(rank, -1) < at
    }


def _overtaken(done: pl.DataFrame) -> set[tuple[int, int]]:
    """Return rank and time of each notice that did not end its rank.

    That is a repeated notice, and one whose rank was killed before it left.
    """
    overtaken, notices = set[tuple[int, int]](), dict[int, int]()
    for row in done.iter_rows(named=True):
        name, at, rank = row["name"], row["start_ns"], _struck(row)
        if name == LEFT:
            notices.pop(rank, None)
        elif name == "kill" and rank in notices:
            overtaken.add((rank, notices.pop(rank)))
        elif name in NOTICES and rank in notices:
            overtaken.add((rank, at))
        elif name in NOTICES:
            notices[rank] = at
    return overtaken


def _given_up(rows: pl.LazyFrame, done: pl.DataFrame) -> set[tuple[int, int]]:
    """Return rank and first time of each corrupt share whose iteration was given up before its rank
    could look at it, and that the rank did not load again: it had left by then.
    """
    p = pl.col
    corrupt = done.filter(p("name").is_in(_DATA))
    if corrupt.is_empty():
        return set()
    gave_up = {
        (row["rank"], row["generation"]): row["end_ns"]
        for row in rows.filter(p("kind") == "abort").collect().iter_rows(named=True)
    }
    last = {_share(row): row for row in corrupt.iter_rows(named=True)}
    first = {_share(row): row["start_ns"] for row in reversed(corrupt.to_dicts())}
    return {
        (row["rank"], first[share])
        for share, row in last.items()
        if gave_up.get((row["rank"], row["generation"]), -1) > row["start_ns"]
    }


def _looked_for(spec: Mapping[str, Any]) -> dict[str, bool]:
    """Return what the experiment checks by itself."""
    try:
        data = spec.get("bad_minibatch", "keep") != "keep"
        return {"data": data, "replicas": int(spec.get("digest_every", 0)) > 0}
    except (TypeError, ValueError):
        return {"data": False, "replicas": False}
