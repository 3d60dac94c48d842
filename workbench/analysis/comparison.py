"""Losses of several runs on common axes, as cells: by iterations, updates, seconds, bytes.

A curve is a table iteration, updates, seconds, loss, nbytes; a label has one, or one for each of
several seeds: then its line is their mean, and a band reaches from the least to the most of them.
Where all of them play an environment it is their returns that are shown, by frames too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import Numbers, Trace, thin_out
from workbench.common.errors import SpecError
from workbench.front_end.svg import DASH_ARRAYS

DASHES = tuple(DASH_ARRAYS)
AT = 200  # points of a mean over seeds
SAME = 0.001  # losses that differ by less are drawn as one line
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


_FRAMES = Chart(
    "Losses compared, by frames", "frames of all actors", "loss", _INK, "frame %{x:,.0f}: %{y:.4f}"
)
RETURNED: Mapping[str, tuple[str, Chart]] = {  # the axes where returns are shown
    axis: (
        column,
        replace(
            chart,
            title=chart.title.replace("Losses", "Returns"),
            y="return, mean of 20 episodes",
            hover=chart.hover.replace(".4f", ".3g"),
            least=None,
            key_below=True,
        ),
    )
    for axis, (column, chart) in {**AXES, "frames": ("frames", _FRAMES)}.items()
}


def compared(
    curves: Curves, theme: str = "light", by: Sequence[str] = (), smooth: int | None = 1
) -> list[Cell]:
    """Return a chart per axis, with a color and a dash for each label.

    ``by``: of AXES (of RETURNED, where each curve has returns); by default those that add
    something.
    ``smooth``: points of a curve in a moving average, going back; None: a share of them; a return
    is a mean already. Raises SpecError, which names the axes, for an unknown one.
    """
    groups = {
        label: [curves_of] if isinstance(curves_of, pl.DataFrame) else [*curves_of]
        for label, curves_of in curves.items()
    }
    of = "return" if is_played(groups) else "loss"
    axes = AXES if of == "loss" else RETURNED
    for axis in by:
        if axis not in axes:
            raise SpecError(f"there is no axis {axis!r}; there are {', '.join(axes)}")
    if of == "return":
        groups = {label: [_returned(one) for one in each] for label, each in groups.items()}
        smooth = 1
    looks = _looks(groups, theme)
    return [
        _cell(axes[axis], number, groups, looks, (of, smooth))
        for number, axis in enumerate(by or telling(groups))
    ]


def is_played(groups: Mapping[str, Sequence[Curve]]) -> bool:
    """Return whether all curves are of runs that play an environment."""
    each = [curve for curves in groups.values() for curve in curves]
    return bool(each) and all(
        "return" in curve.columns and curve["return"].null_count() < curve.height for curve in each
    )


def _returned(curve: Curve) -> Curve:
    """Return the part of a curve from where the first episode has ended."""
    return curve.filter(pl.col("return").is_not_null())


def telling(groups: Mapping[str, Sequence[Curve]]) -> tuple[str, ...]:
    """Return the axes that add something: an update is an iteration unless a server updates, and
    what plays is compared by what playing costs.
    """
    if is_played(groups):
        return ("seconds", "frames", "bytes")
    each = [curve for curves in groups.values() for curve in curves if "updates" in curve.columns]
    if any((curve["updates"] != curve["iteration"]).any() for curve in each):
        return tuple(AXES)
    return ("iterations", "seconds")


def _cell(
    axis: tuple[str, Chart],
    number: int,
    groups: Mapping[str, Sequence[Curve]],
    looks: Mapping[str, Sequence[dict[str, Any]]],
    shown: tuple[str, int | None],
) -> Cell:
    """Return the chart of an axis. ``shown``: the column that goes up, and how it is smoothed."""
    (column, chart), (of, smooth) = axis, shown
    traces: list[Trace] = []
    drawn: list[dict[str, Any]] = []
    most = 1
    for label, curves in groups.items():
        known = [curve for curve in curves if column in curve.columns]
        over = [_window(curve, smooth) for curve in known]
        most = max([most, *over])
        smoothed = [smooth_curve(curve, n) for curve, n in zip(known, over, strict=True)]
        lines = _lines(label, smoothed, column, of)
        traces += lines
        drawn += looks[label][-len(lines) :]
    lines_on_one = column == "iteration" and of == "loss" and _coincide(groups)
    words = [*key_words(groups, most), *["all lines lie on one another"] * lines_on_one]
    title = titled(chart.title, "; ".join(words))
    if of == "loss":  # a return has its key below in any case
        chart = replace(chart, key_below=_ends_high(traces))
    return Cell(chart, title, chart.y, traces, looks=drawn, key=number == 0, begins=number == 0)


def _ends_high(lines: Sequence[Trace]) -> bool:
    """Return whether lines end in the upper half of their chart, where its key usually is: losses
    that hardly fall.
    """
    known = [line.y[np.isfinite(line.y)] for line in lines if len(line.y)]
    known = [values for values in known if len(values)]
    top = max((float(values.max()) for values in known), default=0.0)
    return any(float(values[-len(values) // 3 :].max()) > top / 2 for values in known)


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


def _coincide(groups: Mapping[str, Sequence[Curve]]) -> bool:
    """Return whether all curves have the same losses in the same iterations, to SAME of them."""
    each = [curve["loss"].to_numpy() for curves in groups.values() for curve in curves]
    return len(each) > 1 and all(
        len(one) == len(each[0]) and np.allclose(one, each[0], rtol=SAME) for one in each
    )


def line_key(labels: Sequence[str], theme: str = "light") -> dict[str, tuple[str, str]]:
    """Return the color and the SVG dash array of each label's line, for a key."""
    looks = _looks(dict.fromkeys(labels, ()), theme)
    return {
        label: (line["line"]["color"], DASH_ARRAYS[line["line"]["dash"]])
        for label, (_, _, line) in looks.items()
    }


