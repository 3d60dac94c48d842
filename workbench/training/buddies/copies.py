"""Buddy copies: at the boundaries between iterations each rank gives the next one a copy of what it
trains, and keeps one itself.

    boundary    iteration i is done on this rank, and i + 1 has not begun
    lost rank   a new process takes its place and receives the copy from the next rank
    survivors   go back to the newest boundary that all have, and do what followed again

Two boundaries are kept: ranks may be at either side of one, and an iteration needs all of them.

Source Zheng, Shi & Kalé, "FTC-Charm++: An In-Memory Checkpoint-Based Fault Tolerant Runtime for
       Charm++ and MPI", CLUSTER 2004: each processor's checkpoint is in a buddy's memory.
Cost   at each boundary a rank sends and receives parameters and optimizer state, and waits
       for it; in memory four times as much, for two boundaries of its own and of its neighbor's.
Law    The result is equal to the bit to that of an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from workbench.checkpoints import random_state
from workbench.checkpoints.folder import newest
from workbench.checkpoints.parts import Snapshot
from workbench.common.errors import CheckpointError, RankError, StateLost
from workbench.rank.readiness import meet_at_end
from workbench.rank.take_over import Before, InMemory, exchange, resume_losses
from workbench.recording.events import CODE, Where, now
from workbench.store.recoveries import REGAINED
from workbench.training.parameter_servers.moving import finish, receive, send

if TYPE_CHECKING:
    from workbench.rank.job import Job

KEPT = 2  # boundaries
COPY = "buddy copy"  # the name of its messages in the records


@dataclass
class Copies:
    """The copies that a rank has: its own and its neighbor's, by boundary. ``facts``: what all
    ranks have agreed on, and a new process is to be told.
    """

    own: dict[int, Snapshot] = field(default_factory=dict)
    neighbors: dict[int, Snapshot] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


class Buddies:
    """The copies of one rank's job."""

    def __init__(self, job: Job, every: int) -> None:
        """Prepare. ``every``: iterations between two copies; 0: none."""
        self._job, self._every = job, every
        self._recovers = job.goes_on_from_memory and job.ranks > 1
        self._copies, self._begun = Copies(), False
        past = job.past.carried if job.past is not None else None
        self._past = past if isinstance(past, Copies) else Copies()
        if self._recovers:
            job.take_over, job.carried = self._take_over, self._copies
        if self._recovers and job.ranks != job.exp.ranks:
            raise RankError(
                f"each of the {job.exp.ranks} ranks has a part of the model, and {job.ranks} went "
                "on: a recovery policy returns failure.replace() or failure.restart()",
                job.run_rank,
            )

    def agreed(self, name: str) -> str:
        """Return what the generation before had agreed on under this name; "": nothing. All ranks
        call it.
        """
        if not self._recovers or self._job.team.state != "memory":
            return ""
        texts = exchange(self._job, f"agreed {name}", self._past.facts.get(name, ""))
        return next(filter(None, texts), "")

    def agree(self, name: str, fact: str) -> None:
        """Keep what all ranks have agreed on, for the next generation."""
        self._copies.facts[name] = fact

    def begin(self, iteration: int) -> None:
        """Copy what there is before the first iteration of a generation."""
        if self._recovers and self._every and not self._begun:
            self._begun = True  # all of them: a new process has no copy of its neighbor's
            self._copy(iteration)

    def end(self, iteration: int) -> None:
        """Copy what there is after this iteration, if it is due."""
        if self._recovers and self._every and (iteration + 1) % self._every == 0:
            self._copy(iteration + 1)

    def meet(self) -> None:
        """Wait for all at the end: until then each may be needed once more."""
        if self._recovers:
            meet_at_end(self._job, self._job.metrics_group())

    def _copy(self, boundary: int) -> None:
        """Give the next rank a copy, and take that of the one before."""
        job, group, copies = self._job, self._job.group("buddies"), self._copies
        copies.own[boundary] = _snapshot(job)
        _forget(copies.own)
        with job.label(COPY):
            sent = send(copies.own[boundary], {}, (job.rank + 1) % job.ranks, group)
            copies.neighbors[boundary], _ = receive((job.rank - 1) % job.ranks, group)
            finish(sent)
        _forget(copies.neighbors)

    # -- after a loss --

    def _take_over(self, job: Job, before: Before | None) -> int:
        """Go back to the newest boundary that all have, or that the last checkpoint has; to the
        beginning where there is none yet.

        Raises StateLost where neither is left of a rank.
        """
        start, past, ranks = now(), self._past, job.ranks
        job.group("buddies")  # all ranks make it, whether they use it or not
        offer = {
            "own": [*past.own],
            "neighbors": [*past.neighbors],
            "completed": 0 if before is None else before.completed,
            "history": {} if before is None else before.history,
            "checkpoint": _newest_checkpoint(job) if job.rank == 0 else "",
        }
        offers = [json.loads(one) for one in exchange(job, "boundaries", json.dumps(offer))]
        having = [
            {*one["own"], *offers[(r + 1) % ranks]["neighbors"]} for r, one in enumerate(offers)
        ]
        common = set.intersection(*having)
        begins = "resumed" not in job.prepared and not any(one["completed"] for one in offers)
        if not common and begins:
            resume_losses(job, before, 0)
            return 0  # no rank had done an iteration: all have what a run begins with
        if not common:
            return self._from_checkpoint(offers[0]["checkpoint"], having)
        boundary: int = max(common)
        receives = [r for r, one in enumerate(offers) if boundary not in one["own"]]
        snapshot, nbytes = self._moved(boundary, receives)
        self._copies.own[boundary] = snapshot
        if boundary in past.neighbors:
            self._copies.neighbors[boundary] = past.neighbors[boundary]
        with torch.no_grad():
            job.parts.put_back(InMemory(snapshot))
        random_state.put_back(InMemory(snapshot), job.device, job.seed)
        job.history = next((one["history"] for one in offers if one["history"]), {})
        resume_losses(job, before, boundary)
        lane = job.recorder.lane("compute")
        lane.context(where=Where(boundary))
        name = job.recorder.name("received" if nbytes else "kept")
        lane.write(CODE["restore"], start, now(), nbytes=nbytes or -1, name=name)
        self._tell(boundary, receives, snapshot)
        return boundary

    def _moved(self, boundary: int, receives: list[int]) -> tuple[Snapshot, int]:
        """Send the neighbor its copy, receive this rank's where it has none."""
        job, past, group = self._job, self._past, self._job.group("buddies")
        with job.label(COPY):
            if (before := (job.rank - 1) % job.ranks) in receives:
                finish(send(past.neighbors[boundary], {}, before, group))
            if job.rank not in receives:
                return past.own[boundary], 0
            snapshot, _ = receive((job.rank + 1) % job.ranks, group)
            return snapshot, snapshot.nbytes

    def _from_checkpoint(self, folder: str, having: list[set[int]]) -> int:
        job = self._job
        if not folder:
            lost = [job.session.run_rank(r) for r, one in enumerate(having) if not one]
            raise StateLost(
                f"what ranks {lost} trained is lost: the ranks with a copy of it have ended too, "
                "and there is no checkpoint. Write some: checkpoint=wb.Checkpoint(...)",
                min(lost, default=-1),
                found_by=job.run_rank,
            )
        job.prepared["checkpoint"], job.checkpoints.resumed = folder, True
        first = int(job.checkpoints.put_back())
        job.begun = first
        if job.rank == 0:
            self._tell_of(first, [], "checkpoint")
        return first

    def _tell(self, boundary: int, receives: list[int], snapshot: Snapshot) -> None:
        """Tell the run where it goes on, and which rank received what."""
        if self._job.rank == 0:
            ranks, run_rank = self._job.ranks, self._job.session.run_rank
            elements = sum(one.numel() for one in snapshot.tensors.values())
            each = [
                {
                    "source": "buddy",
                    "server": run_rank(rank),
                    "holder": run_rank((rank + 1) % ranks),
                    "owner": run_rank(rank),
                    "elements": elements,
                    "version": boundary,
                    "updates_lost": 0,
                }
                for rank in receives
            ]
            self._tell_of(boundary, each)

    def _tell_of(self, iteration: int, each: list[dict[str, Any]], state: str = "memory") -> None:
        facts = {"iteration": iteration, "from": each, "go_on": [], "state": state}
        self._job.tell({f"{REGAINED} {self._job.team.generation}": json.dumps(facts)})


def _snapshot(job: Job) -> Snapshot:
    """Return a copy of what this rank trains, and of its random generators."""
    result = job.parts.snapshot(everything=True).copy()
    tensors, values = random_state.capture(job.device)
    result.tensors |= {key: value.clone() for key, value in tensors.items()}
    result.values[random_state.NAME] = [values]
    return result


def _forget(copies: dict[int, Snapshot]) -> None:
    """Drop copies that no rank can need."""
    for boundary in sorted(copies)[:-KEPT]:
        del copies[boundary]


def _newest_checkpoint(job: Job) -> str:
    if job.exp.checkpoint is not None:
        with contextlib.suppress(CheckpointError):  # none was written yet
            return str(newest(Path(job.exp.checkpoint.folder).absolute())[0].path)
    return job.prepared.get("resumed", "")
