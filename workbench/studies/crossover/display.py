"""A crossing in a notebook: its picture and its table, which follow the measurement."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.choosing.choose import size
from workbench.common.units import print_seconds
from workbench.front_end.html_picture import image
from workbench.studies.comparison.display import as_html
from workbench.studies.crossover.charts import cell, figure
from workbench.studies.crossover.still import svg
from workbench.views.pages import following_output

if TYPE_CHECKING:
    from workbench.studies.crossover.measurement import Measurement


def show(crossing: Measurement) -> None:
    """Display it here, and follow it."""
    parts = [
        following_output.Output(lambda: chart_bundle(crossing), lambda: crossing.state),
        following_output.Output(lambda: table_bundle(crossing), lambda: crossing.state),
    ]
    following_output.show(parts, crossing.ended, crossing.followers, "workbench crossover picture")


def chart_bundle(crossing: Measurement) -> dict[str, Any]:
    """Return the chart as a MIME bundle: a still picture, text, and at the end a Plotly figure."""
    bundle = {"image/svg+xml": picture(crossing), "text/plain": str(crossing)}
    if crossing.done:
        drawn = figure(crossing.table, crossing.operation)
        bundle[following_output.PLOTLY] = json.loads(str(drawn.to_json()))
    return bundle


def picture(crossing: Measurement) -> str:
    """Return the chart as SVG."""
    return svg(cell(crossing.table, crossing.operation), crossing.words, crossing.state)


def table_bundle(crossing: Measurement) -> dict[str, Any]:
    """Return the table as a MIME bundle."""
    return {
        "text/html": f"<p>{escape(crossing.state)}</p>{as_html(as_texts(crossing.table))}",
        "text/plain": crossing.state,
    }


def html(crossing: Measurement) -> str:
    """Return picture and table as HTML."""
    sentences = " ".join(crossing.words) or crossing.state
    return image(picture(crossing), sentences) + str(table_bundle(crossing)["text/html"])


def as_texts(table: pl.DataFrame) -> pl.DataFrame:
    """Return a row per size, a column per algorithm: measured, and predicted in brackets."""
    result: dict[str, list[str]] = {"": [size(one) for one in table["bytes"].unique().sort()]}
    for part in table.sort("bytes").partition_by("algorithm", maintain_order=True):
        result[part["algorithm"][0]] = [
            f"({print_seconds(predicted)})"
            if measured is None
            else f"{print_seconds(measured)} ({print_seconds(predicted)})"
            for measured, predicted in part.select("measured", "predicted").iter_rows()
        ]
    return pl.DataFrame(result)
