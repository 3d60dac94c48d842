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

from workbench import hosts, units
from workbench.errors import SpecError
from workbench.record import Bandwidth, Count, Duration, Fixed, Rank, Record, short


def _as_pair(value: object) -> object:
    """(0, 1) and "0->1" mean the same."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+)\s*->\s*(\d+)\s*", value)
        if not found:
            raise SpecError('a link is named "0->1": from rank 0 to rank 1')
        return int(found[1]), int(found[2])
    return value


Pair = Annotated[
    tuple[Rank, Rank],
    BeforeValidator(_as_pair),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+->[0-9]+$"}),
]


class Link(Record):
    """One direction between two ranks. What it leaves out is as in the Network."""

    latency: Duration | None = Field(
        default=None, description="added to each message, such as '5 ms'"
    )
    bandwidth: Bandwidth | None = Field(
        default=None, description="at most this, such as '100 Mbit/s'"
    )
    down: bool = Field(default=False, description="nothing passes: contact is lost")

    @property
    def latency_ns(self) -> int:
        """``latency`` in nanoseconds."""
        return units.duration_ns(self.latency or "0 ms")

    @property
    def bytes_per_second(self) -> float:
        """``bandwidth`` in bytes a second; infinity if it is unlimited."""
        return units.bytes_per_second(self.bandwidth or "unlimited")


def _as_between(value: object) -> object:
    """A Link, or one a level, in YAML as mappings; what is wrong is said of its own fields."""
    if isinstance(value, list | tuple):
        links = tuple(_as_between(one) for one in value)
        return links[0] if len(links) == 1 else links
    if value is None or isinstance(value, Link):
        return value
    if not isinstance(value, Mapping):
        raise SpecError("write a Link, such as Link(latency='1 ms', bandwidth='1 Gbit/s')")
    try:
        return Link(**{str(key): one for key, one in value.items()})
    except SpecError as error:
        raise SpecError(str(error).replace("Link.", "")) from None


def _as_levels(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise SpecError("write ranks of a host, then hosts: (4, 2) is two hosts of four ranks")
    return value


class Network(Record):
    """Emulated links: they pace our transports, on top of what the machine needs anyway.

    Every pair of ranks has links of its own, between hosts too: none shares a host's cable.
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

    @field_serializer("links", when_used="json")
    def _links_by_arrow(self, links: dict[tuple[int, int], Link]) -> dict[str, Link]:
        return {f"{sender}->{receiver}": link for (sender, receiver), link in links.items()}

    @model_validator(mode="after")
    def _no_link_to_itself(self) -> Self:
        for sender, receiver in self.links:
            if sender == receiver:
                raise SpecError(
                    f'Network.links["{sender}->{receiver}"]: a link goes from one rank to another; '
                    "what a rank sends to itself does not travel"
                )
        return self

    @model_validator(mode="after")
    def _a_link_for_each_level(self) -> Self:
        if self.between is None:
            return self
        if len(self.levels) < 2:
            raise SpecError(
                f"Network.between = {short(self.between)}: say which ranks share a host, such as "
                f"levels=(4, 2), two hosts of four; levels={self.levels} has nothing between hosts"
            )
        if isinstance(self.between, tuple) and len(self.between) != len(self.levels) - 1:
            raise SpecError(
                f"Network.between = {short(self.between)}: has {len(self.between)} links, and "
                f"levels={self.levels} has {len(self.levels) - 1} above the first: one link for "
                "each, or one for all"
            )
        return self

    def link(self, sender: int, receiver: int) -> Link:
        """The link from ``sender`` to ``receiver``, with latency and bandwidth filled in: its own
        of ``links``, else that between their hosts, else as all are.
        """
        usual = self.at(hosts.level(self.levels, sender, receiver))
        own = self.links.get((sender, receiver), usual)
        return Link(
            latency=own.latency or usual.latency,
            bandwidth=own.bandwidth or usual.bandwidth,
            down=own.down,
        )

    def at(self, level: int) -> Link:
        """The links between ranks that differ at this level, 0 inside a host: filled in, and
        without those that have a line of their own.
        """
        between = self.between if isinstance(self.between, tuple) else (self.between or Link(),)
        far = between[min(level, len(between)) - 1] if level else Link()
        return Link(
            latency=far.latency or self.latency,
            bandwidth=far.bandwidth or self.bandwidth,
            down=far.down,
        )
