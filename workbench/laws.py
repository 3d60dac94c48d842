"""What must hold of a run, read from its event table alone.

A law is a function from the table to the ``Violation``s found in it, each of which says in words
which rank, operation, step, chunk and slot broke it. ``check_events`` asks all laws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench import theory
from workbench.contributors import (
    MESSAGE,
    OP,
    Replay,
    contributors,
    ends,
    members,
    plain_texts,
    replay,
)

__all__ = [
    "Violation",
    "check_events",
    "complete_sums",
    "contributors",
    "everyone_takes_part",
    "gapless_lanes",
    "matched_messages",
    "nested_spans",
    "ordered_times",
    "replicas_identical",
    "steps_and_bytes",
    "sum_error",
]

Row = Mapping[str, Any]
MOST = 20  # violations that one law reports; the rest it counts


@dataclass(frozen=True)
class Violation:
    """A law that does not hold, and where; -1 and "" where that means nothing."""

    law: str
    words: str
    rank: int = -1
    group: str = ""
    op: int = -1
    step: int = -1
    chunk: int = -1
    slot: int = -1

    def __str__(self) -> str:
        return f"{self.law}: {self.words}"


def check_events(
    events: pl.DataFrame, *, complete: bool = True, itemsize: int = 4
) -> list[Violation]:
    """Every law of the table that applies; an empty list is a run in which all hold.

    ``complete``: the run ended well. Otherwise (stopped, failed, still live) messages may be under
    way, and only collectives that every member ended, the group's last left out, are judged.
    ``itemsize``: bytes an element, for ``collective`` rows whose ``value`` does not say.
    """
    events = plain_texts(events)
    return [
        *ordered_times(events),
        *gapless_lanes(events),
        *nested_spans(events),
        *matched_messages(events, complete=complete),
        *everyone_takes_part(events, complete=complete),
        *steps_and_bytes(events, complete=complete, itemsize=itemsize),
        *complete_sums(events, complete=complete),
    ]


# -- laws of single rows and lanes --


def ordered_times(events: pl.DataFrame) -> list[Violation]:
    """No row ends before it starts."""
    bad = events.filter(pl.col("end_ns") < pl.col("start_ns"))
    return _report(
        "ordered times", bad,
        lambda row: (
            f"rank {row['rank']}'s {row['kind']}{_of(row)} ends "
            f"{row['start_ns'] - row['end_ns']:,} ns before it starts"
        ),
    )  # fmt: skip


def gapless_lanes(events: pl.DataFrame) -> list[Violation]:
    """The rows of every lane are numbered 0, 1, 2, ...: a gap is rows that were dropped."""
    lane = ["rank", "lane"]
    rows = events.select(*lane, "seq").sort(*lane, "seq")
    gap = (pl.col("seq") - pl.col("seq").shift(1, fill_value=-1).over(lane)).alias("gap")
    bad = rows.with_columns(gap).filter(pl.col("gap") != 1)

    def words(row: Row) -> str:
        of = f"of rank {row['rank']}'s lane {row['lane']!r}"
        if row["gap"] < 1:
            return f"row {row['seq']} {of} is there more than once"
        first = row["seq"] - row["gap"] + 1
        missing = (
            f"row {first} {of} is"
            if row["gap"] == 2
            else f"rows {first} to {row['seq'] - 1} {of} are"
        )
        return f"{missing} missing"

    return _report("gapless lanes", bad, words)


def nested_spans(events: pl.DataFrame) -> list[Violation]:
    """Spans of one lane of one rank nest or follow each other; they never cross."""
    lane = ["rank", "lane"]
    spans = events.filter(pl.col("end_ns") > pl.col("start_ns")).sort(
        *lane, "start_ns", "end_ns", descending=[False, False, False, True]
    )
    lanes = spans.select(pl.struct(lane).rle_id()).to_series().to_list()
    starts, stops = spans["start_ns"].to_list(), spans["end_ns"].to_list()
    pairs: list[tuple[int, int]] = []
    open_spans: list[int] = []
    before = -1
    for i, (of, start, stop) in enumerate(zip(lanes, starts, stops, strict=True)):
        if of != before:
            open_spans, before = [], of
        while open_spans and stops[open_spans[-1]] <= start:
            open_spans.pop()
        if open_spans and stops[open_spans[-1]] < stop:
            pairs.append((open_spans[-1], i))
        else:
            open_spans.append(i)
    outer, inner = (spans[[pair[side] for pair in pairs]] for side in (0, 1))
    others = outer.rename({column: f"{column}_outer" for column in outer.columns})

    def words(row: Row) -> str:
        first = {column: row[f"{column}_outer"] for column in outer.columns}
        return (
            f"on rank {row['rank']}, lane {row['lane']!r}, {row['kind']}{_of(row)} "
            f"(row {row['seq']}) starts inside {first['kind']}{_of(first)} (row {first['seq']}) "
            f"and ends {row['end_ns'] - first['end_ns']:,} ns after it"
        )

    return _report("nested spans", pl.concat([inner, others], how="horizontal"), words)


# -- laws of messages and collectives --


def matched_messages(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Each recv has one send of the same bytes, which started before it ended; each send one recv.

    Where not ``complete``, a send may still be under way.
    """
    events = plain_texts(events)
    sent = ends(events, "send").group_by(MESSAGE).agg(
        sends=pl.len(), sent=pl.col("nbytes").sum(), left=pl.col("start_ns").min()
    )  # fmt: skip
    received = ends(events, "recv").group_by(MESSAGE).agg(
        recvs=pl.len(), received=pl.col("nbytes").sum(), there=pl.col("end_ns").min()
    )  # fmt: skip
    pairs = sent.join(received, on=MESSAGE, how="full", coalesce=True)
    pairs = pairs.with_columns(pl.col("sends", "recvs").fill_null(0).cast(pl.Int64))
    bad = pairs.filter(
        (pl.col("sends") > 1)
        | (pl.col("sends") < pl.col("recvs"))
        | ((pl.col("recvs") == 0) & complete)
        | (pl.col("sent") != pl.col("received"))
        | (pl.col("left") > pl.col("there"))
    ).sort(MESSAGE)

    def words(row: Row) -> str:
        source, target, what = row["source"], row["target"], _of(row)
        if row["sends"] == 0:
            return f"rank {target} received{what} from rank {source}, which has no send row for it"
        if row["recvs"] == 0:
            return f"rank {source} sent{what} to rank {target}, which has no recv row for it"
        if (row["sends"], row["recvs"]) != (1, 1):
            return (
                f"rank {source} has {row['sends']} send rows and rank {target} {row['recvs']} "
                f"recv rows for{what}: expected one each"
            )
        if row["sent"] != row["received"]:
            return (
                f"rank {source} sent {row['sent']:,} B and rank {target} received "
                f"{row['received']:,} B:{what}"
            )
        return (
            f"rank {target}'s recv{what} ended {row['left'] - row['there']:,} ns before "
            f"rank {source}'s send started"
        )

    who = pl.when(pl.col("sends") == 0).then("target").otherwise("source")
    return _report("matched messages", bad.with_columns(rank=who), words)


