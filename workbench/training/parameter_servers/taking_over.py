"""A parameter server's ranks after one was lost: they offer what they have, agree on a plan, send
each other keys, and go on.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from workbench.checkpoints.folder import newest, read_manifest
from workbench.checkpoints.parts import Snapshot
from workbench.checkpoints.rows import Rows
from workbench.checkpoints.saved import Saved
from workbench.common.errors import CheckpointError
from workbench.rank.take_over import Before, exchange, resume_losses
from workbench.recording.events import CODE, Where, now
from workbench.store.recoveries import REGAINED
from workbench.training.parameter_servers.holding import (
    PARAMETERS,
    Carried,
    HandedOver,
    Holding,
    Pulled,
    Region,
    narrow,
)
from workbench.training.parameter_servers.moving import finish, receive, send
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


def take_over(job: Job, before: Before | None, regain: Regain, own: Holding | None) -> Plan:
    """Offer, plan, send and receive. ``own``: the new holding of a server, which is filled; None on
    a worker. Returns the plan.
    """
    start = now()
    carried = before.carried if before is not None else None
    offered = [*_offers(job.run_rank, carried)] if isinstance(carried, Carried) else []
    offers = _exchanged(job, before, offered, _WORKER if own is None else _SERVER)
    at = {one["rank"]: one["at"] for one in offers if one["role"] == _WORKER}
    pieces = [Piece.from_fields(each) for one in offers for each in one["pieces"]]
    plan = make_plan(
        regain.owned,
        pieces,
        at,
        synchronous=regain.synchronous,
        otherwise=regain.otherwise,  # type: ignore[arg-type]
    )
    job.history = next((one["history"] for one in offers if one["history"]), {})
    resume_losses(job, before, plan.go_on.get(job.run_rank, plan.iteration))
    folder = offers[0]["checkpoint"]
    received = _move(job, plan, regain, {one.piece.number: one for one in offered}, own, folder)
    if own is not None:
        _put_back(own, plan, regain, received)
    _note(job, plan, start, folder)
    return plan


def attend(job: Job, facts: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Take part in a take-over as a rank that neither serves nor pushes. ``facts``: its report to
    the other ranks of that kind, which JSON can hold. Returns their reports by rank.
    """
    offers = _exchanged(job, None, [], _BESIDE, facts)
    job.group("recovery")  # all ranks make it
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


def _exchanged(
    job: Job,
    before: Before | None,
    offered: Sequence[_Offered],
    role: str,
    facts: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return what each rank offers, in order."""
    checkpoint = ""
    if job.rank == 0 and job.exp.checkpoint is not None:
        with contextlib.suppress(CheckpointError):  # none was written yet
            checkpoint = str(newest(Path(job.exp.checkpoint.folder).absolute())[0].path)
    offer = {
        "rank": job.run_rank,
        "role": role,
        "said": facts or {},
        "at": -1 if before is None else before.completed,
        "history": {} if before is None else before.history,
        "pieces": [one.piece.as_fields() for one in offered],
        "checkpoint": checkpoint,
    }
    return [json.loads(one) for one in exchange(job, "offers", json.dumps(offer))]


def _move(
    job: Job,
    plan: Plan,
    regain: Regain,
    mine: Mapping[int, _Offered],
    own: Holding | None,
    folder: str,
) -> list[tuple[Take, Snapshot]]:
    """Send what others take from this rank. Returns what this rank takes, the best first."""
    group, place = job.group("recovery"), job.team.members.index
    sent, result = [], []
    for take in plan.takes:
        if take.piece is None or take.piece.rank != job.run_rank:
            continue
        part = narrow(mine[take.piece.number].snapshot(take.back), _rows(take, regain))
        if take.owner == job.run_rank:
            result.append((take, part))
        else:
            sent += send(part, {}, place(take.owner), group, tag=take.piece.number)
    if own is not None:
        for take in (one for one in plan.takes if one.owner == job.run_rank):
            if take.piece is None:
                result.append((take, _from_file(take, regain, folder)))
            elif take.piece.rank != job.run_rank:
                frm = place(take.piece.rank)
                result.append((take, receive(frm, group, tag=take.piece.number)[0]))
    finish(sent)
    return result


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


def _put_back(
    own: Holding, plan: Plan, regain: Regain, received: Sequence[tuple[Take, Snapshot]]
) -> None:
    """Make a server's new keys what it has received, and had."""
    fresh = own.snapshot().copy()
    merged = Merged([part for _, part in received], fresh)
    with torch.no_grad():
        own.parts.put_back(merged)
    regions = [Region(_rows(take, regain), plan.clock_of(take)) for take, _ in received]
    own.begin(regions, plan.version)


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


def _note(job: Job, plan: Plan, start: int, folder: str) -> None:
    """Record what this rank has received, and tell the run from where keys came."""
    lane, recorder = job.recorder.lane("compute"), job.recorder
    mine = [one for one in plan.takes if one.owner == job.run_rank]
    kept = all(one.piece is not None and one.piece.rank == job.run_rank for one in mine)
    size = torch.finfo(job.dtype).bits // 8
    moved = sum(_count(one) for one in mine if one.piece is None or one.piece.rank != job.run_rank)
    lane.context(where=Where(plan.go_on.get(job.run_rank, plan.iteration), version=plan.version))
    name = recorder.name("kept" if kept else "received")
    lane.write(CODE["restore"], start, now(), nbytes=moved * size or -1, name=name)
    if job.rank == 0:
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
        facts = {"iteration": plan.iteration, "from": each, "go_on": list(plan.go_on.items())}
        job.tell({f"{REGAINED} {job.team.generation}": json.dumps(facts)})


def _version_of(folder: str) -> tuple[int, int]:
    """Return the version of the shards in a checkpoint, and its iteration."""
    saved = Saved(read_manifest(Path(folder)), 0, 0)
    versions = [int(dict(one["dict"])["version"]) for one in saved.all("shard")]
    return max(versions), saved.iteration


def _count(take: Take) -> int:
    return sum(stop - start for start, stop in take.ranges)
