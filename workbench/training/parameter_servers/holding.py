"""The state of one server's keys, as a rank holds it: the server itself, or a server further down
its replica chain; and the copy of all keys that a worker keeps of its latest pull.

A *region* is a part of the keys for which the same pushes have been applied. There is one, until a
server is lost and its keys come from elsewhere: then a worker may do an iteration again whose push
one region has and another lacks. Each region takes it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.checkpoints.parts import Parts, Snapshot, tensors
from workbench.checkpoints.rows import Rows
from workbench.rank.take_over import InMemory
from workbench.training.parameter_servers.shard import Shard

PARAMETERS = "parameters"  # the part's name in checkpoints


@dataclass
class Region:
    """Some keys, and for each worker (its rank in the run) the iterations whose push they have."""

    rows: Rows
    clock: dict[int, int]


@dataclass(frozen=True)
class Previous:
    """The state before the last update."""

    snapshot: Snapshot
    clock: int  # of all workers: only synchronous updates are undone
    version: int


class Holding:
    """A shard of one server, with what another rank needs to take it over.

    ``server``: the rank in the run whose keys they are. ``undoes``: keep the state before the last
    update, for workers in lockstep.
    """

    def __init__(self, server: int, shard: Shard, rows: Rows, parts: Parts, undoes: bool) -> None:
        self.server, self.shard, self.rows, self.parts = server, shard, rows, parts
        self.regions: list[Region] = []
        self.previous: Previous | None = None
        self._undoes = undoes

    @property
    def version(self) -> int:
        """The updates that it has."""
        return self.shard.version

    def begin(self, regions: Sequence[Region], version: int) -> None:
        """Begin with these regions; there is nothing to undo yet."""
        self.regions, self.shard.version, self.previous = list(regions), version, None

    def snapshot(self) -> Snapshot:
        """Return the state as it stands now."""
        return self.parts.snapshot(everything=True)

    def put_back(self, snapshot: Snapshot) -> None:
        """Make the state that of a snapshot of the same keys."""
        with torch.no_grad():
            self.parts.put_back(InMemory(snapshot))

    def applies(self, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]) -> None:
        """Prepare for an update by these workers' push of this iteration: zero the gradient where
        a region has it.
        """
        if self._undoes:
            version = self.shard.version
            self.previous = Previous(self.snapshot().copy(), iteration, version)
        for region in self.regions:
            if any(region.clock[worker] > iteration for worker in workers):
                for at, _, count in self.rows.shared_with(region.rows):
                    gradient_n[at : at + count] = 0

    def counts(self, iteration: int, workers: Collection[int]) -> None:
        """Note that these workers' push of this iteration is in, or was dropped."""
        for region in self.regions:
            for worker in workers:
                region.clock[worker] = max(region.clock[worker], iteration + 1)


@dataclass(frozen=True)
class HandedOver:
    """The keys of a server that was told to go, as it gave them to this rank before it went."""

    server: int
    state: Snapshot
    regions: list[Region]
    version: int
    previous: Previous | None = None  # nothing is to be undone: no push was on its way

    def snapshot(self) -> Snapshot:
        """Return their state."""
        return self.state


@dataclass(frozen=True)
class PulledPart:
    """A server's keys in a pull: their version, and the iterations of each worker (its rank in the
    run) that are in it.
    """

    rows: Rows
    version: int
    clock: Mapping[int, int]


@dataclass
class Pulled:
    """A worker's copy of all keys, from its latest pull that was whole.

    ``parts``: for each server (its rank in the run) what it sent.
    """

    values_N: torch.Tensor
    iteration: int = -1
    generation: int = 0
    parts: dict[int, PulledPart] = field(default_factory=dict)

    def keep(
        self,
        values_N: torch.Tensor,
        iteration: int,
        generation: int,
        parts: Mapping[int, PulledPart],
    ) -> None:
        """Copy the parameters of a pull."""
        self.values_N.copy_(values_N)
        self.iteration, self.generation, self.parts = iteration, generation, dict(parts)

    def snapshot(self) -> Snapshot:
        """Return it as a shard's snapshot would be, but for the optimizer."""
        rows = Rows.whole(len(self.values_N))
        return Snapshot({PARAMETERS: self.values_N}, {PARAMETERS: rows})


@dataclass
class Carried:
    """The state that a rank takes along to the next generation.

    ``older``: the state that it took along to this generation, kept until all servers have their
    part of it. ``beside``: the strategy's own state.
    """

    generation: int
    holdings: list[Holding | HandedOver] = field(default_factory=list)
    pulled: Pulled | None = None
    older: Carried | None = None
    beside: Any = None

    def all_holdings(self) -> Iterator[tuple[int, Holding | HandedOver]]:
        """Yield the holdings with their generation, newest first."""
        for one in self.holdings:
            yield self.generation, one
        if self.older is not None:
            yield from self.older.all_holdings()


def narrow(snapshot: Snapshot, rows: Rows) -> Snapshot:
    """Return a copy of these rows of a snapshot, with all else that it has."""
    result = Snapshot(values=snapshot.values)
    for key, tensor in snapshot.tensors.items():
        held = snapshot.rows.get(key)
        if held is None:
            result.tensors[key], result.rows[key] = tensor.clone(), None
            continue
        result.tensors[key] = part = torch.empty(len(rows), dtype=tensor.dtype)
        result.rows[key] = rows
        for to, start, count in rows.shared_with(held):
            part[to : to + count] = tensor[start : start + count]
    return result


def keep_shard(parts: Parts, shard: Shard, rows: Rows, of: str = "") -> None:
    """Have a shard in checkpoints, and in snapshots."""
    parts.keep(f"{PARAMETERS}{of}", tensors(lambda: {"": (shard.parameter, rows)}), "divided")
    parts.keep(f"optimizer{of}", shard.optimizer, "divided")
    parts.keep(f"shard{of}", shard, "divided")
