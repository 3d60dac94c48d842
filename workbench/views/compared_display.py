"""A comparison in a notebook: its charts and its table, which follow what happens.

Two outputs. The charts are a still picture, so that a notebook that was saved shows them wherever
it is read; at the end they are Plotly's too, for JupyterLab, whose renderer of those shows no
change.
"""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from workbench import measures
from workbench.views import followed
from workbench.views.charts import grid
from workbench.views.compared import compared
from workbench.views.compared_svg import svg

if TYPE_CHECKING:
    import polars as pl

    from workbench.comparison import Comparison

PICTURED = ("updates", "seconds", "bytes")


def show(comparison: Comparison) -> None:
    """Display it here, and follow it."""

    def over() -> int:  # only when a trial is, there is a new curve
        return sum(trial.done for trial in comparison.trials)

    parts = [
        followed.Part(lambda: pictured(comparison), over),
        followed.Part(lambda: tabled(comparison), lambda: (over(), comparison.words)),
    ]
    followed.show(parts, comparison.ended, comparison.followers, "workbench comparison")


def pictured(comparison: Comparison) -> dict[str, Any]:
    """The charts: as a still picture, in words, and at the end as Plotly takes them."""
    cells = compared(comparison.curves(), by=PICTURED, smooth=None)
    bundle = {"image/svg+xml": svg(cells, comparison.words), "text/plain": repr(comparison)}
    if comparison.done:
        bundle[followed.PLOTLY] = json.loads(grid(cells).to_json())
    return bundle


def tabled(comparison: Comparison) -> dict[str, Any]:
    """The table: a row a measure, a column an experiment; and what went wrong."""
    table = measures.beside(
        {name: [one.summary() for one in comparison[name]] for name in comparison.names}
    )
    failed = [trial for trial in comparison.trials if trial.error]
    wrong = "".join(
        f"<li>{html.escape(one.label)}: {html.escape(str(one.error).splitlines()[0])}</li>"
        for one in failed
    )
    return {
        "text/html": f"<p>{html.escape(comparison.words)}</p>{as_html(table)}"
        + (f"<ul>{wrong}</ul>" if wrong else ""),
        "text/plain": _as_text(table),
    }


def as_html(table: pl.DataFrame, look: str = "") -> str:
    """A table of texts; ``look``: a class of its own."""
    own = f' class="{look}"' if look else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.iter_rows()
    )
    return f"<table{own}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _as_text(table: pl.DataFrame) -> str:
    cells = [table.columns, *table.iter_rows()]
    widths = [max(len(row[at]) for row in cells) for at in range(table.width)]
    padded = ([c.ljust(wide) for c, wide in zip(row, widths, strict=True)] for row in cells)
    return "\n".join("  ".join(row).rstrip() for row in padded)