def _looks(groups: Mapping[str, Sequence[Curve]], theme: str) -> dict[str, list[dict[str, Any]]]:
    """Return the line styles of each label: the two edges of its band, and its line."""
    ink, result = tokens(theme), {}
    for number, label in enumerate(groups):
        color = ink[f"s{number % 8}"]
        dash = DASHES[number % len(DASHES)]
        r, g, b = (int(color[at : at + 2], 16) for at in (1, 3, 5))
        edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        band = {"fill": "tonexty", "fillcolor": f"rgba({r},{g},{b},0.16)"}
        line = LINE | {"line": {"color": color, "dash": dash, "width": 2}}
        result[label] = [edge, edge | band, line]
    return result


def _lines(label: str, curves: Sequence[Curve], column: str, of: str) -> list[Trace]:
    """Return the line of a label; for several curves, the edges of their band come first."""
    first = 1 if column == "iteration" else 0  # charts count iterations from 1
    if len(curves) < 2:
        none = pl.DataFrame({column: [], of: []}, schema={column: pl.Float64(), of: pl.Float64()})
        thin, _ = thin_out("loss", curves[0] if curves else none)
        return [Trace(label, thin[column].to_numpy() + first, thin[of].to_numpy())]
    x, values = on_common(curves, column, of)
    x = x + first
    return [
        Trace("", x, values.min(axis=0)),
        Trace("", x, values.max(axis=0)),
        Trace(label, x, values.mean(axis=0)),
    ]


def on_common(curves: Sequence[Curve], column: str, of: str = "loss") -> tuple[Numbers, np.ndarray]:
    """Return positions that all curves reach, and each curve's loss there (a row per curve).

    Losses, or what else ``of`` names, are interpolated on straight lines.
    """
    each = [(one[column].to_numpy().astype(float), one[of].to_numpy()) for one in curves]
    first, last = max(x[0] for x, _ in each), min(x[-1] for x, _ in each)
    places = min(AT, max(len(x) for x, _ in each))
    at = np.linspace(first, max(first, last), places)
    return at, np.stack([np.interp(at, x, values) for x, values in each])


def _window(curve: Curve, smooth: int | None) -> int:
    return max(1, curve.height // SMOOTH if smooth is None else smooth)


def smooth_curve(curve: Curve, over: int) -> Curve:
    """Return the curve with each loss as the mean of the last ``over`` losses."""
    if over < 2:
        return curve
    return curve.with_columns(pl.col("loss").rolling_mean(over, min_samples=1))


def first_below(curve: Curve, loss: float) -> dict[str, float | None]:
    """Return where the smoothed loss is first below ``loss``; None where it never is."""
    whole = max(1, curve.height // SMOOTH)
    smooth = smooth_curve(curve, whole).slice(whole - 1)  # of windows that are full
    return _where(smooth.filter(pl.col("loss") < loss))


def first_reached(curve: Curve, score: float) -> dict[str, float | None]:
    """Return where the mean return is first ``score`` or more; None where it never is."""
    return _where(curve.filter(pl.col("return") >= score))


def _where(rows: Curve) -> dict[str, float | None]:
    """Return where a curve is in the first of these rows, by each axis."""
    names = {axis: column for axis, (column, _) in RETURNED.items() if column in rows.columns}
    return {
        name: float(rows[column][0]) if rows.height and rows[column][0] is not None else None
        for name, column in names.items()
    }
