"""A parameter server's ranks after one was lost: they offer what they have, agree on a plan, send
each other keys, and go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from workbench.checkpoints.folder import newest_path, read_manifest
from workbench.checkpoints.parts import Snapshot
from workbench.checkpoints.rows import Rows
from workbench.checkpoints.saved import Saved
from workbench.common.errors import CheckpointError
from workbench.rank.moving import finish, receive, send
from workbench.rank.take_over import Before, TakeOver, exchange
from workbench.training.parameter_servers.holding import (
    PARAMETERS,
    Carried,
    HandedOver,
    Holding,
    Pulled,
    Region,
    narrow,
)
from workbench.training.parameter_servers.regaining import Piece, Plan, Take, make_plan

if TYPE_CHECKING:
    from workbench.rank.job import Job


_SERVER, _WORKER, _BESIDE = "server", "worker", "beside"


@dataclass(frozen=True)
class Regain:
    """The facts of a generation that taking over needs.

    ``owned``: the keys of each server (its rank in the run). ``initial_N``: all keys, as they were
    in the beginning.
    """

    owned: Mapping[int, Sequence[range]]
    initial_N: torch.Tensor
    synchronous: bool
    otherwise: str  # "pull" or "checkpoint"

    @property
    def total(self) -> int:
        """The number of all keys."""
        return len(self.initial_N)


@dataclass(frozen=True)
class _Offered:
    piece: Piece
    holding: Holding | HandedOver | Pulled

    def snapshot(self, back: bool) -> Snapshot:
        if isinstance(self.holding, Pulled) or not back:
            return self.holding.snapshot()
        assert self.holding.previous is not None
        return self.holding.previous.snapshot


class Served(TakeOver):
    """The plan where servers have what is trained. ``own``: the new holding of a server, which is
    filled; None on a worker.
    """

    job: Job
    plan_made: Plan

    def __init__(
        self, job: Job, before: Before | None, regain: Regain, own: Holding | None
    ) -> None:
        super().__init__(job, before)
        self._regain, self._own = regain, own
        carried = before.carried if before is not None else None
        offered = _offers(job.run_rank, carried) if isinstance(carried, Carried) else ()
        self._offered = {one.piece.number: one for one in offered}

    def offer(self) -> dict[str, Any]:
        job = self.job
        return {
            "rank": job.run_rank,
            "role": _WORKER if self._own is None else _SERVER,
            "said": {},
            "at": self.completed,
            "history": self.history,
            "pieces": [one.piece.as_fields() for one in self._offered.values()],
            "checkpoint": newest_path(job.exp.checkpoint) if job.rank == 0 else "",
        }

    def plan(self, offers: list[Any]) -> bool:
        job, regain = self.job, self._regain
        self.plan_made = plan = make_plan(
            regain.owned,
            [Piece.from_fields(each) for one in offers for each in one["pieces"]],
            {one["rank"]: one["at"] for one in offers if one["role"] == _WORKER},
            synchronous=regain.synchronous,
            otherwise=regain.otherwise,  # type: ignore[arg-type]
        )
        self._folder = offers[0]["checkpoint"]
        job.history = next((one["history"] for one in offers if one["history"]), {})
        self.iteration = plan.go_on.get(job.run_rank, plan.iteration)
        self.version = plan.version
        return True

    def move(self) -> int:
        """Send what others take from this rank, receive what it takes, the best first."""
        job, plan, regain = self.job, self.plan_made, self._regain
        group, place = job.group("recovery"), job.team.members.index
        sent = []
        self._received = received = list[tuple[Take, Snapshot]]()
        for take in plan.takes:
            if take.piece is None or take.piece.rank != job.run_rank:
                continue
            part = narrow(self._offered[take.piece.number].snapshot(take.back), _rows(take, regain))
            if take.owner == job.run_rank:
                received.append((take, part))
            else:
                sent += send(part, {}, place(take.owner), group, tag=take.piece.number)
        lacking = [take for take in plan.takes if self._lacks(take)]
        for take in lacking:
            if take.piece is None:
                received.append((take, _from_file(take, regain, self._folder)))
            else:
                frm = place(take.piece.rank)
                received.append((take, receive(frm, group, tag=take.piece.number)[0]))
        finish(sent)
        size = torch.finfo(job.dtype).bits // 8
        return size * sum(map(_count, lacking))

    def _lacks(self, take: Take) -> bool:
        """Return whether this rank is to have these keys, and has not."""
        me = self.job.run_rank
        return take.owner == me and (take.piece is None or take.piece.rank != me)

    def put_back(self) -> None:
        """Make a server's new keys what it has received, and had."""
        if (own := self._own) is not None:
            fresh = own.snapshot().copy()
            own.parts.put_back(Merged([part for _, part in self._received], fresh))
            plan = self.plan_made
            regions = [
                Region(_rows(take, self._regain), plan.clock_of(take)) for take, _ in self._received
            ]
            own.begin(regions, plan.version)

    def facts(self) -> dict[str, Any]:
        plan, folder = self.plan_made, self._folder
        version, saved = _version_of(folder) if folder else (0, 0)
        each = [
            {
                "source": "beginning" if one.piece is None and not folder else one.kind,
                "server": -1 if one.piece is None else one.piece.of,
                "holder": -1 if one.piece is None else one.piece.rank,
                "owner": one.owner,
                "elements": _count(one),
                "updates_lost": plan.updates_lost(one, saved),
                "version": version if one.piece is None else one.piece.version - one.back,
            }
            for one in plan.restored
        ]
        return {"iteration": plan.iteration, "from": each, "go_on": list(plan.go_on.items())}


