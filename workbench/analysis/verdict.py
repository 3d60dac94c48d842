"""The verdict of a comparison: which of its runs comes first, by its own numbers, in one sentence.

    verdict({"ring": measures.of(...), "naive": measures.of(...)}, ["step_ms"])

    By time per step, ring comes first with 41.20 ms, and naive last with 120.31 ms, 2.92 times as
    much.

Where names are a way and a setting ("ring, 8 ranks"), the ways are compared in each setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.analysis.against_reference import BETTER, LESS, TOTALS
from workbench.analysis.measures import MEASURES
from workbench.common.errors import SpecError
from workbench.common.names import enumerated, listed

NOUNS: Mapping[str, tuple[str, str]] = {  # measures that decide a comparison, and their units
    "step_ms": ("time per step", " ms"),
    "stall_ms": ("wait for examples per step", " ms"),
    "wall_seconds": ("time of the run", " s"),
    "samples_per_s": ("samples per second", ""),
    "loss_end": ("loss at the end", ""),
    "return_end": ("return at the end", ""),
    "bubble": ("idle share of an iteration", ""),
    "activations": ("activations that a rank holds", ""),
    "memory": ("memory of a rank", ""),
    "bytes_all": ("bytes that all ranks send", ""),
    "bytes_busiest": ("bytes in and out of the busiest rank", ""),
    "bytes_between": ("bytes that a rank sends out of its host", ""),
}
CLOSE = 1.05  # the factor below which no run comes first: another try may turn it round

Values = dict[str, float]  # of a measure, by the run's name


def verdict(runs: Mapping[str, Mapping[str, Any]], measures: Sequence[str]) -> str:
    """Return it for runs that have finished, by their names; "" where fewer than two tell.
    ``measures``: those that decide. Raises SpecError for one that is not of NOUNS.
    """
    clauses = [_clause(one, values) for one in measures if (values := comparable(runs, one))]
    return "; ".join([*clauses[:1], *(f"b{one[1:]}" for one in clauses[1:])]) + "." * bool(clauses)


def comparable(runs: Mapping[str, Mapping[str, Any]], measure: str) -> Values:
    """Return the values that two or more finished runs have, if they can be compared: a total only
    of runs that did as many iterations. Raises SpecError for a measure that is not of NOUNS.
    """
    if measure not in NOUNS:
        raise SpecError(f"no verdict is by {measure!r}; they are by {listed(NOUNS)}")
    values = {name: run[measure] for name, run in runs.items() if run[measure] is not None}
    uneven = len({run["iterations"] for run in runs.values()}) > 1
    return {} if len(values) < 2 or (uneven and measure in TOTALS) else values


def _clause(measure: str, values: Values) -> str:
    by = f"By {NOUNS[measure][0]}"
    ways_of = grid(values)
    ranked = _ranked(measure, values)
    first, last = ranked[0], ranked[-1]
    if _factor(values, first, last) < CLOSE:
        ends = f"{write(measure, values[first])} to {write(measure, values[last])}"
        return f"{by}, no run comes first: all are within 5 %, from {ends}"
    if not ways_of:
        return (
            f"{by}, {first} comes first with {write(measure, values[first])}, and {last} last "
            f"with {write(measure, values[last])}{_times(measure, values, first, last)}"
        )
    first_in: dict[str, list[str]] = {}
    gaps: dict[str, float] = {}
    for setting, ways in ways_of.items():
        ranked = _ranked(measure, ways)
        gaps[setting] = _factor(ways, ranked[0], ranked[-1])
        way = ranked[0] if _factor(ways, ranked[0], ranked[1]) >= CLOSE else "none"
        first_in.setdefault(way, []).append(setting)
    wins = ", ".join(f"{way} comes first with {enumerated(at)}" for way, at in first_in.items())
    wins = wins.replace("none comes", "no way comes")
    setting = max(gaps, key=lambda one: gaps[one])
    ways = ways_of[setting]
    best, *_, worst = _ranked(measure, ways)
    return (
        f"{by}, {wins}; the widest gap is with {setting}, {write(measure, ways[best])} for {best} "
        f"and {write(measure, ways[worst])} for {worst}"
    )


def grid(values: Mapping[str, float]) -> dict[str, Values]:
    """Return the values by setting and way, where names are all pairs of both; else nothing."""
    pairs = {name: name.split(", ") for name in values}
    if any(len(pair) != 2 for pair in pairs.values()):
        return {}
    grid: dict[str, Values] = {}
    for name, (way, setting) in pairs.items():
        grid.setdefault(setting, {})[way] = values[name]
    sets = {frozenset(ways) for ways in grid.values()}
    return grid if len(sets) == 1 and len(grid) > 1 and len(min(sets)) > 1 else {}


def _ranked(measure: str, values: Values) -> list[str]:
    """Return the names, the best first."""
    return sorted(values, key=lambda name: values[name] * -BETTER[measure])


def _factor(values: Values, first: str, last: str) -> float:
    low, high = sorted((values[first], values[last]))
    return high / low if low > 0 else float("inf") if high > low else 1.0


def _times(measure: str, values: Values, first: str, last: str) -> str:
    factor = _factor(values, first, last)
    less = BETTER[measure] == LESS and factor != float("inf")
    return f", {factor:.3g} times as much" if less else ""


def write(measure: str, value: float) -> str:
    """Return a value with its unit."""
    return MEASURES[measure][1](value) + NOUNS[measure][1]
