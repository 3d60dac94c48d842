"""The group of a generation, which a rank joins, and leaves for the next when another is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from workbench.common.errors import (
    CorruptReplica,
    DataSourceDown,
    GroupClosed,
    PeerLost,
    WorkbenchError,
)
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.process_group import live_groups
from workbench.process_group.session import Session
from workbench.rank.job import Job
from workbench.rank.take_over import Before
from workbench.rank.unreachable import cut_off, evicts_unreachable
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import ABORT, LOST, READY, REGROUP, SPARE


@dataclass(frozen=True)
class Membership:
    """A rank's membership in a team, and what it has of the generation before."""

    team: Team
    rank: int  # in torch.distributed
    before: Before | None = None

    def prepared(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Return what the driver has prepared, with the checkpoint that this generation goes on
        from, if it does; where it does not, with the one that the run was ``resumed`` from.
        """
        result = dict(facts)
        if self.team.state == "memory" and "checkpoint" in result:
            result["resumed"] = result.pop("checkpoint")
        elif self.team.state == "checkpoint":
            result["checkpoint"] = self.team.checkpoint
        return result


def join(place: Membership, exp: Experiment, session: Session, store: Store) -> None:
    """Form the group of a generation, all its members at once.

    Raises RunTimeout, or WorkbenchError where another rank is lost meanwhile.
    """
    team, recorder = place.team, session.recorder
    session.regroup(team.generation, team.members, store)
    recorder.generation = team.generation
    start = now()
    dist.init_process_group(
        "workbench",
        store=PrefixStore(f"generation {team.generation}", store),
        rank=place.rank,
        world_size=len(team.members),
        timeout=timedelta(microseconds=exp.timeout_ns / 1000),
    )
    if team.generation:
        _mark(session, "rebuild", start, len(team.members))


def lost_peers(
    session: Session, error: BaseException, place: Membership, exp: Experiment
) -> WorkbenchError | None:
    """Return why this rank cannot go on in its generation although nothing is wrong with itself:
    another one was lost, cannot be reached, or is corrupt. None: the error is its own.
    """
    cause = live_groups.first_error() or error
    if not isinstance(cause, WorkbenchError):
        return None
    outdated = session.control is not None and session.control.words[LOST] > session.generation
    if isinstance(cause, DataSourceDown):
        return cause if cause.how == "left" else None
    if not exp.recovers:  # only where another waits for its data does such a run form a new group
        return cause if outdated else None
    if isinstance(cause, CorruptReplica):
        return cause if cause.replicas else None
    left = isinstance(cause, PeerLost | GroupClosed) or cause.how in ("aborted", "stopped")
    return cause if outdated or left or _is_cut(session, cause, place, exp) else None


def _is_cut(session: Session, cause: WorkbenchError, place: Membership, exp: Experiment) -> bool:
    """Return whether this rank waited in vain because a link is cut that the policy waits for."""
    if cause.how != "silent" or session.control is None or not evicts_unreachable(exp):
        return False
    return bool(cut_off(session.control, place.team.members))


def leave(
    job: Job | None, place: Membership, session: Session, rank: int, cause: WorkbenchError
) -> Before | None:
    """Give up the group of a generation. Returns what this rank takes along."""
    start = now()
    if _all_leave(session, cause):  # others may be in the last collective before the boundary
        live_groups.close_all()
    before = place.before if job is None or not job.begins else job.before()
    if job is not None:
        job.checkpoints.abandon()
    live_groups.forget_all()
    with contextlib.suppress(Exception):  # it knows sub-groups that were never made
        dist.destroy_process_group()
    # torch names groups by this number, and does not count back where making one has failed: the
    # keys of the next generation would differ from rank to rank.
    dist.distributed_c10d._world.group_count = 0
    if session.control is not None:
        for word in (READY, SPARE):
            session.control.set_rank(rank, word, 0)
    _mark(session, "abort", start)
    return before


def _all_leave(session: Session, cause: WorkbenchError) -> bool:
    """Return whether all ranks leave, each when it has come so far: because one more is to join, or
    a replica was found to differ.
    """
    if isinstance(cause, CorruptReplica):
        return True
    if session.control is None or cause.how != "aborted":
        return False
    words = session.control.words
    return words[REGROUP] > 0 and words[LOST] <= session.generation and not words[ABORT]


def _mark(session: Session, kind: str, start: int, value: float = float("nan")) -> None:
    recorder = session.recorder
    lane = recorder.lane("compute")
    lane.context(where=recorder.where if kind == "abort" else Where())
    lane.write(CODE[kind], start, now(), value=value)
