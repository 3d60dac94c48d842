"""A drift report in a notebook: its charts and its table, which follow its runs.

It has two outputs, as a comparison has: a still picture that a saved notebook keeps, with Plotly's
charts at the end; and a table.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.front_end.html_picture import image
from workbench.studies.drift.charts import cells_of, figure
from workbench.studies.drift.still import svg
from workbench.studies.drift.summary import HEADINGS, LEGEND, rows, setting, text
from workbench.views.pages import following_output

if TYPE_CHECKING:
    import polars as pl

    from workbench.studies.drift.findings import Findings


def show(report: Findings) -> None:
    """Display it here, and follow it."""
    parts = [
        following_output.Output(lambda: chart_bundle(report), lambda: report.over),
        following_output.Output(lambda: table_bundle(report), lambda: report.over),
    ]
    following_output.show(parts, report.ended, report.followers, "workbench drift picture")


def chart_bundle(report: Findings) -> dict[str, Any]:
    """Return the charts as a MIME bundle: a still picture, text, and at the end a Plotly figure."""
    bundle = {"image/svg+xml": still(report), "text/plain": repr(report)}
    if report.done:
        bundle[following_output.PLOTLY] = json.loads(figure(*chart_inputs(report)).to_json())
    return bundle


def chart_inputs(report: Findings) -> tuple[pl.DataFrame, pl.DataFrame, list[str], tuple[int, ...]]:
    """Return what the charts are drawn from."""
    return report.losses, report.table, [one.name for one in report.subjects], report.at


def still(report: Findings) -> str:
    """Return the charts and the verdicts as SVG text."""
    return svg(
        cells_of(*chart_inputs(report)), report.words, setting(report), [*report.verdicts.items()]
    )


def table_bundle(report: Findings) -> dict[str, Any]:
    """Return the verdict with its reasons, and a table with a row per training."""
    return {"text/html": verdict_html(report), "text/plain": text(report)}


def verdict_html(report: Findings) -> str:
    """Return the verdict and the table as HTML."""
    subject = report.subjects[0]
    result = report.findings[subject.name]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in result.reasons)
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    body = "".join(
        "<tr>" + "".join(_cell(one, i) for i, one in enumerate(row)) + "</tr>"
        for row in rows(report)
    )
    return (
        f"<p><b>{escape(subject.name)}: {escape(result.verdict)}</b></p><ul>{reasons}</ul>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{escape(LEGEND)}</p>"
    )


def _cell(words: str, column: int) -> str:
    side = "left" if column in (0, len(HEADINGS) - 1) else "right"
    wrap = "" if column == len(HEADINGS) - 1 else ";white-space:nowrap"
    return f'<td style="text-align:{side}{wrap}">{escape(words)}</td>'


def html(report: Findings) -> str:
    """Return picture, verdict and table as HTML."""
    return image(still(report), report.words) + verdict_html(report)
