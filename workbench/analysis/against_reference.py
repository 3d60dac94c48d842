"""Measures of several runs beside a reference: how much each differs from it, and which is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.analysis.measures import ALWAYS, MEASURES, WORDS

MORE, LESS = 1, -1
# Which way is better. What is left out (ranks, a count of updates) is neither good nor bad.
BETTER = {
    "loss": LESS,
    "loss_end": LESS,
    "accuracy": MORE,
    "score": MORE,
    "return_end": MORE,
    "frames_per_s": MORE,
    "sample_age": LESS,
    "policy_lag": LESS,
    "wall_seconds": LESS,
    "iterations_per_s": MORE,
    "samples_per_s": MORE,
    "staleness": LESS,
    "staleness_max": LESS,
    "waiting_share": LESS,
    "samples_dropped": LESS,
    "step_ms": LESS,
    "exposed_ms": LESS,
    "exposed_share": LESS,
    "stall_ms": LESS,
    "hidden_share": MORE,
    "bubble": LESS,
    "in_flight": LESS,
    "activations": LESS,
    "memory": LESS,
    "recovery_ms": LESS,
    "iterations_lost": LESS,
    "samples_repeated": LESS,
    "goodput": MORE,
    "bytes_sent": LESS,
    "bytes_busiest": LESS,
    "bytes_all": LESS,
    "bytes_between": LESS,
}
# Of a whole run: a rank that does fewer iterations has less of them.
TOTALS = ("wall_seconds", "bytes_sent", "bytes_busiest", "bytes_all", "bytes_between")
# Measures of a task: of another model and other data they tell something else.
OF_A_TASK = ("loss", "loss_end", "accuracy", "score", "return_end", "samples_per_s")
TWICE = 2.0  # from there on a difference is said as a factor


@dataclass(frozen=True)
class Cell:
    """A value in words. ``change``: against the reference, or ""; ``best``: of all."""

    text: str
    change: str = ""
    best: bool = False


def rows(
    runs: Sequence[Mapping[str, Any]], reference: int = 0, alike: bool = True
) -> list[tuple[str, list[Cell]]]:
    """Return for each measure that is known of any run its name, and a cell for each run.

    ``runs``: their measures (measures.of). ``reference``: which one the others are compared with.
    ``alike``: all train the same task; of others no value is better than another.
    """
    result = []
    for name, (words, write) in MEASURES.items():
        values = [run[name] for run in runs]
        if name not in ALWAYS and all(value in (None, "") for value in values):
            continue
        if not alike and name in OF_A_TASK:
            continue
        best = _best(name, runs) if alike else None
        texts = ["–" if value in (None, "") else write(value) for value in values]
        cells = [
            Cell(
                text,
                _change(name, texts, values, i, reference) if alike else "",
                text == best and runs[i]["state"] == "finished",
            )
            for i, text in enumerate(texts)
        ]
        result.append((words, cells))
    return result


def is_same(cells: Sequence[Cell]) -> bool:
    """Return whether several runs have the same value: a row that says nothing of them apart."""
    return len(cells) > 1 and len({cell.text for cell in cells}) == 1


def plain(rows: Sequence[tuple[str, list[Cell]]]) -> list[dict[str, Any]]:
    """Return rows as a page takes them."""
    return [
        {"name": name, "cells": [asdict(cell) for cell in cells], "same": is_same(cells)}
        for name, cells in rows
    ]


def _best(name: str, runs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the best value as it is written; None where nothing is better than anything else."""
    ended = [run for run in runs if run["state"] == "finished" and run[name] is not None]
    if name in TOTALS and len({run["iterations"] for run in ended}) > 1:
        return None
    if name not in BETTER or len(ended) < 2:
        return None
    write = MEASURES[name][1]
    if len({write(run[name]) for run in ended}) < 2:
        return None
    return write(max((run[name] for run in ended), key=lambda value: value * BETTER[name]))


def _change(name: str, texts: list[str], values: list[Any], i: int, reference: int) -> str:
    """Return how a value differs from that of the reference, in words."""
    value, base = values[i], values[reference]
    if (
        i == reference
        or name in WORDS
        or value is None
        or base is None
        or texts[i] == texts[reference]
    ):
        return ""
    if texts[i].endswith("%"):
        return f"{100 * (value - base):+.1f} points".replace("-", "−")
    if not base or value * base < 0:
        return ""
    factor = value / base
    if factor >= TWICE or 0 < factor <= 1 / TWICE:
        return f"×{factor:.3g}"
    return f"{100 * (factor - 1):+.0f} %".replace("-", "−")
