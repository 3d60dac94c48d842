"""A crossing in a notebook: its picture and its table, which follow what is measured."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.choosing.choose import said, size
from workbench.views import followed
from workbench.views.compared_display import as_html
from workbench.views.crossed import cell, figure
from workbench.views.crossed_svg import svg
from workbench.views.embedded import image

if TYPE_CHECKING:
    from workbench.choosing.crossing import Crossing


def show(crossing: Crossing) -> None:
    """Display it here, and follow it."""
    parts = [
        followed.Part(lambda: pictured(crossing), lambda: crossing.state),
        followed.Part(lambda: told(crossing), lambda: crossing.state),
    ]
    followed.show(parts, crossing.ended, crossing.followers, "workbench crossover picture")


def pictured(crossing: Crossing) -> dict[str, Any]:
    """The chart: as a still picture, in words, and at the end as Plotly takes it."""
    bundle = {"image/svg+xml": picture(crossing), "text/plain": str(crossing)}
    if crossing.done:
        drawn = figure(crossing.table, crossing.operation)
        bundle[followed.PLOTLY] = json.loads(str(drawn.to_json()))
    return bundle


def picture(crossing: Crossing) -> str:
    """The chart as SVG."""
    return svg(cell(crossing.table, crossing.operation), crossing.words, crossing.state)


def told(crossing: Crossing) -> dict[str, Any]:
    """The table."""
    return {
        "text/html": f"<p>{escape(crossing.state)}</p>{as_html(as_texts(crossing.table))}",
        "text/plain": crossing.state,
    }


def html(crossing: Crossing) -> str:
    """All of it, as it is now."""
    said = " ".join(crossing.words) or crossing.state
    return image(picture(crossing), said) + str(told(crossing)["text/html"])


def as_texts(table: pl.DataFrame) -> pl.DataFrame:
    """A row a size, a column an algorithm: measured, and predicted in brackets."""
    found: dict[str, list[str]] = {"": [size(one) for one in table["bytes"].unique().sort()]}
    for part in table.sort("bytes").partition_by("algorithm", maintain_order=True):
        found[part["algorithm"][0]] = [
            f"({said(predicted)})" if measured is None else f"{said(measured)} ({said(predicted)})"
            for measured, predicted in part.select("measured", "predicted").iter_rows()
        ]
    return pl.DataFrame(found)
