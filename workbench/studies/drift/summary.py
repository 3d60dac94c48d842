"""A drift report as text: the verdict with its reasons, then a row per training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from workbench.common.units import counted

if TYPE_CHECKING:
    from workbench.studies.drift.findings import Findings

HEADINGS = (
    "",
    "ulps, max",
    "median",
    "float32",
    "float64",
    "shrinks by",
    "replicas",
    "verdict",
)
LEGEND = (
    "ulps: of the float32 run's parameters; float32, float64: |Δ parameters| as a part of the way "
    "that sequential training went"
)
NOTHING = "–"


def rows(report: Findings) -> list[tuple[str, ...]]:
    """Return a row per training, with the columns of ``HEADINGS``, from its last measurement."""
    table, result = report.table, []
    for name, verdict in report.verdicts.items():
        of_subject = table.filter(subject=name)
        last = {dtype: _last(of_subject.filter(dtype=dtype)) for dtype in ("float32", "float64")}
        result.append((name, *_numbers(last["float32"], last["float64"]), verdict))
    return result


def _last(of_subject: pl.DataFrame) -> Mapping[str, float] | None:
    return of_subject.sort("iterations").row(-1, named=True) if of_subject.height else None


def _numbers(
    single: Mapping[str, float] | None, double: Mapping[str, float] | None
) -> tuple[str, ...]:
    if single is None or double is None or single["iterations"] != double["iterations"]:
        return (NOTHING,) * 6
    shrinks = single["share"] / double["share"] if double["share"] else 0.0
    same = single["identical"]
    return (
        _brief(single["ulps_max"]),
        _brief(single["ulps_median"]),
        f"{single['share']:.1e}",
        f"{double['share']:.1e}",
        NOTHING if not shrinks else f"2^{math.log2(shrinks):.0f}" if shrinks > 2 else "1",
        NOTHING if same is None else "identical" if same else "differ",
    )


def _brief(ulps: float) -> str:
    return f"{ulps:.1e}" if ulps >= 1e6 else f"{ulps:,.0f}"


def text(report: Findings) -> str:
    """Return the whole report as text for a terminal."""
    subject = report.subjects[0]
    result = report.findings[subject.name]
    lines = [
        f"{subject.name}: {result.verdict}",
        *(f"  {reason}" for reason in result.reasons),
        f"  {setting(report)}",
        "",
        *align([HEADINGS, *rows(report)]),
        LEGEND,
    ]
    if not report.done:
        lines.append(report.words)
    return "\n".join(lines)


def setting(report: Findings) -> str:
    """Return the experiment's settings in one line."""
    exp = report.subjects[0].experiment
    ranks = counted(exp.ranks, "rank")
    rule = f"{exp.optimizer} with momentum {exp.momentum}" if exp.momentum else exp.optimizer
    return (
        f"{ranks}, {counted(report.at[-1], 'update')} by {rule} on minibatches of "
        f"{exp.batch_size}, compared with sequential training"
    )


def align(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns; the first and the last column are flush left."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    ends = (0, len(widths) - 1)
    return [
        "  ".join(
            one.ljust(wide) if i in ends else one.rjust(wide)
            for i, (one, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
