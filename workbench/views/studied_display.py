"""A study in a notebook: its picture and its table, which follow what happens.

The picture is a still one, so that a notebook that was saved shows it wherever it is read; at the
end it is Plotly's too.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.views import followed
from workbench.views.compared_display import as_html
from workbench.views.studied import cells, figure
from workbench.views.studied_svg import svg

if TYPE_CHECKING:
    from workbench.speedup.study import Study

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
    "core_wait_share": ("waits for a core", "{:.0%}"),
    "compute_ceiling": ("this machine, computing", "{:.2f}"),
    "memory_ceiling": ("copying memory", "{:.2f}"),
}


def show(study: Study) -> None:
    """Display it here, and follow it."""

    def over() -> int:
        return int(study.table["repeats"].sum())

    parts = [
        followed.Part(lambda: pictured(study), over),
        followed.Part(lambda: told(study), lambda: (over(), study.state)),
    ]
    followed.show(parts, study.ended, study.followers, "workbench speed-up picture")


def pictured(study: Study) -> dict[str, Any]:
    """The charts: as a still picture, in words, and at the end as Plotly takes them."""
    made = cells(study.table)
    bundle = {"image/svg+xml": svg(made, study.words, study.state), "text/plain": str(study)}
    if study.done:
        bundle[followed.PLOTLY] = json.loads(figure(study.table).to_json())
    return bundle


def told(study: Study) -> dict[str, Any]:
    """The table, and what went wrong."""
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
    """The table as people read it; what nothing is known of is left out."""
    found = {"": [name for name in table["series"]]} if table["series"].n_unique() > 1 else {}
    for name, (label, form) in COLUMNS.items():
        if table[name].null_count() < table.height:
            found[label] = ["–" if one is None else form.format(one) for one in table[name]]
    return pl.DataFrame(found)
