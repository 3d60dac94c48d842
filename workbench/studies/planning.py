"""``wb.plan``: a collective before anything runs, as the α-β-γ model has it.

    wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB", latency="1 ms", bandwidth="100 Mbit/s")

Its events have the columns of a run's, so that the stage draws it as it draws what was measured,
with a badge that says that it is not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from workbench.common.arguments import (
    Bandwidth,
    Bytes,
    Duration,
    Itemsize,
    Rank,
    Text,
    Walked,
    checked,
)
from workbench.common.errors import SpecError
from workbench.common.units import (
    bytes_per_second,
    counted,
    duration_ns,
    print_bandwidth,
    print_duration,
    print_size,
    size_bytes,
)
from workbench.experiment.checks import check_levels
from workbench.experiment.spec import Network
from workbench.formulas import WITH_ROOT, Algorithm, Cost
from workbench.formulas.hierarchical import levels_told
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.theory import cost_model
from workbench.theory.algorithms import find

_START_NS = 1_000_000_000  # no moment of a table is 0


@dataclass(frozen=True)
class Planned(Loaded):
    """One collective as planned: its events, its numbers, and its picture (in a notebook it shows
    itself; ``to_html`` writes a page).
    """

    operation: str  # "all_reduce"
    algorithm: Algorithm  # a name, or one of theory
    ranks: int  # how many
    nbytes: int  # of the whole tensor
    cost: Cost  # α, β, γ
    root: int  # where the operation has one
    itemsize: int  # bytes of an element
    network: Network | None = None  # links that differ

    @property
    def seconds(self) -> float:
        """The predicted duration in seconds."""
        if self.network is not None:
            calls = self.events.filter(pl.col("kind") == "collective")
            return float((calls["end_ns"] - calls["start_ns"])[0]) / 1e9
        of = {"operation": self.operation}
        return cost_model.predict(self.algorithm, self.ranks, self.nbytes, self.cost, **of)

    @property
    def steps(self) -> int:
        """The number of the algorithm's steps, one after the other."""
        sends = cost_model.sends_something(self.operation, self.ranks, self.nbytes)
        return (
            cost_model.steps(self.algorithm, self.ranks, operation=self.operation) if sends else 0
        )

    @property
    def bytes_sent(self) -> tuple[int, ...]:
        """Payload bytes that each rank sends."""
        root = self.root if self.operation in WITH_ROOT else 0
        return cost_model.bytes_sent(
            self.algorithm,
            self.ranks,
            self.nbytes,
            self.itemsize,
            operation=self.operation,
            root=root,
        )

    @property
    def name(self) -> str:
        """The name in words: "Ring all-reduce"."""
        name = f"{self.algorithm.name} {self.operation}".replace("_", "-")
        return name[:1].upper() + name[1:]

    @checked
    def view(self, scene: Text = "collectives", *, moment: Text = "") -> Any:
        """Return the view as a notebook's widget, opened with ``scene``, at ``moment``."""
        return super().view(scene, moment=moment)

    def __repr__(self) -> str:
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        what = f" of {print_size(self.nbytes)}" if self.operation != "barrier" else ""
        lasts = print_duration(round(self.seconds * 1e9))
        sent = f"; the busiest rank sends {print_size(max(self.bytes_sent))}" * bool(self.nbytes)
        ranks = counted(self.ranks, "rank")
        return f"{self.name}{what} over {ranks}, planned: {steps}, {lasts}{sent}."


