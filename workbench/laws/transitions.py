"""The law of each transition: made once, inserted once, and drawn only while replay holds it.

Of runs with the option ``record_transitions``. A transition is the actor that it names and its
number there. It is inserted, or dropped as too old, at most once in all replays, by the rank of
that actor, after that rank made it. A replay draws it after it was inserted, and before so many
more were inserted as replay holds: with those the oldest go. A learner learns from nothing that was
not drawn for it. Once the run is over, replay has all that an actor made for it whose farewell it
has; a farewell may come before the last block is taken in.
"""

from __future__ import annotations

import polars as pl

from workbench.laws.violation import Row, Violation, report

_LAW = "conserved transitions"
_WHICH = ["actor", "number"]
_BEFORE = "transition "


def conserved_transitions(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check the law for each transition that has rows. ``complete``: the run ended well; of another
    one the rows of other ranks may be still to come.
    """
    p, named = pl.col, pl.col("name")
    rows = events.filter(p("kind") == "metric", named.str.starts_with(_BEFORE))
    if not rows.height:
        return []
    rows = rows.with_columns(
        named.str.strip_prefix(_BEFORE).alias("what"),
        p("chunk").alias("actor"),
        p("value").cast(pl.Int64).alias("number"),
    )
    produced = rows.filter(p("what") == "made")
    receipts = rows.filter(p("what").is_in(["inserted", "dropped"]))
    return [
        *_made_once(produced, receipts, complete),
        *(report(_LAW, _missing(events, produced, receipts), _missing_words) if complete else ()),
        *_drawn_while_held(events, rows),
        *_learned_from_drawn(rows, complete),
    ]


def _made_once(produced: pl.DataFrame, receipts: pl.DataFrame, complete: bool) -> list[Violation]:
    """Check that what replay took in came from its actor, once."""
    p = pl.col
    again = pl.concat([produced, receipts.with_columns(what=pl.lit("taken in"))])
    again = again.group_by("what", *_WHICH).agg(p("rank").first(), times=pl.len())
    matched = receipts.join(
        produced.select(*_WHICH, maker="rank", made_ns="end_ns", meant="peer"),
        on=_WHICH,
        how="left",
    )
    unknown = p("maker").is_null()
    other = (p("maker") != p("peer")) | (p("meant") != p("rank")) | (p("made_ns") > p("end_ns"))
    foreign = matched.filter(unknown & complete | (~unknown & other)).sort("end_ns")
    twice = again.filter(p("times") > 1).sort("what", *_WHICH)
    return [*report(_LAW, twice, _twice_words), *report(_LAW, foreign, _foreign_words)]


def _missing(events: pl.DataFrame, produced: pl.DataFrame, receipts: pl.DataFrame) -> pl.DataFrame:
    """Return what an actor made for a replay that has its farewell, and that never came."""
    p, pair = pl.col, ["rank", "peer", "generation"]
    parted = events.filter(p("kind") == "recv", p("name") == "farewell").select(
        rank="peer", peer="rank", generation="generation"
    )
    left = produced.join(parted.unique(), on=pair).join(
        receipts.select(_WHICH), on=_WHICH, how="anti"
    )
    return left.sort("end_ns")


def _drawn_while_held(events: pl.DataFrame, rows: pl.DataFrame) -> list[Violation]:
    """Check that what is drawn was inserted before, and is not evicted."""
    p = pl.col
    begins = events.filter(p("kind") == "metric", p("name") == "replay capacity")
    one = ["rank", "memory"]  # a new process begins a new memory
    moves = (
        pl.concat(
            [
                begins.select("rank", "end_ns", "seq", capacity="value", what=pl.lit("begins")),
                rows.filter(p("what").is_in(["inserted", "drawn"])).select(
                    "rank", "end_ns", "seq", "peer", "what", *_WHICH
                ),
            ],
            how="diagonal",
        )
        .sort("rank", "end_ns", "seq")
        .with_columns(memory=(p("what") == "begins").cum_sum().over("rank"))
        .with_columns(
            p("capacity").max().over(one),
            came=(p("what") == "inserted").cum_sum().over(one),
        )
    )
    inserted = moves.filter(p("what") == "inserted").select(
        *one, *_WHICH, place="came", inserted_ns="end_ns"
    )
    drawn = moves.filter(p("what") == "drawn").join(
        inserted.unique([*one, *_WHICH], keep="last"), on=[*one, *_WHICH], how="left"
    )
    never = p("place").is_null() | (p("place") > p("came"))
    gone = p("came") - p("place") >= p("capacity")
    bad = drawn.with_columns(never=never).filter(never | gone).sort("end_ns")
    return report(_LAW, bad, _drawn_words)


def _learned_from_drawn(rows: pl.DataFrame, complete: bool) -> list[Violation]:
    """Check that a learner learned from what replay had drawn for it, no more often."""
    p = pl.col
    if not complete:  # what replay has recorded may come after what the learner has
        return []
    pair = ["learner", "replay", *_WHICH]
    drawn = rows.filter(p("what") == "drawn").select(
        "actor", "number", learner="peer", replay="rank"
    )
    learned = rows.filter(p("what") == "learned").select(
        "actor", "number", learner="rank", replay="peer"
    )
    counts = (
        learned.group_by(pair)
        .agg(learned=pl.len())
        .join(drawn.group_by(pair).agg(drawn=pl.len()), on=pair, how="left")
        .with_columns(p("drawn").fill_null(0))
    )
    return report(_LAW, counts.filter(p("learned") > p("drawn")).sort(pair), _learned_words)


def _which(row: Row) -> str:
    return f"transition {row['number']} of actor {row['actor']}"


def _twice_words(row: Row) -> str:
    return f"{_which(row)} was {row['what']} {row['times']} times"


def _foreign_words(row: Row) -> str:
    how = f"replay {row['rank']} received {_which(row)} from rank {row['peer']}"
    if row["maker"] is None:
        return f"{how}, and no rank made it"
    if row["maker"] != row["peer"] or row["meant"] != row["rank"]:
        return f"{how}, and rank {row['maker']} made it, for replay {row['meant']}"
    return f"{how} before it was made"


def _missing_words(row: Row) -> str:
    return (
        f"rank {row['rank']} made {_which(row)} for replay {row['peer']} and left, and it was "
        "neither inserted nor dropped"
    )


def _drawn_words(row: Row) -> str:
    how = f"replay {row['rank']} drew {_which(row)} for learner {row['peer']}"
    if row["never"]:
        return f"{how}, which had not been inserted"
    later = row["came"] - row["place"]
    return f"{how} after its eviction: {later} came later, and it holds {row['capacity']:.0f}"


def _learned_words(row: Row) -> str:
    return (
        f"learner {row['learner']} learned from {_which(row)} of replay {row['replay']} "
        f"{row['learned']} times, and it was drawn {row['drawn']} times"
    )
