"""Pair: two calls that are compared, at the same moment of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from workbench.views.stills.calls import Side, pair_of
from workbench.views.stills.svg_pair import marks

ALONE = True  # the rows are not those of one run


def select(rows: pl.LazyFrame, facts: Mapping[str, Any]) -> tuple[Side, ...] | None:
    """Return both calls at one moment; None where none are compared."""
    return pair_of(rows, facts) or None if facts["pair"] else None


def draw(selected: Sequence[Side]) -> list[str]:
    """Return both rings and both times."""
    return marks(selected)
