"""Laws of single rows, of lanes, and of messages."""

from __future__ import annotations

import polars as pl

from workbench.laws.violation import Row, Violation, of, report
from workbench.theory.provenance import MESSAGE, ends, plain_texts


def coarser(events: pl.DataFrame) -> str:
    """Say how many rows of chunks were folded into how many, since the way to the driver was too
    slow for all of them; "": none were.
    """
    chunked = pl.col("kind").is_in(["send", "recv", "reduce", "copy", "wait"])
    folded = events.filter(chunked & pl.col("value").is_not_nan())
    chunks = int(folded["value"].sum())
    return f"coarser: {chunks:,} chunks in {folded.height:,} rows" if folded.height else ""


def ordered_times(events: pl.DataFrame) -> list[Violation]:
    """Check that no row ends before it starts."""
    bad = events.filter(pl.col("end_ns") < pl.col("start_ns"))
    return report(
        "ordered times",
        bad,
        lambda row: (
            f"rank {row['rank']}'s {row['kind']}{of(row)} ends "
            f"{row['start_ns'] - row['end_ns']:,} ns before it starts"
        ),
    )


def gapless_lanes(events: pl.DataFrame) -> list[Violation]:
    """Check that the rows of every lane are numbered 0, 1, 2, ...: a gap means dropped rows."""
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

    return report("gapless lanes", bad, words)


def nested_spans(events: pl.DataFrame) -> list[Violation]:
    """Check that spans of one lane of one rank nest or follow each other, and never cross."""
    lane = ["rank", "lane"]
    spans = events.filter(pl.col("end_ns") > pl.col("start_ns")).sort(
        *lane, "start_ns", "end_ns", descending=[False, False, False, True]
    )
    lanes = spans.select(pl.struct(lane).rle_id()).to_series().to_list()
    starts, stops = spans["start_ns"].to_list(), spans["end_ns"].to_list()
    pairs: list[tuple[int, int]] = []
    open_spans: list[int] = []
    before = -1
    for i, (lane_of, start, stop) in enumerate(zip(lanes, starts, stops, strict=True)):
        if lane_of != before:
            open_spans, before = [], lane_of
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
            f"on rank {row['rank']}, lane {row['lane']!r}, {row['kind']}{of(row)} "
            f"(row {row['seq']}) starts inside {first['kind']}{of(first)} (row {first['seq']}) "
            f"and ends {row['end_ns'] - first['end_ns']:,} ns after it"
        )

    return report("nested spans", pl.concat([inner, others], how="horizontal"), words)


def matched_messages(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check that sends and recvs pair up: equal bytes, and the send starts before its recv ends.

    Unless ``complete``, a send may still be under way; and the row of a rank's last message may be
    missing, since it is written when the message has left: the rank was killed in between.
    """
    events = plain_texts(events)
    sent = (
        ends(events, "send")
        .group_by(MESSAGE)
        .agg(sends=pl.len(), sent=pl.col("nbytes").sum(), left=pl.col("start_ns").min())
    )
    received = (
        ends(events, "recv")
        .group_by(MESSAGE)
        .agg(recvs=pl.len(), received=pl.col("nbytes").sum(), there=pl.col("end_ns").min())
    )
    pairs = sent.join(received, on=MESSAGE, how="full", coalesce=True)
    pairs = pairs.with_columns(pl.col("sends", "recvs").fill_null(0).cast(pl.Int64))
    if not complete:
        pairs = pairs.join(_unsaid(pairs), on=MESSAGE, how="anti", nulls_equal=True)
    bad = pairs.filter(
        (pl.col("sends") > 1)
        | (pl.col("sends") < pl.col("recvs"))
        | ((pl.col("recvs") == 0) & complete)
        | (pl.col("sent") != pl.col("received"))
        | (pl.col("left") > pl.col("there"))
    ).sort(MESSAGE)

    def words(row: Row) -> str:
        source, target, what = row["source"], row["target"], of(row)
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

    blamed = pl.when(pl.col("sends") == 0).then("target").otherwise("source")
    return report("matched messages", bad.with_columns(rank=blamed), words)


def _unsaid(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return each sender's last message, if it has no send row: one per sender and group."""
    channel = ["source", "target", "group"]
    last = (pl.col("there") == pl.col("there").max().over(channel)) & (
        pl.col("recvs").min().over(channel) > 0  # nothing that was sent later is on its way
    )
    unsaid = pairs.with_columns(last=last).filter(pl.col("sends") == 0)
    return unsaid.filter("last", pl.len().over("source", "group") == 1)