@checked
def plan(
    operation: Text,
    algorithm: str | Algorithm,
    *,
    ranks: Walked,
    nbytes: Bytes = 0,
    latency: Duration = "20 µs",
    bandwidth: Bandwidth = "1 GB/s",
    adding: Bandwidth = "unlimited",
    root: Rank = 0,
    itemsize: Itemsize = 4,
    network: Network | None = None,
) -> Planned:
    """Return theory's prediction for one ``operation`` over this many ``ranks``.

    ``algorithm``: a name, or ``hierarchical([4, 2])`` of theory. ``nbytes``: of the whole tensor
    (of a gather, what the root ends with), such as "1 MB"; ``latency``: of a message, α;
    ``bandwidth``: of a link, 1/β; ``adding``: bytes per second that a rank adds, 1/γ; ``root``: the
    rank that sends or receives all; ``itemsize``: bytes of an element, which are never split.
    ``network``: links that differ, as an Experiment has them; then ``latency`` and ``bandwidth``
    are the cost of every message on top, and "hierarchical" follows its hosts.

    Raises SpecError, which names the possible values.

    >>> print(wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB"))
    """
    chosen = _chosen(algorithm, operation, ranks, network)
    if ranks < 1 or not 0 <= root < ranks:
        raise SpecError(
            f"a plan takes 1 or more ranks and a root among them; got {ranks} ranks, root {root}"
        )
    size = size_bytes(nbytes) if isinstance(nbytes, str) else nbytes
    if size < 0:
        raise SpecError(f"nbytes must be 0 or more, not {size}")
    cost = Cost(duration_ns(latency) / 1e9, _seconds_a_byte(bandwidth), _seconds_a_byte(adding))
    try:
        events = cost_model.plan(
            chosen,
            ranks,
            size,
            cost,
            operation=operation,
            root=root,
            itemsize=itemsize,
            start_ns=_START_NS,
            links=None if network is None else _links(network, cost),
        )
    except ValueError as error:
        raise SpecError(str(error)) from None
    store = Store.from_frame(events)
    planned = Planned(store, operation, chosen, ranks, size, cost, root, itemsize, network)
    store.metadata |= {
        "title": f"{planned.name}, planned",
        "experiment": json.dumps(_spec(ranks, chosen.name, network)),  # JSON is YAML
        "planned": json.dumps(
            {"words": repr(planned), "model": _model(latency, bandwidth, adding)}
        ),
        "scene": "collectives",
    }
    return planned


def _chosen(
    algorithm: str | Algorithm, operation: str, ranks: int, network: Network | None
) -> Algorithm:
    """Return the algorithm of theory that is meant, over the network's hosts. Raises SpecError."""
    levels = () if network is None else network.levels
    if network is not None:
        check_levels(network, ranks)
        if math.isfinite(network.switch_bytes_per_second):
            raise SpecError(
                "wb.plan adds up links, not a switch that all hosts share: leave out "
                f"switch = {network.switch!r}. wb.why and a run know it"
            )
        if math.isfinite(network.nic_bytes_per_second):
            raise SpecError(
                "wb.plan adds up links, not network cards that several links share: leave out "
                f"nic = {network.nic!r}. wb.why and a run know them"
            )
    try:
        return find(algorithm, operation, levels_told(levels) if levels else "", ranks)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _spec(ranks: int, algorithm: str, network: Network | None) -> dict[str, Any]:
    """Return the fields of an Experiment that the picture reads."""
    fields: dict[str, Any] = {"ranks": ranks, "all_reduce": algorithm}
    if network is not None:
        fields["network"] = network.model_dump(mode="json", exclude_defaults=True)
    return fields


def _links(network: Network, cost: Cost) -> Callable[[int, int], Cost]:
    """Return the function for the cost of a message: the general cost, and its link's own."""

    @cache
    def link(source: int, target: int) -> Cost:
        pace = network.link(source, target)
        rate = 0.0 if math.isinf(pace.bytes_per_second) else 1 / pace.bytes_per_second
        return Cost(cost.alpha_s + pace.latency_ns / 1e9, cost.beta_s_per_byte + rate)

    return link


def _seconds_a_byte(rate: str) -> float:
    bandwidth = bytes_per_second(rate)
    return 0.0 if math.isinf(bandwidth) else 1 / bandwidth


def _model(latency: str, bandwidth: str, adding: str) -> str:
    """Describe what the plan assumes."""
    parts = [f"{print_duration(duration_ns(latency))} a message"]
    for rate, verb in ((bandwidth, "sent"), (adding, "added")):
        if not math.isinf(known := bytes_per_second(rate)):
            parts.append(f"{print_bandwidth(known)} {verb}")
    return f"model: {', '.join(parts)}"