class _Beside(Served):
    """A rank that neither serves nor pushes: it only says something to others of its kind."""

    def __init__(self, job: Job, facts: Mapping[str, Any]) -> None:
        nothing = Regain({}, torch.empty(0), synchronous=False, otherwise="pull")
        super().__init__(job, None, nothing, None)
        self._report = facts

    def offer(self) -> dict[str, Any]:
        return super().offer() | {"role": _BESIDE, "said": self._report}


def attend(job: Job, facts: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Take part in a take-over as a rank that neither serves nor pushes. ``facts``: its report to
    the other ranks of that kind, which JSON can hold. Returns their reports by rank.
    """
    beside = _Beside(job, facts)
    texts = exchange(job, beside.name, json.dumps(beside.offer()))
    job.group("recovery")  # all ranks make it
    offers = [json.loads(one) for one in texts]
    return {one["rank"]: one["said"] for one in offers if one["role"] == _BESIDE}


def _offers(rank: int, carried: Carried) -> Iterator[_Offered]:
    """Yield what a rank has taken along."""
    number = 0
    for generation, one in carried.all_holdings():
        kind: Any = "own" if one.server == rank else "replica"
        version = one.version
        undoes = one.previous is not None
        for region in one.regions:
            ranges = region.rows.ranges
            piece = Piece(
                rank,
                kind,
                one.server,
                number,
                generation,
                version,
                ranges,
                dict(region.clock),
                undoes,
            )
            yield _Offered(piece, one)
            number += 1
    if (pulled := carried.pulled) is not None:
        for server, part in pulled.parts.items():
            version, ranges = part.version, part.rows.ranges
            piece = Piece(
                rank, "pull", server, number, pulled.generation, version, ranges, part.clock
            )
            yield _Offered(piece, pulled)
            number += 1


def _from_file(take: Take, regain: Regain, folder: str) -> Snapshot:
    """Return keys as the last checkpoint has them, or as they were in the beginning."""
    rows = _rows(take, regain)
    if take.kind == "beginning" or not folder:
        whole = Rows.whole(regain.total)
        return narrow(Snapshot({PARAMETERS: regain.initial_N}, {PARAMETERS: whole}), rows)
    saved = Saved(read_manifest(Path(folder)), 0, 0)
    return saved.snapshot(regain.total, rows)


def _rows(take: Take, regain: Regain) -> Rows:
    return Rows(regain.total, take.ranges)


class Merged:
    """Snapshots of some keys each, with the methods with which parts read a checkpoint: what one
    lacks, another has. ``fresh``: what a new shard has, where none of them has it.
    """

    def __init__(self, snapshots: Sequence[Snapshot], fresh: Snapshot) -> None:
        self._all = sorted(snapshots, key=lambda one: "optimizer" not in one.values)
        self._fresh = fresh
        self.manifest, self.path = self, Path("the survivors' memory")  # errors name them

    def all(self, name: str) -> list[Any]:
        """Return what was kept under this name."""
        values = [value for one in self._all for value in one.values.get(name, [])]
        return values or self._fresh.values.get(name, [])

    def own_tensor(self, key: str) -> torch.Tensor | None:
        """Return a tensor as the first has it."""
        return next((one.tensors[key] for one in self._all if key in one.tensors), None)

    def tensor(self, key: str, rows: Rows | None = None) -> torch.Tensor:
        """Return these rows of a tensor; those that no rank has are 0, as in a new optimizer.

        Raises CheckpointError for a part that no rank has.
        """
        first = self.own_tensor(key)
        if first is None:
            raise CheckpointError(f"{self.path} has no tensor {key!r}")
        if rows is None:
            return first
        whole = torch.zeros(len(rows), dtype=first.dtype)
        for one in reversed(self._all):
            held = one.rows.get(key)
            for to, start, count in rows.shared_with(held) if held is not None else ():
                whole[to : to + count] = one.tensors[key][start : start + count]
        return whole


def _version_of(folder: str) -> tuple[int, int]:
    """Return the version of the shards in a checkpoint, and its iteration."""
    saved = Saved(read_manifest(Path(folder)), 0, 0)
    versions = [int(dict(one["dict"])["version"]) for one in saved.all("shard")]
    return max(versions), saved.iteration


def _count(take: Take) -> int:
    return sum(stop - start for start, stop in take.ranges)
