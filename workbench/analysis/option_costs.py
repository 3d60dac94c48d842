"""The cost of an option: measures of several runs against its value in each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.measures import MEASURES
from workbench.analysis.points import Trace

LOOKS = ("ink", "comm", "forward", "optimizer", "wait")  # tokens of the lines, then again
FAR = 20  # an axis is logarithmic where its values are further apart than so many times


def against(
    values: Mapping[str, Any],
    table: pl.DataFrame,
    option: str,
    measures: Sequence[str],
    theme: str = "light",
) -> Cell:
    """Return a chart of ``measures`` against ``values``, name -> the option's value.

    ``measures``: columns of Comparison.table, means over seeds. Bars reach from the least to the
    most.
    """
    ink = tokens(theme)
    known = table.filter(pl.col("seeds") > 0, pl.col("name").is_in([*values]))
    numbers = all(isinstance(value, int | float) for value in values.values())
    x = np.array([values[name] if numbers else str(values[name]) for name in known["name"]])
    order = np.argsort(x, kind="stable") if numbers else np.arange(len(x))
    traces, looks = [], []
    for number, measure in enumerate(measures):
        words, _ = MEASURES[measure]
        mean, least, most = (
            known[f"{measure}{part}"].to_numpy()[order] for part in ("", "_least", "_most")
        )
        color = ink[LOOKS[number % len(LOOKS)]]
        reach = {"array": most - mean, "arrayminus": mean - least, "symmetric": False}
        traces.append(Trace(words, x[order], mean))
        looks.append(
            {
                "mode": "lines+markers",
                "line": {"color": color, "width": 2},
                "marker": {"color": color, "size": 7},
                "error_y": {**reach, "color": color, "thickness": 1, "visible": True},
            }
        )
    far = numbers and len(x) > 1 and x.min() > 0 and x.max() > FAR * x.min()
    across: dict[str, Any] = {"rangemode": "normal"}
    if numbers:
        ticks = x[order].tolist()
        across |= {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}
    across |= {"type": "log"} if far else {} if numbers else {"type": "category"}
    chart = Chart(f"Against {option}", option, "", (), "%{x}: %{y:.4g}", across=across)
    inks = [ink[LOOKS[number % len(LOOKS)]] for number in range(len(traces))]
    marks = [f'<span style="color:{color}">■</span>' for color in inks]
    return Cell(chart, titled(chart.title, caption(traces, option, marks)), "", traces, looks=looks)


def caption(traces: Sequence[Trace], option: str, marks: Sequence[str]) -> str:
    """Return the key, and the value at which the first measure is least."""
    if not traces or not len(traces[0].x):
        return "appears with the first run"
    first = traces[0]
    at = int(np.nanargmin(first.y))
    key = " ".join(f"{mark} {one.name}" for mark, one in zip(marks, traces, strict=True))
    return f"{key} · least {first.y[at]:.4g} with {option} = {first.x[at]}"


def value_of(experiment: Any, option: str) -> Any:
    """Return an experiment's value of an option of its strategy or task, or of a field.

    Raises KeyError if it has none of that name.
    """
    from workbench.experiment.options import options_of

    for values in (experiment.options, experiment.task_options):
        if option in values:
            return values[option]
    if isinstance(experiment.strategy, str) and "." not in experiment.strategy:
        options = options_of(experiment.strategy)
        if option in options:
            return options[option].default
    if option in type(experiment).model_fields:
        return getattr(experiment, option)
    raise KeyError(f"no option and no field of an Experiment is called {option!r}")
