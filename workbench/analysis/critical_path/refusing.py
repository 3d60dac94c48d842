"""Refusals: why a record does not carry a prediction, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.analysis.critical_path.dependencies import Dependencies
from workbench.analysis.critical_path.moments import COMPUTES
from workbench.common.errors import SpecError
from workbench.experiment.promise import promise_of
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import stored_traits
from workbench.recording.events import OVERRUN
from workbench.store.holds import holds_of
from workbench.training.parameter_servers.clocks import policy

FEWEST = 4  # iterations
MOST_SPREAD = 0.05  # between quartiles, of the median
MOST_GAP = 0.1  # of the predicted path, in no row
MOST_LOST = 0.01  # of the messages
MOST_OVERRUN = 0.5  # of padded passes


@dataclass(frozen=True)
class Grounds:
    """The grounds of a prediction. ``rows``: those of the iterations that are looked at, between
    ``begin_ns`` and ``end_ns``; ``spread``: of these iterations, as a share of their median.
    """

    metadata: Mapping[str, str]
    spec: Mapping[str, Any]
    rows: pl.LazyFrame
    graph: Dependencies
    begin_ns: int
    end_ns: int
    spread: float
    dropped: int


def refusal(one: Grounds) -> str:
    """Return why nothing can be predicted from a record; "" where something can."""
    return _of_experiment(one) or _of_record(one) or _of_machine(one)


def refusal_of_path(gap: float) -> str:
    """Return why a prediction is not given whose path lies so much in no row."""
    if gap <= MOST_GAP:
        return ""
    return f"Of the predicted path {gap:.0%} would be in no row, and at most {MOST_GAP:.0%} can be."


def _of_experiment(one: Grounds) -> str:
    if not one.spec:
        return "The record has no experiment, so it is not known what its ranks wait for."
    traits = stored_traits(one.spec.get("strategy"))
    if traits.messages in ("neighbors", "roles") or traits.serves == "examples":
        return f"{_named(one)} takes whichever message comes first, and the order would change."
    options = one.spec.get("options") or {}
    if "consistency" in traits.way:
        if not _synchronous(options):
            return "Its workers do not wait for each other, and the order of updates would change."
    elif traits.update == "asynchronous" or _promise(one) == "asynchronous":
        return f"{_named(one)} is asynchronous, and the order of updates would change."
    network = one.spec.get("network") or {}
    for name, words in (("nic", "Ranks share network cards"), ("switch", "Hosts share a switch")):
        if (network.get(name) or "unlimited") != "unlimited":
            return f"{words} in it, and which message passes first would change."
    return ""


def _named(one: Grounds) -> str:
    strategy = one.spec.get("strategy")
    return stored_traits(strategy).title or str(getattr(strategy, "name", strategy))


def _synchronous(options: dict[str, object]) -> bool:
    try:
        return "consistency" not in options or policy(options["consistency"], options).synchronous
    except (SpecError, TypeError):
        return False


def _promise(one: Grounds) -> str:
    try:
        return promise_of(Experiment.from_yaml(one.metadata["experiment"]))
    except (SpecError, KeyError, ValueError):
        return ""


def _of_record(one: Grounds) -> str:
    count = max(0, len(one.graph.ends) - 1)
    if count < FEWEST:
        return f"It has {count} finished iterations after the first, and {FEWEST} are needed."
    if one.dropped:
        return f"{one.dropped:,} of its rows were lost."
    if one.graph.lost + one.graph.early > MOST_LOST * one.graph.messages:
        lost = one.graph.lost + one.graph.early
        return f"The send of {lost:,} of {one.graph.messages:,} messages was not recorded."
    if one.graph.hasty > MOST_LOST * one.graph.messages:
        return "Its links were faster than its experiment says: they were changed while it ran."
    holds = holds_of(one.metadata, one.end_ns)
    if any(start < one.end_ns and stop > one.begin_ns for start, stop in holds):
        return "The ranks were held by a reader in these iterations."
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    faults = one.rows.filter(kind == "fault").select(name).collect()["name"].to_list()
    if faults:
        return f"A fault struck in these iterations: {faults[0]}."
    return ""


def _of_machine(one: Grounds) -> str:
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    if one.spec.get("pad_compute"):
        late = one.rows.filter(name == OVERRUN).select(pl.len()).collect().item()
        passes = kind.is_in([*COMPUTES]) & ~kind.is_in(["metric", "load", "optimizer", "apply"])
        padded = one.rows.filter(passes).select(pl.len()).collect().item()
        if late > MOST_OVERRUN * padded:
            return f"Of {padded:,} padded passes {late:,} were longer than their pads."
    if one.spread > MOST_SPREAD:
        return (
            f"The iterations differ too much: the middle half of them by {one.spread:.0%} of the "
            f"median, and at most {MOST_SPREAD:.0%} can be."
        )
    return ""
