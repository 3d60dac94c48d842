"""The charts of a drift report, from columns alone."""

from __future__ import annotations

import re

import polars as pl

from workbench.studies.drift.charts import DTYPES, cells_of
from workbench.studies.drift.still import LEFT, WIDTH, svg

UPDATES = 30


def test_every_iteration_lies_in_the_frame_and_they_count_from_1() -> None:
    losses = pl.concat(
        pl.DataFrame({"iteration": range(UPDATES)}).with_columns(
            subject=pl.lit("loop"), dtype=pl.lit(dtype), difference=1e-6
        )
        for dtype in DTYPES
    )
    table = pl.DataFrame(
        [
            {"subject": "loop", "dtype": dtype, "iterations": at, "ulps_max": 9.0}
            | {"ulps_median": 1.0}
            for dtype in DTYPES
            for at in (1, UPDATES)
        ]
    )
    cells = cells_of(losses, table, ["loop"], (1, UPDATES), "light")
    for cell in cells[:2]:
        assert (cell.traces[0].x[0], cell.traces[0].x[-1], cell.until) == (1, UPDATES, UPDATES)
    picture = svg(cells, "a loop", "", [("loop", "rounding")])
    right = LEFT + (WIDTH - 16) / 2 - LEFT - 20  # of the left frame
    first = re.findall(r'<polyline points="([^"]+)"', picture)[0].split()
    across = [float(point.split(",")[0]) for point in first]
    assert len(across) == UPDATES and min(across) == LEFT and max(across) <= right + 0.1
