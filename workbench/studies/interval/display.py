"""The study in a notebook: two still pictures and a table, which follow what happens."""

from __future__ import annotations

import json
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.studies.comparison.display import as_html
from workbench.studies.interval.charts import cells, figure
from workbench.views.pages import following_output
from workbench.views.stills.chart_svg import svg

if TYPE_CHECKING:
    from workbench.studies.interval.sweep import Sweep

COLUMNS = {  # of the table, and how each is written
    "every": ("iterations between checkpoints", 1.0, "{:.0f}"),
    "interval_s": ("training between them, s", 1.0, "{:.3f}"),
    "runs": ("runs", 1.0, "{:.0f}"),
    "failures": ("failures", 1.0, "{:.0f}"),
    "seconds": ("a useful iteration, ms", 1e3, "{:.2f}"),
    "checkpoint_s": ("of it checkpoints", 1e3, "{:.2f}"),
    "lost_s": ("lost work", 1e3, "{:.2f}"),
    "recovery_s": ("recovery", 1e3, "{:.2f}"),
    "expected_s": ("expected, ms", 1e3, "{:.2f}"),
}


def show(study: Sweep) -> None:
    """Display it here, and follow it."""

    def over() -> int:
        return int(study.table["runs"].sum())

    pictures = [following_output.Output(partial(chart_bundle, study, at), over) for at in range(2)]
    table = following_output.Output(lambda: table_bundle(study), lambda: (over(), study.state))
    following_output.show(
        [*pictures, table], study.ended, study.followers, "workbench interval picture"
    )


def chart_bundle(study: Sweep, number: int) -> dict[str, Any]:
    """Return one chart as a MIME bundle: a still picture, text; at the end the first is Plotly's
    figure of both.
    """
    table, costs = study.table, study.costs
    cell = cells(table, costs)[number]
    bundle = {"image/svg+xml": svg(cell), "text/plain": f"{cell.chart.title}\n{study}"}
    if study.done and not number:
        bundle[following_output.PLOTLY] = json.loads(figure(table, costs).to_json())
    return bundle


def table_bundle(study: Sweep) -> dict[str, Any]:
    """Return the findings, the table and the errors as a MIME bundle."""
    failed = [one for one in study.comparison.trials if one.error] if study.comparison else []
    errors = [f"{one.name}: {str(one.error).splitlines()[0]}" for one in failed]
    errors += [str(study.error)] if study.error and not failed else []
    sentences, wrong = (
        "".join(f"<li>{escape(one)}</li>" for one in each) for each in (study.words, errors)
    )
    return {
        "text/html": f"<p>{escape(study.state)}</p><ul>{sentences}</ul>"
        + as_html(as_texts(study.table))
        + (f"<ul>{wrong}</ul>" if wrong else ""),
        "text/plain": "\n".join([study.state, *study.words, *errors]),
    }


def as_texts(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table for display."""
    return pl.DataFrame(
        {
            label: ["–" if one is None else form.format(one * scale) for one in table[name]]
            for name, (label, scale, form) in COLUMNS.items()
        }
    )
