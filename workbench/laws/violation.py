"""A violation of a law: where it does not hold, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

Row = Mapping[str, Any]
MOST = 20  # violations that a law reports in words; it counts the rest


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


def of(row: Row) -> str:
    """Return where a row belongs: " chunk 3 slot 0 at step 1 of all_reduce 5 in group 'a'"."""
    parts = [f" {name} {row[name]}" for name in ("chunk", "slot") if row.get(name, -1) >= 0]
    if row.get("step", -1) >= 0:
        parts.append(f" at step {row['step']}")
    if row.get("op", -1) >= 0:
        what = "message" if row["collective"] == "p2p" else row["collective"]
        parts.append(f"{' of' if parts else ''} {what} {row['op']} in group {row['group']!r}")
        if row["generation"] > 0:
            parts.append(f", generation {row['generation']}")
    return "".join(parts)


def report(law: str, bad: pl.DataFrame, words: Callable[[Row], str]) -> list[Violation]:
    """Return the first ``MOST`` rows of ``bad`` as violations, and the number of the others."""
    fields = [
        name for name in ("rank", "group", "op", "step", "chunk", "slot") if name in bad.columns
    ]
    result = [
        Violation(law, words(row), **{name: row[name] for name in fields})
        for row in bad.head(MOST).iter_rows(named=True)
    ]
    more = bad.height - len(result)
    return [*result, Violation(law, f"and {more:,} more")] if more else result
