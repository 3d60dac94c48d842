"""What the rows say of a collective's cost: bytes that each rank sends, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl


@dataclass
class Traffic:
    """What the rows say of each collective of a crew."""

    sent: dict[int, dict[int, int]] = field(default_factory=dict)  # op -> rank -> bytes
    steps: dict[int, int] = field(default_factory=dict)


def traffic(events: pl.DataFrame) -> Traffic:
    rows = events.filter(pl.col("kind").cast(pl.String).is_in(["send", "recv"]))
    rows = rows.select("op", "rank", "kind", "peer", "step", "nbytes", "seq")
    rows = rows.with_columns(pl.col("kind").cast(pl.String)).sort("rank", "seq")
    found = Traffic()
    for op, of_op in rows.group_by("op"):
        number = int(op[0])
        sends = of_op.filter(pl.col("kind") == "send").group_by("rank").agg(pl.col("nbytes").sum())
        found.sent[number] = dict(sends.iter_rows())
        found.steps[number] = longest_chain(of_op.rows(named=True))
    return found


def longest_chain(rows: Sequence[dict[str, Any]]) -> int:
    """Steps that the messages of one collective take, if each lasted one.

    A rank sends one message at a time, and receives one at a time; it sends what it has only after
    all that it received before, as its rows say. ``rows``: sends and receives, each rank's in the
    order in which they were written. All that goes from one rank to another at one step is one
    message.
    """
    programs: dict[int, list[dict[str, Any]]] = {}
    known: set[tuple[int, str, int, int]] = set()
    for row in rows:
        key = row["rank"], row["kind"], row["peer"], row["step"]
        if key not in known:
            known.add(key)
            programs.setdefault(row["rank"], []).append(row)
    at = dict.fromkeys(programs, 0)
    clock = dict.fromkeys(programs, 0)  # when the rank has all that it has received
    leaving: dict[int, int] = {}  # when its last message had left
    taking: dict[int, set[int]] = {}  # steps in which a rank receives
    arrived: dict[tuple[int, int, int], int] = {}  # message -> when it was there
    last, moved = 0, True
    while moved:
        # The earliest message that can leave now goes first: whoever receives it has it first.
        ready: list[tuple[int, int]] = []
        moved = False
        for rank, program in programs.items():
            while at[rank] < len(program) and program[at[rank]]["kind"] == "recv":
                row = program[at[rank]]
                there = arrived.get((row["peer"], rank, row["step"]))
                if there is None:
                    break
                clock[rank] = max(clock[rank], there)
                at[rank] += 1
                moved = True
            if at[rank] < len(program) and program[at[rank]]["kind"] == "send":
                ready.append((max(clock[rank], leaving.get(rank, 0)), rank))
        if ready:
            start, rank = min(ready)
            row = programs[rank][at[rank]]
            busy = taking.setdefault(row["peer"], set())
            there_at = start + 1
            while there_at in busy:
                there_at += 1
            busy.add(there_at)
            arrived[rank, row["peer"], row["step"]] = there_at
            leaving[rank] = start + 1
            last, moved = max(last, there_at), True
            at[rank] += 1
    return last
