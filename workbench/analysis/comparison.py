"""Losses of several runs on common axes, as cells: by iterations, updates, seconds, bytes.

A curve is a table iteration, updates, seconds, loss, nbytes; a label has one, or one for each of
several seeds: then its line is their mean, and a band reaches from the least to the most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import Numbers, Trace, thin_out
from workbench.common.errors import SpecError

DASHES = ("solid", "dash", "dot", "dashdot")
AT = 200  # points of a mean over seeds
SMOOTH = 40  # the part of a curve that a point is the mean of, where several seeds are shown
Curve = pl.DataFrame
Curves = Mapping[str, Curve | Sequence[Curve]]

_INK = (("ink", LINE),)
AXES: Mapping[str, tuple[str, Chart]] = {
    "iterations": (
        "iteration",
        Chart("Losses compared, by iteration", "iteration", "loss", _INK, "%{y:.4f}"),
    ),
    "seconds": (
        "seconds",
        Chart("Losses compared, by time", "seconds", "loss", _INK, "%{x:.2f} s: %{y:.4f}"),
    ),
    "updates": (
        "updates",
        Chart(
            "Losses compared, by updates",
            "updates of the parameters",
            "loss",
            _INK,
            "update %{x:,.0f}: %{y:.4f}",
        ),
    ),
    "bytes": (
        "nbytes",
        Chart(
            "Losses compared, by bytes",
            "bytes sent by all ranks",
            "loss",
            _INK,
            "%{x:.3s}B: %{y:.4f}",
            across={"tickformat": "~s", "ticksuffix": "B"},
        ),
    ),
}


def compared(
    curves: Curves, theme: str = "light", by: Sequence[str] = (), smooth: int | None = 1
) -> list[Cell]:
    """Return a chart per axis, with a colour and a dash for each label.

    ``by``: of AXES; by default iterations and seconds, and updates and bytes where they add
    something.
    ``smooth``: points of a curve in a moving average, going back; None: a share of them. Raises
    SpecError, which names the axes, for an unknown one.
    """
    groups = {
        label: [found] if isinstance(found, pl.DataFrame) else [*found]
        for label, found in curves.items()
    }
    for axis in by:
        if axis not in AXES:
            raise SpecError(f"there is no axis {axis!r}; there are {', '.join(AXES)}")
    looks = _looks(groups, theme)
    return [
        _cell(axis, number, groups, looks, smooth)
        for number, axis in enumerate(by or _telling(groups))
    ]


def _telling(groups: Mapping[str, Sequence[Curve]]) -> tuple[str, ...]:
    """Return the axes that add something: an update is an iteration unless a server updates."""
    each = [curve for curves in groups.values() for curve in curves if "updates" in curve.columns]
    if any((curve["updates"] != curve["iteration"]).any() for curve in each):
        return tuple(AXES)
    return ("iterations", "seconds")


def _cell(
    axis: str,
    number: int,
    groups: Mapping[str, Sequence[Curve]],
    looks: Mapping[str, Sequence[dict[str, Any]]],
    smooth: int | None,
) -> Cell:
    column, chart = AXES[axis]
    traces: list[Trace] = []
    drawn: list[dict[str, Any]] = []
    most = 1
    for label, curves in groups.items():
        known = [curve for curve in curves if column in curve.columns]
        over = [_window(curve, smooth) for curve in known]
        most = max([most, *over])
        smoothed = [smooth_curve(curve, n) for curve, n in zip(known, over, strict=True)]
        own = _lines(label, smoothed, column)
        traces += own
        drawn += looks[label][-len(own) :]
    title = titled(chart.title, "; ".join(key_words(groups, most)))
    return Cell(chart, title, chart.y, traces, looks=drawn, key=number == 0, begins=number == 0)


def key_words(groups: Mapping[str, Sequence[Curve]], over: int) -> list[str]:
    """Return what a line, a band and a point mean."""
    if not groups:
        return ["appear with the first run"]
    lines = []
    if any(len(curves) > 1 for curves in groups.values()):
        lines.append("a line is the mean over seeds, its band reaches from the least to the most")
    if over > 1:
        lines.append(f"a point is the mean of the last {over}")
    return lines


def _looks(groups: Mapping[str, Sequence[Curve]], theme: str) -> dict[str, list[dict[str, Any]]]:
    """Return the line styles of each label: the two edges of its band, and its line."""
    ink, result = tokens(theme), {}
    for number, label in enumerate(groups):
        colour = ink[f"s{number % 8}"]
        dash = DASHES[number % len(DASHES)]
        r, g, b = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        band = {"fill": "tonexty", "fillcolor": f"rgba({r},{g},{b},0.16)"}
        line = LINE | {"line": {"color": colour, "dash": dash, "width": 2}}
        result[label] = [edge, edge | band, line]
    return result


def _lines(label: str, curves: Sequence[Curve], column: str) -> list[Trace]:
    """Return the line of a label; for several curves, the edges of their band come first."""
    if len(curves) < 2:
        none = pl.DataFrame(
            {column: [], "loss": []}, schema={column: pl.Float64(), "loss": pl.Float64()}
        )
        thin, _ = thin_out("loss", curves[0] if curves else none)
        return [Trace(label, thin[column].to_numpy(), thin["loss"].to_numpy())]
    x, losses = on_common(curves, column)
    return [
        Trace("", x, losses.min(axis=0)),
        Trace("", x, losses.max(axis=0)),
        Trace(label, x, losses.mean(axis=0)),
    ]


def on_common(curves: Sequence[Curve], column: str) -> tuple[Numbers, np.ndarray]:
    """Return positions that all curves reach, and each curve's loss there (a row per curve).

    Losses are interpolated on straight lines.
    """
    each = [(one[column].to_numpy().astype(float), one["loss"].to_numpy()) for one in curves]
    first, last = max(x[0] for x, _ in each), min(x[-1] for x, _ in each)
    places = min(AT, max(len(x) for x, _ in each))
    at = np.linspace(first, max(first, last), places)
    return at, np.stack([np.interp(at, x, loss) for x, loss in each])


def _window(curve: Curve, smooth: int | None) -> int:
    return max(1, curve.height // SMOOTH if smooth is None else smooth)


def smooth_curve(curve: Curve, over: int) -> Curve:
    """Return the curve with each loss as the mean of the last ``over`` losses."""
    if over < 2:
        return curve
    return curve.with_columns(pl.col("loss").rolling_mean(over, min_samples=1))


def first_below(curve: Curve, loss: float) -> dict[str, float | None]:
    """Return where the smoothed loss is first below ``loss``; None where it never is."""
    names = {
        "iterations": "iteration",
        "updates": "updates",
        "seconds": "seconds",
        "bytes": "nbytes",
    }
    whole = max(1, curve.height // SMOOTH)
    smooth = smooth_curve(curve, whole).slice(whole - 1)  # of windows that are full
    below = smooth.filter(pl.col("loss") < loss)
    return {
        name: float(below[column][0]) if below.height else None for name, column in names.items()
    }
