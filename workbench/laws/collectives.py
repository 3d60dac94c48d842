"""Laws of collectives: participation, steps and bytes, and complete sums in every chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from workbench.common.units import counted
from workbench.formulas.holding import AT_LEAST
from workbench.laws.violation import Row, Violation, of, report
from workbench.theory import cost_model
from workbench.theory.provenance import OP, Counts, Replay, members, plain_texts, replay


def everyone_takes_part(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check that each member of a group has one ``collective`` row per operation.

    The rows of one operation agree on the bytes, the root and the algorithm.
    """
    events = plain_texts(events)
    ops, roster = _collectives(events, complete), members(events)
    expected = ops.join(roster, on=OP[:2])
    rows = _outer(events).group_by(*OP, "rank").len("rows")
    bad = expected.join(rows, on=[*OP, "rank"], how="left").filter(pl.col("rows").fill_null(0) != 1)
    absent = report(
        "everyone takes part",
        bad.sort(*OP, "rank"),
        lambda row: (
            f"rank {row['rank']} has {row['rows'] or 'no'} collective rows for{of(row)}: "
            "expected one"
        ),
    )
    differing = ops.filter(pl.col("kinds") > 1).sort(OP)
    return absent + report(
        "everyone takes part",
        differing,
        lambda row: f"ranks disagree about the bytes, the root or the algorithm of{of(row)}",
    )


def steps_and_bytes(
    events: pl.DataFrame, *, complete: bool = True, itemsize: int = 4
) -> list[Violation]:
    """Check that each collective takes the steps, messages and bytes of its algorithm in theory.

    The bytes of an uneven all-to-all, whose row has no ``value``, are not judged.
    """
    events = plain_texts(events)
    roster = members(events)
    known = pl.DataFrame(
        [(operation, name) for operation, all in cost_model.OPERATIONS.items() for name in all],
        ["collective", "algorithm"],
        orient="row",
    )
    ops = _collectives(events, complete).join(known, on=["collective", "algorithm"], how="semi")
    rows = _cases(events, ops, itemsize)
    expected, torn = _expected(rows.select(CASE).unique().rows(named=True))
    ours = rows.join(roster.drop("size"), on=[*OP[:2], "rank"])
    judged = ours.join(expected, on=[*CASE, "place"])
    counted = _with_counts(judged, events).sort(*OP, "rank")
    wrong = counted.filter(
        pl.any_horizontal(pl.col(it) != pl.col(f"{it}_expected") for it in _COUNTS)
    )
    return report("steps and bytes", wrong, _deviation) + report(
        "steps and bytes",
        torn.join(rows, on=CASE).unique(OP).sort(OP),
        lambda row: (
            f"{of(row).strip()} has {row['nbytes']:,} B, no whole number of elements of "
            f"{row['itemsize']} B: pass itemsize"
        ),
    )


_COUNTS = {"sent": ("byte", "sent"), "messages": ("message", "sent"), "steps": ("step", "in all")}


def _cases(events: pl.DataFrame, ops: pl.DataFrame, itemsize: int) -> pl.DataFrame:
    """Return each rank's row of these collectives, with the bytes of an element; 0: not judged."""
    uneven = (pl.col("collective") == "all_to_all") & pl.col("value").is_nan()
    return (
        _outer(events)
        .select(*OP, "rank", "nbytes", "value")
        .join(ops.select(*OP, "algorithm", "way", "size", "root"), on=OP)
        .with_columns(
            itemsize=pl.when(uneven)
            .then(0)
            .when(pl.col("value").is_between(1, 64))
            .then("value")
            .otherwise(itemsize)
            .cast(pl.Int64)
        )
    )


