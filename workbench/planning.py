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

from workbench import theory
from workbench.errors import SpecError
from workbench.formulas import WITH_ROOT, Algorithm, Cost, find
from workbench.formulas.hierarchical import levels_told
from workbench.spec import Network
from workbench.spec_checks import check_levels
from workbench.store import Loaded, Store
from workbench.units import (
    bytes_per_second,
    counted,
    duration_ns,
    print_bandwidth,
    print_duration,
    print_size,
    size_bytes,
)

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
        """How long it takes."""
        if self.network is not None:
            own = self.events.filter(pl.col("kind") == "collective")
            return float((own["end_ns"] - own["start_ns"])[0]) / 1e9
        of = {"operation": self.operation}
        return theory.predict(self.algorithm, self.ranks, self.nbytes, self.cost, **of)

    @property
    def steps(self) -> int:
        """How many the algorithm takes, one after the other."""
        sends = theory.sends_something(self.operation, self.ranks, self.nbytes)
        return theory.steps(self.algorithm, self.ranks, operation=self.operation) if sends else 0

    @property
    def bytes_sent(self) -> tuple[int, ...]:
        """Payload bytes that each rank sends."""
        root = self.root if self.operation in WITH_ROOT else 0
        return theory.bytes_sent(
            self.algorithm, self.ranks, self.nbytes, self.itemsize,
            operation=self.operation, root=root,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """In words: "Ring all-reduce"."""
        found = f"{self.algorithm.name} {self.operation}".replace("_", "-")
        return found[:1].upper() + found[1:]

    def view(self, scene: str = "collectives") -> Any:
        """The stage as a notebook's widget, opened with this scene."""
        return super().view(scene)

    def __repr__(self) -> str:
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        what = f" of {print_size(self.nbytes)}" if self.operation != "barrier" else ""
        lasts = print_duration(round(self.seconds * 1e9))
        sent = f"; the busiest rank sends {print_size(max(self.bytes_sent))}" * bool(self.nbytes)
        who = counted(self.ranks, "rank")
        return f"{self.name}{what} over {who}, planned: {steps}, {lasts}{sent}."


def plan(
    operation: str, algorithm: str | Algorithm, *, ranks: int, nbytes: int | str = 0,
    latency: str = "20 us", bandwidth: str = "1 GB/s", adding: str = "unlimited",
    root: int = 0, itemsize: int = 4, network: Network | None = None,
) -> Planned:  # fmt: skip
    """What theory says of one ``operation`` over so many ``ranks``. ``algorithm``: a name, or
    ``hierarchical([4, 2])`` of theory.

    ``nbytes``: of the whole tensor (of a gather, what the root ends with), such as "1 MB";
    ``latency``: of a message, α; ``bandwidth``: of a link, 1/β; ``adding``: bytes a second that a
    rank adds, 1/γ; ``itemsize``: bytes of an element, which are never torn. ``network``: links that
    differ, as an Experiment has them; ``latency`` and ``bandwidth`` are then what every message
    costs on top, and "hierarchical" goes by its hosts.

    Raises SpecError that names what there is.
    """
    levels = () if network is None else network.levels
    if network is not None:
        check_levels(network, ranks)
    try:
        chosen = find(algorithm, operation, levels_told(levels) if levels else "", ranks)
    except ValueError as error:
        raise SpecError(str(error)) from None
    if ranks < 1 or not 0 <= root < ranks:
        raise SpecError(
            f"a plan takes 1 or more ranks and a root among them; got {ranks} ranks, root {root}"
        )
    size = size_bytes(nbytes) if isinstance(nbytes, str) else nbytes
    if size < 0:
        raise SpecError(f"nbytes must be 0 or more, not {size}")
    cost = Cost(duration_ns(latency) / 1e9, _seconds_a_byte(bandwidth), _seconds_a_byte(adding))
    try:
        events = theory.plan(
            chosen, ranks, size, cost, operation=operation, root=root, itemsize=itemsize,
            start_ns=_START_NS, links=None if network is None else _links(network, cost),
        )  # fmt: skip
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


def _spec(ranks: int, algorithm: str, network: Network | None) -> dict[str, Any]:
    """As much of an Experiment as the picture reads."""
    told: dict[str, Any] = {"ranks": ranks, "all_reduce": algorithm}
    if network is not None:
        told["network"] = network.model_dump(mode="json", exclude_defaults=True)
    return told


def _links(network: Network, cost: Cost) -> Callable[[int, int], Cost]:
    """What a message costs from one rank to another: what every one does, and the link's own."""

    @cache
    def link(source: int, target: int) -> Cost:
        own = network.link(source, target)
        rate = 0.0 if math.isinf(own.bytes_per_second) else 1 / own.bytes_per_second
        return Cost(cost.alpha_s + own.latency_ns / 1e9, cost.beta_s_per_byte + rate)

    return link


def _seconds_a_byte(rate: str) -> float:
    found = bytes_per_second(rate)
    return 0.0 if math.isinf(found) else 1 / found


def _model(latency: str, bandwidth: str, adding: str) -> str:
    """What the plan takes for granted, in words."""
    parts = [f"{print_duration(duration_ns(latency))} a message"]
    for rate, verb in ((bandwidth, "sent"), (adding, "added")):
        if not math.isinf(known := bytes_per_second(rate)):
            parts.append(f"{print_bandwidth(known)} {verb}")
    return f"model: {', '.join(parts)}"
