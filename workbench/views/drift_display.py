"""A report on rounding in a notebook: its charts and its table, which follow what happens.

Two outputs, as a comparison's: a still picture that a saved notebook keeps, with Plotly's charts at
the end; and a table.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.rounding.told import HEADINGS, LEGEND, rows, setting, text
from workbench.views import followed
from workbench.views.drift import cells_of, figure
from workbench.views.drift_svg import svg
from workbench.views.embedded import image

if TYPE_CHECKING:
    from workbench.rounding.bench import Report


def show(report: Report) -> None:
    """Display it here, and follow it."""
    parts = [
        followed.Part(lambda: pictured(report), lambda: report.over),
        followed.Part(lambda: tabled(report), lambda: report.over),
    ]
    followed.show(parts, report.ended, report.followers, "workbench drift picture")


def pictured(report: Report) -> dict[str, Any]:
    """The charts: as a still picture, in words, and at the end as Plotly takes them."""
    bundle = {"image/svg+xml": still(report), "text/plain": repr(report)}
    if report.done:
        bundle[followed.PLOTLY] = json.loads(figure(report).to_json())
    return bundle


def still(report: Report) -> str:
    """The charts and the verdicts as SVG text."""
    names = [one.name for one in report.subjects]
    cells = cells_of(report.losses, report.table, names, report.at)
    return svg(cells, report.words, setting(report), [*report.verdicts.items()])


def tabled(report: Report) -> dict[str, Any]:
    """The verdict with its reasons, and a row a training."""
    return {"text/html": told(report), "text/plain": text(report)}


def told(report: Report) -> str:
    """The same as HTML."""
    subject = report.subjects[0]
    found = report.findings[subject.name]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in found.reasons)
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    body = "".join(
        "<tr>" + "".join(_cell(one, i) for i, one in enumerate(row)) + "</tr>"
        for row in rows(report)
    )
    return (
        f"<p><b>{escape(subject.name)}: {escape(found.verdict)}</b></p><ul>{reasons}</ul>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{escape(LEGEND)}</p>"
    )


def _cell(words: str, column: int) -> str:
    side = "left" if column in (0, len(HEADINGS) - 1) else "right"
    wrap = "" if column == len(HEADINGS) - 1 else ";white-space:nowrap"
    return f'<td style="text-align:{side}{wrap}">{escape(words)}</td>'


def html(report: Report) -> str:
    """Both in one, where an output is HTML."""
    return image(still(report), report.words) + told(report)
