"""The costs that choosing needs: the machine's by number of ranks, corrections of walks, links.

Measured by calibrate.py and kept in the user's cache folder; else those that are shipped. All ranks
of a group must have the same: one rank's go to all others as JSON.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from workbench.common import environment, topology
from workbench.common.output_files import make_ready, write_text

VERSION = 2  # of the file: 1 had factors against calls in a row
WHAT = "the measured costs"
SLOT_BYTES = 262_144
SHIPPED = "shipped"  # what WORKBENCH_COSTS says to leave this machine's own aside


@dataclass(frozen=True)
class Machine:
    """The costs of moving data between the ranks of one machine, in seconds."""

    alpha_s: float  # from a slot's being posted until a rank that waits for it goes on
    overhead_s: float  # each end of a message keeps its rank busy for so long
    beta_s_per_byte: float  # a byte sent: copied in, and copied out
    gamma_s_per_byte: float  # a byte added, on top of that
    wake_s: float = 0.0  # a rank that sleeps until a paced slot arrives wakes so much later

    @property
    def words(self) -> str:
        """The fitted costs, in words."""
        return (
            f"α {self.alpha_s * 1e6:.1f} µs per wait, {self.overhead_s * 1e6:.1f} µs at each end "
            f"of a message, β {self.beta_s_per_byte * 1e9:.3f} ns per byte sent, γ "
            f"{self.gamma_s_per_byte * 1e9:.3f} ns per byte added"
        )


@dataclass(frozen=True)
class Links:
    """Emulated links between ``n`` ranks; by (sender, receiver), those of ``pairs`` differ."""

    latency_s: float = 0.0
    s_per_byte: float = 0.0
    pairs: tuple[tuple[int, int, float, float], ...] = ()  # sender, receiver, latency, s a byte
    levels: tuple[int, ...] = ()  # of common/topology.py, where they are known
    nic_s_per_byte: float = 0.0  # of each host's network card, each way
    nics: tuple[int, ...] = ()  # each rank's host, where cards or a switch are emulated
    switch_s_per_byte: float = 0.0  # of the switch between hosts, for all of them

    @property
    def paced(self) -> bool:
        shared = self.nic_s_per_byte or self.switch_s_per_byte
        return bool(self.latency_s or self.s_per_byte or self.pairs or shared)

    def among(self, ranks: Sequence[int]) -> Links:
        """Return the links of a group of these world ranks, with the group's numbers."""
        at = {world: place for place, world in enumerate(ranks)}
        pairs = [(at[a], at[b], *rest) for a, b, *rest in self.pairs if a in at and b in at]
        levels = topology.among(self.levels, ranks)
        nics = tuple(self.nics[rank] for rank in ranks) if self.nics else ()
        return replace(self, pairs=tuple(pairs), levels=levels, nics=nics)  # type: ignore[arg-type]

    def of(self, sender: int, receiver: int) -> tuple[float, float]:
        """Return the seconds of latency, and per byte, from one rank to another."""
        return self._by_pair.get((sender, receiver), (self.latency_s, self.s_per_byte))

    @cached_property
    def _by_pair(self) -> dict[tuple[int, int], tuple[float, float]]:
        return {(a, b): (latency, rate) for a, b, latency, rate in self.pairs}


PLAIN = Links()