def everyone_takes_part(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Each member of a group has one ``collective`` row for each operation, with the same bytes."""
    events = plain_texts(events)
    ops, who = _collectives(events, complete), members(events)
    expected = ops.join(who, on=OP[:2])
    rows = _outer(events).group_by(*OP, "rank").len("rows")
    bad = expected.join(rows, on=[*OP, "rank"], how="left").filter(pl.col("rows").fill_null(0) != 1)
    absent = _report(
        "everyone takes part", bad.sort(*OP, "rank"),
        lambda row: (
            f"rank {row['rank']} has {row['rows'] or 'no'} collective rows for{_of(row)}: "
            "expected one"
        ),
    )  # fmt: skip
    differing = ops.filter(pl.col("kinds") > 1).sort(OP)
    return absent + _report(
        "everyone takes part", differing,
        lambda row: f"ranks disagree about the bytes or the algorithm of{_of(row)}",
    )  # fmt: skip


def steps_and_bytes(
    events: pl.DataFrame, *, complete: bool = True, itemsize: int = 4
) -> list[Violation]:
    """Each all-reduce takes its algorithm's steps, messages and bytes, as theory has them."""
    events = plain_texts(events)
    known = pl.col("algorithm").is_in(list(theory.ALGORITHMS))
    ops = _collectives(events, complete).filter(pl.col("collective") == "all_reduce", known)
    ops = ops.with_columns(
        itemsize=pl.when(pl.col("value").is_between(1, 64))
        .then("value")
        .otherwise(itemsize)
        .cast(pl.Int64)
    )
    case = ["algorithm", "size", "nbytes", "itemsize"]
    expected, torn = _expected(ops.select(case).unique().rows(named=True))
    sends = events.filter(pl.col("kind") == "send")
    of_rank = sends.group_by(*OP, "rank").agg(
        sent=pl.col("nbytes").sum(), messages=pl.struct("step", "peer").n_unique()
    )
    of_op = sends.group_by(OP).agg(steps=pl.col("step").n_unique())
    found = (
        ops.join(expected, on=case)
        .join(members(events).drop("size"), on=[*OP[:2], "place"])
        .join(of_rank, on=[*OP, "rank"], how="left")
        .join(of_op, on=OP, how="left")
        .with_columns(pl.col("sent", "messages", "steps").fill_null(0).cast(pl.Int64))
        .sort(*OP, "rank")
    )
    wrong = found.filter(
        pl.any_horizontal(
            pl.col(it) != pl.col(f"{it}_expected") for it in ("sent", "messages", "steps")
        )
    )

    def words(row: Row) -> str:
        names = {"sent": "bytes sent", "messages": "messages sent", "steps": "steps in all"}
        return (
            f"rank {row['rank']},{_of(row)} "
            f"({row['algorithm']}, {row['size']} ranks, {row['nbytes']:,} B): "
            + ", ".join(
                f"{row[it]:,} {name}, theory {row[f'{it}_expected']:,}"
                for it, name in names.items()
                if row[it] != row[f"{it}_expected"]
            )
        )

    return _report("steps and bytes", wrong, words) + _report(
        "steps and bytes", torn.join(ops, on=case).sort(OP),
        lambda row: (
            f"{_of(row).strip()} has {row['nbytes']:,} B, no whole number of elements of "
            f"{row['itemsize']} B: pass itemsize"
        ),
    )  # fmt: skip


def complete_sums(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """At the end of an all-reduce every rank's every chunk holds every rank's part exactly once."""
    events = plain_texts(events)
    ops = _collectives(events, complete).filter(pl.col("collective") == "all_reduce")
    who = members(events)
    found = replay(events.join(ops.select(OP), on=OP, how="semi"), who)
    sizes = found.cells["size"].to_numpy()
    places = np.arange(found.final.shape[1])
    real = places < sizes[:, None]
    wrong = (found.final != 1) & real[:, :, None] & real[:, None, :]
    cell, place = np.nonzero(wrong.any(axis=2))
    return _report("complete sums", *_incomplete(found, who, cell, place))


def _incomplete(
    found: Replay, who: pl.DataFrame, cell: Any, place: Any
) -> tuple[pl.DataFrame, Callable[[Row], str]]:
    """The chunks that are not complete, and the words that say what they lack or have too often."""
    rows = pl.DataFrame(
        {"cell": cell, "place": place}, schema={"cell": pl.UInt32, "place": pl.Int64}
    )
    ranks = {
        (row["generation"], row["group"], row["place"]): row["rank"]
        for row in who.iter_rows(named=True)
    }
    bad = (
        rows.join(found.cells, on="cell")
        .join(who.drop("size"), on=[*OP[:2], "place"])
        .sort(*OP, "chunk", "slot", "rank")
    )

    def words(row: Row) -> str:
        counts = found.final[row["cell"], row["place"], : row["size"]].tolist()
        of = [ranks[row["generation"], row["group"], place] for place in range(row["size"])]
        lacks = [str(rank) for rank, count in zip(of, counts, strict=True) if count == 0]
        extra = [
            f"rank {rank}'s {count} times"
            for rank, count in zip(of, counts, strict=True)
            if count not in (0, 1)
        ]
        lack = (
            [f"lacks the part of rank{'s' * (len(lacks) > 1)} {', '.join(lacks)}"] if lacks else []
        )
        return f"at the end rank {row['rank']}'s{_of(row)} " + " and ".join(
            lack + ([f"holds {', '.join(extra)}"] if extra else [])
        )

    return bad, words


# -- laws of results --


def replicas_identical(digests: Mapping[int, str]) -> list[Violation]:
    """All replicas have the same parameters, bit for bit. ``digests``: ``result.digests``."""
    common = max(sorted(set(digests.values())), key=list(digests.values()).count, default="")
    return [
        Violation(
            "replicas identical",
            f"rank {rank}'s parameters have digest {digest[:12]}, most ranks' have {common[:12]}",
            rank=rank,
        )
        for rank, digest in sorted(digests.items())
        if digest != common
    ]


def sum_error(result: Any, inputs: Sequence[Any]) -> float:
    """The worst |error| of an elementwise sum of n ``inputs``, as a share of (n-1)·u·Σ|xᵢ|.

    At most 1 is within the bound. u is half the distance from 1 to the next number: 2⁻²⁴ for
    float32, 2⁻⁵³ for float64, whose reference is a long double (float64 for the others). Integers
    must be exact: 0 or inf. Arrays or CPU tensors of one shape and dtype, else ValueError.
    """
    got, xs = np.asarray(result), [np.asarray(x) for x in inputs]
    if not xs or any(x.shape != got.shape or x.dtype != got.dtype for x in xs):
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in xs) or "nothing"
        raise ValueError(f"a sum of {shapes} cannot be {got.dtype}{list(got.shape)}")
    if not np.issubdtype(got.dtype, np.floating):
        return 0.0 if np.array_equal(got, np.sum(xs, axis=0, dtype=got.dtype)) else float("inf")
    wide = np.longdouble if got.dtype == np.float64 else np.float64
    parts = np.stack([x.astype(wide) for x in xs])
    with np.errstate(invalid="ignore", over="ignore"):
        exact = parts.sum(axis=0)
        error = np.abs(got.astype(wide) - exact)
        bound = (len(xs) - 1) * wide(np.finfo(got.dtype).eps / 2) * np.abs(parts).sum(axis=0)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    usable = ~same & (bound > 0) & np.isfinite(bound) & np.isfinite(error)
    ratio = np.where(same, 0.0, np.inf)
    ratio[usable] = error[usable] / bound[usable]
    return float(ratio.max(initial=0.0))


# -- what the laws share --


def _outer(events: pl.DataFrame) -> pl.DataFrame:
    return events.filter(
        pl.col("kind") == "collective", pl.col("op") >= 0, pl.col("collective") != "p2p"
    )


def _collectives(events: pl.DataFrame, complete: bool) -> pl.DataFrame:
    """One row for each collective to be judged: OP, algorithm, nbytes, value, size of the group."""
    group = OP[:2]
    sizes = members(events).group_by(group).agg(pl.col("size").first())
    ops = _outer(events).group_by(OP).agg(
        pl.col("algorithm", "nbytes", "value").first(),
        kinds=pl.struct("algorithm", "nbytes").n_unique(),
        ranks=pl.col("rank").n_unique(),
    ).join(sizes, on=group)  # fmt: skip
    if complete:
        return ops
    return ops.filter(
        pl.col("ranks") == pl.col("size"), pl.col("op") < pl.col("op").max().over(group)
    )


def _expected(cases: Sequence[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Theory's numbers for each place in each case, and the cases of no whole elements."""
    whole = ("size", "nbytes", "itemsize")
    columns = pl.Schema({"algorithm": pl.String(), **dict.fromkeys(whole, pl.Int64())})
    more = ("place", "sent_expected", "messages_expected", "steps_expected")
    wider = pl.Schema({**columns, **dict.fromkeys(more, pl.Int64())})
    rows: list[tuple[Any, ...]] = []
    torn: list[tuple[Any, ...]] = []
    for case in cases:
        algorithm, n, nbytes, itemsize = (case[column] for column in columns)
        if nbytes % itemsize:
            torn.append((algorithm, n, nbytes, itemsize))
            continue
        sent = theory.bytes_sent(algorithm, n, nbytes, itemsize)
        messages = theory.messages_sent(algorithm, n) if nbytes else (0,) * n
        steps = theory.steps(algorithm, n) if nbytes else 0
        rows += ((algorithm, n, nbytes, itemsize, r, sent[r], messages[r], steps) for r in range(n))
    return pl.DataFrame(rows, wider, orient="row"), pl.DataFrame(torn, columns, orient="row")


def _of(row: Row) -> str:
    """What a row belongs to, such as: chunk 3 slot 0 at step 1 of all_reduce 5 in group 'a'."""
    parts = [f" {name} {row[name]}" for name in ("chunk", "slot") if row.get(name, -1) >= 0]
    if row.get("step", -1) >= 0:
        parts.append(f" at step {row['step']}")
    if row.get("op", -1) >= 0:
        what = "message" if row["collective"] == "p2p" else row["collective"]
        parts.append(f"{' of' if parts else ''} {what} {row['op']} in group {row['group']!r}")
        if row["generation"] > 0:
            parts.append(f", generation {row['generation']}")
    return "".join(parts)


def _report(law: str, bad: pl.DataFrame, words: Callable[[Row], str]) -> list[Violation]:
    """The first ``MOST`` rows of ``bad`` in words, and how many more there are."""
    fields = [
        name for name in ("rank", "group", "op", "step", "chunk", "slot") if name in bad.columns
    ]
    found = [
        Violation(law, words(row), **{name: row[name] for name in fields})
        for row in bad.head(MOST).iter_rows(named=True)
    ]
    more = bad.height - len(found)
    return [*found, Violation(law, f"and {more:,} more")] if more else found
