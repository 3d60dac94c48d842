"""A study in a notebook: its picture and its table, which follow what happens.

The picture is a still one, so that a notebook that was saved shows it wherever it is read; at the
end it is Plotly's too.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.studies.comparison.display import as_html
from workbench.studies.speed_up.charts import cells, figure
from workbench.studies.speed_up.still import svg
from workbench.views.pages import following_output

if TYPE_CHECKING:
    from workbench.studies.speed_up.sweep import Sweep

COLUMNS = {  # of the table, and how each is written
    "ranks": ("ranks", "{:,}"),
    "threads": ("threads a rank", "{:,}"),
    "batch_size": ("minibatch", "{:,}"),
    "seconds": ("an iteration, s", "{:.4f}"),
    "rank_seconds": ("all ranks together, s", "{:.4f}"),
    "samples_per_s": ("samples a second", "{:,.0f}"),
    "speed_up": ("speed-up", "{:.2f}"),
    "efficiency": ("efficiency", "{:.0%}"),
    "serial": ("serial share", "{:.1%}"),
    "exposed_share": ("exposed communication", "{:.0%}"),
    "wait_share": ("waits for other ranks", "{:.0%}"),
    "core_wait_share": ("waits for a core", "{:.0%}"),
    "compute_ceiling": ("this machine, computing", "{:.2f}"),
    "memory_ceiling": ("copying memory", "{:.2f}"),
}


def show(study: Sweep) -> None:
    """Display it here, and follow it."""

    def over() -> int:
        return int(study.table["repeats"].sum())

    parts = [
        following_output.Output(lambda: chart_bundle(study), over),
        following_output.Output(lambda: table_bundle(study), lambda: (over(), study.state)),
    ]
    following_output.show(parts, study.ended, study.followers, "workbench speed-up picture")


def chart_bundle(study: Sweep) -> dict[str, Any]:
    """Return the charts as a MIME bundle: a still picture, text, and at the end a Plotly figure."""
    result = cells(study.table)
    bundle = {"image/svg+xml": svg(result, study.words, study.state), "text/plain": str(study)}
    if study.done:
        bundle[following_output.PLOTLY] = json.loads(figure(study.table).to_json())
    return bundle


def table_bundle(study: Sweep) -> dict[str, Any]:
    """Return the table and the errors as a MIME bundle."""
    written = as_texts(study.table)
    failed = [one for one in study.comparison.trials if one.error] if study.comparison else []
    errors = [f"{one.label}: {str(one.error).splitlines()[0]}" for one in failed]
    errors += [str(study.error)] if study.error and not failed else []
    wrong = "".join(f"<li>{escape(one)}</li>" for one in errors)
    return {
        "text/html": f"<p>{escape(study.state)}</p>{as_html(written)}"
        + (f"<ul>{wrong}</ul>" if wrong else ""),
        "text/plain": "\n".join([study.state, *errors]),
    }


def as_texts(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table for display, without unknown columns."""
    result = {"": [name for name in table["series"]]} if table["series"].n_unique() > 1 else {}
    for name, (label, form) in COLUMNS.items():
        if table[name].null_count() < table.height:
            result[label] = ["–" if one is None else form.format(one) for one in table[name]]
    return pl.DataFrame(result)
