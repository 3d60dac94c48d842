"""A comparison in a notebook: its charts and its table, which follow what happens.

Two outputs. The charts are a still picture, so that a notebook that was saved shows them wherever
it is read; at the end they are Plotly's too, for JupyterLab, whose renderer of those shows no
change.
"""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from workbench.analysis import measures
from workbench.analysis.comparison import compared, is_played, telling
from workbench.studies.comparison.still import svg
from workbench.views.pages import following_output
from workbench.views.pages.figures import grid

if TYPE_CHECKING:
    import polars as pl

    from workbench.studies.comparison.results import Results

PICTURED = ("updates", "seconds", "bytes")


def show(comparison: Results) -> None:
    """Display it here, and follow it."""

    def over() -> int:  # only when a trial is, there is a new curve
        return sum(trial.done for trial in comparison.trials)

    parts = [
        following_output.Output(lambda: chart_bundle(comparison), over),
        following_output.Output(
            lambda: table_bundle(comparison), lambda: (over(), comparison.words)
        ),
    ]
    following_output.show(parts, comparison.ended, comparison.followers, "workbench comparison")


def chart_bundle(comparison: Results) -> dict[str, Any]:
    """Return the charts as a MIME bundle: a still picture, text, and at the end a Plotly figure."""
    curves = comparison.curves()
    by = telling(curves) if is_played(curves) else PICTURED
    cells = compared(curves, by=by, smooth=None)
    bundle = {"image/svg+xml": svg(cells, comparison.words), "text/plain": repr(comparison)}
    if comparison.done:
        bundle[following_output.PLOTLY] = json.loads(grid(cells).to_json())
    return bundle


def table_bundle(comparison: Results) -> dict[str, Any]:
    """Return the table, with a row per measure and a column per experiment; and the errors."""
    table = measures.beside(
        {name: [one.summary() for one in comparison[name]] for name in comparison.names}
    )
    failed = [trial for trial in comparison.trials if trial.error]
    wrong = "".join(
        f"<li>{html.escape(one.label)}: {html.escape(str(one.error).splitlines()[0])}</li>"
        for one in failed
    )
    differ = _differing(table)
    return {
        "text/html": f"<p>{html.escape(comparison.words)}</p>{as_html(differ)}"
        + fold(as_html(table), table.height, differ.height)
        + (f"<ul>{wrong}</ul>" if wrong else ""),
        "text/plain": _as_text(table),
    }


def _differing(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in which experiments differ; of one experiment, all."""
    if table.width < 3:
        return table
    return table.filter([len({*row[1:]}) > 1 for row in table.iter_rows()])


def fold(whole: str, rows: int, shown: int) -> str:
    """Return a table of so many rows, folded; "" where all of them are shown beside it."""
    folded = f"<details><summary>All {rows} rows</summary>{whole}</details>"
    return folded * (shown < rows)


def as_html(table: pl.DataFrame, look: str = "") -> str:
    """Return a table of texts as HTML; ``look`` is its CSS class."""
    attribute = f' class="{look}"' if look else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.iter_rows()
    )
    return f"<table{attribute}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _as_text(table: pl.DataFrame) -> str:
    cells = [table.columns, *table.iter_rows()]
    widths = [max(len(row[at]) for row in cells) for at in range(table.width)]
    padded = ([c.ljust(wide) for c, wide in zip(row, widths, strict=True)] for row in cells)
    return "\n".join("  ".join(row).rstrip() for row in padded)
