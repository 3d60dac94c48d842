"""The cost of a collective, from its event rows: bytes that each rank sends, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl


@dataclass
class Traffic:
    """Bytes sent and steps of each collective of a rank pool."""

    sent: dict[int, dict[int, int]] = field(default_factory=dict)  # op -> rank -> bytes
    steps: dict[int, int] = field(default_factory=dict)


def traffic(events: pl.DataFrame) -> Traffic:
    rows = events.filter(pl.col("kind").cast(pl.String).is_in(["send", "recv"]))
    rows = rows.select("op", "rank", "kind", "peer", "step", "nbytes", "seq")
    rows = rows.with_columns(pl.col("kind").cast(pl.String)).sort("rank", "seq")
    result = Traffic()
    for op, of_op in rows.group_by("op"):
        number = int(op[0])
        sends = of_op.filter(pl.col("kind") == "send").group_by("rank").agg(pl.col("nbytes").sum())
        result.sent[number] = dict(sends.iter_rows())
        result.steps[number] = longest_chain(of_op.rows(named=True))
    return result


def longest_chain(rows: Sequence[dict[str, Any]]) -> int:
    """Return the steps that the messages of one collective take, if each message lasts one step.

    A rank sends one message at a time and receives one at a time. It sends a message only after all
    that it received earlier, by the order of its rows. ``rows``: sends and receives, each rank's in
    the order in which they were recorded. All that one rank sends to another in a step counts as
    one message.
    """
    programs: dict[int, list[dict[str, Any]]] = {}
    keys: set[tuple[int, str, int, int]] = set()
    for row in rows:
        key = row["rank"], row["kind"], row["peer"], row["step"]
        if key not in keys:
            keys.add(key)
            programs.setdefault(row["rank"], []).append(row)
    next_row = dict.fromkeys(programs, 0)
    clock = dict.fromkeys(programs, 0)  # when the rank's last receive has ended
    leaving: dict[int, int] = {}  # when the rank's last send has ended
    receive_steps: dict[int, set[int]] = {}  # steps in which a rank receives
    arrivals: dict[tuple[int, int, int], int] = {}  # message -> the end of its step
    last, moved = 0, True
    while moved:
        # The message that can leave first goes first, because it arrives first.
        ready: list[tuple[int, int]] = []
        moved = False
        for rank, program in programs.items():
            while next_row[rank] < len(program) and program[next_row[rank]]["kind"] == "recv":
                row = program[next_row[rank]]
                arrival = arrivals.get((row["peer"], rank, row["step"]))
                if arrival is None:
                    break
                clock[rank] = max(clock[rank], arrival)
                next_row[rank] += 1
                moved = True
            if next_row[rank] < len(program) and program[next_row[rank]]["kind"] == "send":
                ready.append((max(clock[rank], leaving.get(rank, 0)), rank))
        if ready:
            start, rank = min(ready)
            row = programs[rank][next_row[rank]]
            busy = receive_steps.setdefault(row["peer"], set())
            arrival_step = start + 1
            while arrival_step in busy:
                arrival_step += 1
            busy.add(arrival_step)
            arrivals[rank, row["peer"], row["step"]] = arrival_step
            leaving[rank] = start + 1
            last, moved = max(last, arrival_step), True
            next_row[rank] += 1
    return last
