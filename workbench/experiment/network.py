"""The part of an Experiment that says what links are like, and which ranks share a host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from workbench.common import topology, units
from workbench.common.arguments import Number, Text, checked
from workbench.common.errors import SpecError
from workbench.experiment.frozen_model import Bandwidth, Count, Duration, Fixed, FrozenModel, Rank
from workbench.experiment.named_links import NAMED

MOST_LEVELS = 16  # groups of groups of hosts


def _as_pair(value: object) -> object:
    """Return a pair of ranks; (0, 1) and "0->1" mean the same."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+)\s*->\s*(\d+)\s*", value)
        if not match:
            raise SpecError('a link is named "0->1": from rank 0 to rank 1')
        return int(match[1]), int(match[2])
    return value


Pair = Annotated[
    tuple[Rank, Rank],
    BeforeValidator(_as_pair),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+->[0-9]+$"}),
]


class Link(FrozenModel):
    """One direction between two ranks. What it leaves out is as in the Network."""

    latency: Duration | None = Field(
        default=None, description="added to each message, such as '5 ms'"
    )
    bandwidth: Bandwidth | None = Field(
        default=None, description="at most this, such as '100 Mbit/s'"
    )
    down: bool = Field(default=False, description="nothing passes: contact is lost")

    @classmethod
    @checked
    def named(cls, name: Text) -> Self:
        """Return a link with a real name, such as "100 GbE" or "NVLink": see named_links.py.

        Raises SpecError for a name that is not known.
        """
        if name not in NAMED:
            raise SpecError(
                f"wb.Link.named: name = {name!r}: there is no such link. "
                f"Allowed: {', '.join(map(repr, NAMED))}"
            )
        latency, bandwidth = NAMED[name]
        return cls(latency=latency, bandwidth=bandwidth)

    @property
    def latency_ns(self) -> int:
        """``latency`` in nanoseconds."""
        return units.duration_ns(self.latency or "0 ms")

    @property
    def bytes_per_second(self) -> float:
        """``bandwidth`` in bytes per second; infinity if it is unlimited."""
        return units.bytes_per_second(self.bandwidth or "unlimited")


def _as_between(value: object) -> object:
    """Return a Link, or one per level, from YAML mappings; errors name its own fields."""
    if isinstance(value, list | tuple):
        links = tuple(_as_between(one) for one in value)
        return links[0] if len(links) == 1 else links
    if value is None or isinstance(value, Link):
        return value
    if not isinstance(value, Mapping):
        raise SpecError("write a Link, such as Link(latency='1 ms', bandwidth='1 Gbit/s')")
    return Link(**{str(key): one for key, one in value.items()})


def _as_levels(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise SpecError("write ranks of a host, then hosts: (4, 2) is two hosts of four ranks")
    if len(value) > MOST_LEVELS:
        raise SpecError(f"{len(value):,} levels, and {MOST_LEVELS} are the most")
    return value


class Network(FrozenModel):
    """Emulated links: they pace our transports, on top of what the machine needs anyway.

    Every pair of ranks has links of its own, between hosts too. What all of a host's links to other
    hosts carry together is limited by ``nic``, the host's network card, and what all hosts send to
    each other by ``switch``.
    """

    latency: Duration = Field(default="0 ms", description="added to each message of every link")
    bandwidth: Bandwidth = Field(
        default="unlimited", description="at most this on every link, each way"
    )
    links: Annotated[dict[Pair, Link], AfterValidator(Fixed)] = Field(
        default_factory=Fixed,
        description='links that differ, by direction: (0, 1), in YAML "0->1"',
    )
    levels: Annotated[tuple[Count, ...], BeforeValidator(_as_levels)] = Field(
        default=(),
        description="which ranks share a host: ranks of a host, then hosts (and groups of hosts), "
        "(4, 2) is two hosts of four; left out: nothing is known of hosts",
    )
    between: Annotated[Link | tuple[Link, ...] | None, BeforeValidator(_as_between)] = Field(
        default=None,
        description="links between hosts, where these differ from those inside: a Link, or one for "
        "each level above the first",
    )
    nic: Bandwidth = Field(
        default="unlimited",
        description="at most this through each host's network card, each way: its ranks share it, "
        "and so do all that send to them; without levels each rank is a host",
    )
    switch: Bandwidth = Field(
        default="unlimited",
        description="at most this through the switch that joins the hosts, all together; less than "
        "their network cards carry at once is oversubscribed; without levels each rank is a host",
    )

    @field_serializer("links", when_used="json")
    def _links_by_arrow(self, links: dict[tuple[int, int], Link]) -> dict[str, Link]:
        return {f"{sender}->{receiver}": link for (sender, receiver), link in links.items()}

    @model_validator(mode="after")
    def _no_link_to_itself(self) -> Self:
        for sender, receiver in self.links:
            if sender == receiver:
                raise SpecError.at(
                    ("links", f"{sender}->{receiver}"),
                    "a link goes from one rank to another; what a rank sends to itself does not "
                    "travel",
                )
        return self

    @model_validator(mode="after")
    def _a_link_for_each_level(self) -> Self:
        if self.between is None:
            return self
        if len(self.levels) < 2:
            raise SpecError.at(
                "between",
                f"{topology.words(self.levels) or 'no hosts'}: there is nothing between hosts. Say "
                "first which ranks share a host, such as two hosts of four",
                self.between,
                remedy="That is levels=(4, 2)",
            )
        if isinstance(self.between, tuple) and len(self.between) != len(self.levels) - 1:
            raise SpecError.at(
                "between",
                f"has {len(self.between)} links, and {topology.words(self.levels)} need "
                f"{len(self.levels) - 1}: one for each level above the first, or one for all",
                self.between,
            )
        return self

    @checked
    def link(self, sender: Number, receiver: Number) -> Link:
        """Return the link from ``sender`` to ``receiver``, with latency and bandwidth filled in.

        It is the pair's own of ``links``, else that between their hosts, else the default.
        """
        usual = self.at(topology.level(self.levels, sender, receiver))
        link = self.links.get((sender, receiver), usual)
        return Link(
            latency=link.latency or usual.latency,
            bandwidth=link.bandwidth or usual.bandwidth,
            down=link.down,
        )

    @property
    def nic_bytes_per_second(self) -> float:
        """``nic`` in bytes per second; infinity if it is unlimited."""
        return units.bytes_per_second(self.nic)

    @property
    def switch_bytes_per_second(self) -> float:
        """``switch`` in bytes per second; infinity if it is unlimited."""
        return units.bytes_per_second(self.switch)

    @property
    def ranks_per_nic(self) -> int:
        """The number of ranks that share a host, and so its network card."""
        return self.levels[0] if self.levels else 1

    @checked
    def at(self, level: Number) -> Link:
        """Return the links between ranks that differ at this level, 0 inside a host, filled in.

        Links with an entry of their own are left out.
        """
        between = self.between if isinstance(self.between, tuple) else (self.between or Link(),)
        far = between[min(level, len(between)) - 1] if level else Link()
        return Link(
            latency=far.latency or self.latency,
            bandwidth=far.bandwidth or self.bandwidth,
            down=far.down,
        )