@dataclass(frozen=True)
class Costs:
    """See above. ``off``: (operation, algorithm, n) -> ((bytes, measured / walked), ...), of a call
    in a row of calls that was timed, against the walk of one.
    """

    machines: Mapping[int, Machine]  # by number of ranks
    off: Mapping[tuple[str, str, int], tuple[tuple[int, float], ...]] = field(default_factory=dict)
    links: Links = PLAIN
    slot_bytes: int = SLOT_BYTES
    cores: int = 1
    source: str = ""  # where they are from, in words

    def machine(self, n: int) -> Machine:
        """Return the machine for ``n`` ranks: as measured, or scaled from the nearest number."""
        known = sorted(self.machines)
        at = min(known, key=lambda m: (abs(math.log(m / n)), m))
        share = max(n, self.cores) / max(at, self.cores)
        return slow_down(self.machines[at], share) if share != 1 else self.machines[at]

    def factor(self, operation: str, algorithm: str, n: int, nbytes: int) -> float:
        """Return an algorithm's measured time as a multiple of its simulated time.

        Between measured sizes it is interpolated in logarithms; for other numbers of ranks the
        nearest counts.
        """
        known = [m for op, name, m in self.off if (op, name) == (operation, algorithm)]
        if not known:
            return 1.0
        at = min(known, key=lambda m: (abs(math.log(m / n)), m))
        points = self.off[operation, algorithm, at]
        if nbytes <= points[0][0]:
            return points[0][1]
        for (low, a), (high, b) in pairwise(points):
            if nbytes <= high:
                share = math.log(nbytes / low) / math.log(high / low)
                return math.exp(math.log(a) * (1 - share) + math.log(b) * share)
        return points[-1][1]

    def over(self, links: Links) -> Costs:
        """Return the same costs with these links."""
        return replace(self, links=links)

    def cut_into(self, slot_bytes: int) -> Costs:
        """Return the same costs with tensors cut into such slots."""
        return replace(self, slot_bytes=slot_bytes)

    @cached_property
    def known(self) -> dict[Any, Any]:
        """The choices that were computed from these costs already."""
        return {}

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "cores": self.cores,
                "slot_bytes": self.slot_bytes,
                "source": self.source,
                "links": asdict(self.links),
                "machines": {n: asdict(one) for n, one in sorted(self.machines.items())},
                "off": [[*key, points] for key, points in sorted(self.off.items())],
            },
        )

    @classmethod
    def from_json(cls, text: str) -> Costs:
        """Read what ``to_json`` wrote. Raises ValueError for another version's text."""
        try:
            facts = json.loads(text)
            if facts["version"] != VERSION:
                raise ValueError(f"version {facts['version']}, not {VERSION}")
            links = facts["links"]
            return cls(
                {int(n): Machine(**one) for n, one in facts["machines"].items()},
                {
                    (op, name, n): tuple((int(size), float(by)) for size, by in points)
                    for op, name, n, points in facts["off"]
                },
                Links(
                    links["latency_s"],
                    links["s_per_byte"],
                    tuple((a, b, late, rate) for a, b, late, rate in links["pairs"]),
                    tuple(links.get("levels", ())),
                    links.get("nic_s_per_byte", 0.0),
                    tuple(links.get("nics", ())),
                ),
                facts["slot_bytes"],
                facts["cores"],
                facts["source"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"these are not costs: {error!r}") from None


def slow_down(machine: Machine, times: float) -> Machine:
    """Return the machine with core-bound work ``times`` as slow; sleep takes as long as before."""
    fields = asdict(machine)
    return Machine(**{k: v if k == "wake_s" else v * times for k, v in fields.items()})


def links_of(network: Any, ranks: int) -> Links:
    """Return a spec's Network as Links; a link that is cut at the start counts as connected."""
    usual = [_seconds(network.at(level)) for level in range(len(network.levels) or 1)]
    pairs = []
    for a in range(ranks):
        for b in range(ranks):
            level = topology.level(network.levels, a, b)
            if (a, b) in network.links:
                pairs.append((a, b, *_seconds(network.link(a, b))))
            elif usual[level] != usual[0]:
                pairs.append((a, b, *usual[level]))
    card, switch = 1 / network.nic_bytes_per_second, 1 / network.switch_bytes_per_second
    shared = bool(card or switch)
    nics = tuple(rank // network.ranks_per_nic for rank in range(ranks)) if shared else ()
    return Links(*usual[0], tuple(pairs), network.levels, card, nics, switch)


def _seconds(link: Any) -> tuple[float, float]:
    """Return the seconds of latency, and per byte."""
    return link.latency_ns / 1e9, 1 / link.bytes_per_second


# ---- where they are kept


def place() -> Path:
    """Return the file of this user's measured costs."""
    if (path := environment.text("WORKBENCH_COSTS")) not in ("", SHIPPED):
        return Path(path).expanduser()
    return cache_folder() / "costs.json"


def cache_folder() -> Path:
    """Return the folder of files on this machine that runs of this user keep."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "workbench"


def default_costs() -> str:
    """Return the shipped costs as JSON, for a machine without measurements."""
    return Path(__file__).with_name("shipped.json").read_text(encoding="utf-8")


def load() -> Costs:
    """Return this machine's own costs if they exist and fit, else the shipped ones.

    The result names its source.
    """
    if environment.text("WORKBENCH_COSTS") != SHIPPED:
        try:
            result = Costs.from_json(place().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            pass
        else:
            if result.cores == cores():
                return result
    return adapt(Costs.from_json(default_costs()))


def adapt(theirs: Costs) -> Costs:
    """Return another machine's costs for this one: with this one's cores, without the values that
    hold for the other only.
    """
    available = cores()
    return theirs if theirs.cores == available else replace(theirs, cores=available, off={})


def agree_on_costs(store: Any, rank: int) -> Costs:
    """Return rank 0's costs on every rank of a group. ``store``: the group's own."""
    if rank == 0:
        store.set("costs", load().to_json())
    return Costs.from_json(store.get("costs").decode())


def save(costs: Costs) -> Path:
    """Save the costs for every later run; a concurrent reader gets the old ones or these."""
    make_ready(path := place(), WHAT)
    write_text(path, WHAT, costs.to_json())
    return path


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def sizes_between(least: int, most: int, each: float = 4.0) -> Sequence[int]:
    """Return sizes from ``least`` to ``most``, ``each`` times the one before, in whole float32."""
    result, size = [], float(least)
    while size <= most * 1.0001:
        result.append(max(4, round(size) // 4 * 4))
        size *= each
    return result