def _with_counts(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the bytes and messages that the rank sent, and the steps in all."""
    sends = events.filter(pl.col("kind") == "send")
    of_rank = sends.group_by(*OP, "rank").agg(
        sent=pl.col("nbytes").sum(), messages=pl.struct("step", "peer").n_unique()
    )
    of_op = sends.group_by(OP).agg(steps=pl.col("step").n_unique())
    return (
        rows.join(of_rank, on=[*OP, "rank"], how="left")
        .join(of_op, on=OP, how="left")
        .with_columns(pl.col(*_COUNTS).fill_null(0).cast(pl.Int64))
    )


def _deviation(row: Row) -> str:
    """Return what a rank's collective took, against what theory says."""
    return (
        f"rank {row['rank']},{of(row)} "
        f"({' '.join(filter(None, (row['algorithm'], row['way'])))}, "
        f"{counted(row['size'], 'rank')}, {row['nbytes']:,} B): "
        + ", ".join(
            f"{counted(row[it], one)} {how}, theory {row[f'{it}_expected']:,}"
            for it, (one, how) in _COUNTS.items()
            if row[f"{it}_expected"] not in (None, row[it])
        )
    )


def complete_sums(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check that every chunk ends with the contributions that it must have, once each.

    Of an all-reduce every rank's, of a broadcast the root's, and so on, as in
    ``formulas.expected``. After a barrier every rank has heard of every rank, however often. Chunks
    that an algorithm gives no number, or a number that the operation does not have, are left out;
    so are collectives whose rows say that they do not show it (messaging/reduction_tracer.py).
    """
    events = plain_texts(events)
    untold = _outer(events).filter(pl.col("phase") == "untold").select(OP).unique()
    ops = (
        _collectives(events, complete)
        .filter(
            pl.col("collective").is_in(list(cost_model.OPERATIONS)), pl.col("root") < pl.col("size")
        )
        .join(untold, on=OP, how="anti")
    )
    roster = members(events)
    replayed = replay(events.join(ops.select(OP), on=OP, how="semi"), roster)
    roots = replayed.cells.select(*OP).join(
        ops.select(*OP, "root"), on=OP, how="left", maintain_order="left"
    )["root"]
    expected = _expected_counts(replayed.cells, roots.to_list(), replayed.final.shape[1])
    enough = (replayed.cells["collective"].is_in(AT_LEAST)).to_numpy()[:, None, None]
    held = np.where(enough, np.minimum(replayed.final, 1), replayed.final)
    wrong = (expected >= 0) & (held != expected)
    cell, place = np.nonzero(wrong.any(axis=2))
    return report("complete sums", *_incomplete(replayed, expected, roster, cell, place))


def _expected_counts(cells: pl.DataFrame, roots: Sequence[int], most: int) -> Counts:
    """Return how often each contribution must be in: cell, holder, contributor; -1: not judged."""
    expected = np.full((len(cells), most, most), -1, np.int32)
    last = cells.group_by("collective", "size").agg(pl.col("chunk").max())
    chunks = {(operation, n): chunk + 1 for operation, n, chunk in last.rows()}
    tables: dict[tuple[str, int, int], Counts] = {}
    by = zip(cells["collective"], cells["size"], cells["chunk"], roots, strict=True)
    for cell, (operation, n, chunk, root) in enumerate(by):
        numbers = cost_model.chunk_numbers(operation, n)
        if chunk < 0 or (numbers and chunk >= numbers):
            continue
        case = operation, n, root
        if case not in tables:
            held = cost_model.expected(operation, n, root, chunks[operation, n])
            tables[case] = np.array([[each or (-1,) * n for each in one] for one in held], np.int32)
        expected[cell, :n, :n] = tables[case][chunk]
    return expected


def _incomplete(
    replayed: Replay, expected: Counts, roster: pl.DataFrame, cell: Any, place: Any
) -> tuple[pl.DataFrame, Callable[[Row], str]]:
    """Return the chunks that are not complete, and the function that describes one."""
    rows = pl.DataFrame(
        {"cell": cell, "place": place}, schema={"cell": pl.UInt32, "place": pl.Int64}
    )
    ranks = {
        (row["generation"], row["group"], row["place"]): row["rank"]
        for row in roster.iter_rows(named=True)
    }
    bad = (
        rows.join(replayed.cells, on="cell")
        .join(roster.drop("size"), on=[*OP[:2], "place"])
        .sort(*OP, "chunk", "slot", "rank")
    )

    def words(row: Row) -> str:
        at = row["cell"], row["place"], slice(row["size"])
        whose = [ranks[row["generation"], row["group"], place] for place in range(row["size"])]
        each = list(zip(whose, replayed.final[at].tolist(), expected[at].tolist(), strict=True))
        missing = [str(rank) for rank, count, want in each if count < want]
        extra = [f"rank {rank}'s {count} times" for rank, count, want in each if count > want > 0]
        alien = [str(rank) for rank, count, want in each if count > want == 0]
        says = [
            *(
                [f"lacks the part of rank{'s' * (len(missing) > 1)} {', '.join(missing)}"]
                if missing
                else []
            ),
            *([f"holds {', '.join(extra)}"] if extra else []),
            *(
                [f"holds rank {' and '.join(alien)}'s part, which is not due there"]
                if alien
                else []
            ),
        ]
        return f"at the end rank {row['rank']}'s{of(row)} " + " and ".join(says)

    return bad, words


# -- what they share --


def _outer(events: pl.DataFrame) -> pl.DataFrame:
    return events.filter(
        pl.col("kind") == "collective", pl.col("op") >= 0, pl.col("collective") != "p2p"
    )


def _collectives(events: pl.DataFrame, complete: bool) -> pl.DataFrame:
    """Return a row per collective to judge.

    Its columns: OP, algorithm, nbytes, value, size of the group, the root's place in it (0 without
    a root), and how many kinds of rows there are.
    """
    group = OP[:2]
    roster = members(events)
    sizes = roster.group_by(group).agg(pl.col("size").first())
    # Of an algorithm that can go several ways: which (see ``Communicator.way``).
    way = pl.when(pl.col("phase").str.starts_with("levels ")).then("phase").otherwise(pl.lit(""))
    # What ranks give may differ in an all-to-all.
    agreed = pl.when(pl.col("collective") != "all_to_all").then("nbytes")
    ops = (
        _outer(events)
        .group_by(OP)
        .agg(
            pl.col("algorithm", "nbytes", "value", "peer").first(),
            way=way.first(),
            kinds=pl.struct(
                "algorithm", way.alias("way"), "peer", agreed.alias("agreed")
            ).n_unique(),
            ranks=pl.col("rank").n_unique(),
        )
        .join(sizes, on=group)
    )
    places = roster.select(*group, peer="rank", root="place")
    ops = ops.join(places, on=[*group, "peer"], how="left").with_columns(
        pl.col("root").fill_null(0)
    )
    if complete:
        return ops
    return ops.filter(
        pl.col("ranks") == pl.col("size"), pl.col("op") < pl.col("op").max().over(group)
    )


CASE = ["collective", "algorithm", "way", "size", "nbytes", "itemsize", "root"]


def _expected(cases: Sequence[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return theory's numbers for each place in each case, and the cases without whole elements.

    An ``itemsize`` of 0: the bytes sent are not known.
    """
    texts = dict.fromkeys(CASE[:3], pl.String())
    columns = pl.Schema({**texts, **dict.fromkeys(CASE[3:], pl.Int64())})
    more = ("place", "sent_expected", "messages_expected", "steps_expected")
    wider = pl.Schema({**columns, **dict.fromkeys(more, pl.Int64())})
    rows: list[tuple[Any, ...]] = []
    torn: list[tuple[Any, ...]] = []
    for case in cases:
        key = operation, name, way, n, nbytes, itemsize, root = tuple(case[c] for c in CASE)
        if itemsize and nbytes % itemsize:
            torn.append(key)
            continue
        of, algorithm = (
            {"operation": operation, "root": root},
            cost_model.find(name, operation, way, n),
        )
        known = cost_model.bytes_sent(algorithm, n, nbytes, itemsize, **of) if itemsize else None
        sends = cost_model.sends_something(operation, n, nbytes)
        messages = cost_model.messages_sent(algorithm, n, **of) if sends else (0,) * n
        steps = cost_model.steps(algorithm, n, operation=operation) if sends else 0
        rows += ((*key, r, known and known[r], messages[r], steps) for r in range(n))
    return pl.DataFrame(rows, wider, orient="row"), pl.DataFrame(torn, columns, orient="row")
