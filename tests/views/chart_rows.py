"""Rows of a small run, made by hand, for tests of curves and charts."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from tests.synthetic import table

MS = 1_000_000
START = 10**12
BLANK = {
    "lane": "compute",
    "generation": 0,
    "collective": "",
    "algorithm": "",
    "phase": "",
    "group": "",
    "op": -1,
    "peer": -1,
    "step": -1,
    "chunk": -1,
    "slot": -1,
    "nbytes": -1,
    "microbatch": -1,
    "stage": -1,
    "version": -1,
    "value": math.nan,
    "name": "",
}


def row(rank: int, iteration: int, kind: str, start: float, end: float, **more: Any) -> dict:
    """A row of a rank; times in ms from the start of the table."""
    times = {"start_ns": START + round(start * MS), "end_ns": START + round(end * MS)}
    return {**BLANK, "rank": rank, "iteration": iteration, "kind": kind, "seq": 0, **times, **more}


def metric(rank: int, iteration: int, name: str, value: float, at: float, **more: Any) -> dict:
    return row(rank, iteration, "metric", at, at, name=name, value=value, **more)


def iteration_of(rank: int, i: int, at: float, loss: float, samples: int) -> list[dict]:
    """load 1 ms, forward 2, backward 4, three of communication, optimizer 1."""
    return [
        row(rank, i, "load", at, at + 1),
        row(rank, i, "forward", at + 1, at + 3),
        row(rank, i, "backward", at + 3, at + 7),
        row(rank, i, "collective", at + 6, at + 10, lane="comm"),
        row(rank, i, "optimizer", at + 10, at + 11),
        metric(rank, i, "loss", loss, at + 11),
        metric(rank, i, "samples", samples, at + 11),
        metric(rank, i, "runqueue", 0, at + 11),
    ]


def two_ranks(iterations: int = 5) -> pl.DataFrame:
    rows = [
        one
        for i in range(iterations)
        for rank in (0, 1)
        for one in iteration_of(rank, i, 20 * i + rank, 2.0 - i / 10 + rank, 10 + 20 * rank)
    ]
    return table(rows)
