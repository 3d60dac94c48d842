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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.checkpoints import random_state
from workbench.checkpoints.folder import newest_path
from workbench.checkpoints.parts import Snapshot
from workbench.common.errors import RankError, StateLost
from workbench.rank.moving import finish, receive, send
from workbench.rank.readiness import meet_at_end
from workbench.rank.take_over import Before, InMemory, TakeOver, exchange, resume_losses

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

    def _take_over(self, job: Job, before: Before | None) -> int:
        return Divided(job, before, self._past, self._copies).take_over()

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


class Divided(TakeOver):
    """Goes back to the newest boundary that all have, or that the last checkpoint has; to the
    beginning where there is none yet.
    """

    name = "boundaries"
    job: Job

    def __init__(self, job: Job, before: Before | None, past: Copies, copies: Copies) -> None:
        """Prepare. ``past``: the copies from before the loss, ``copies``: those to go on with."""
        super().__init__(job, before)
        self._past, self._copies = past, copies

    def offer(self) -> dict[str, Any]:
        job, past = self.job, self._past
        job.group("buddies")  # all ranks make it, whether they use it or not
        return {
            "own": [*past.own],
            "neighbors": [*past.neighbors],
            "completed": max(self.completed, 0),
            "history": self.history,
            "checkpoint": _newest_checkpoint(job) if job.rank == 0 else "",
        }

    def plan(self, offers: list[Any]) -> bool:
        """Choose the boundary. Raises StateLost where nothing is left of a rank."""
        job = self.job
        having = [
            {*one["own"], *offers[(r + 1) % job.ranks]["neighbors"]} for r, one in enumerate(offers)
        ]
        if common := set.intersection(*having):
            self.iteration = max(common)
            self._receives = [r for r, one in enumerate(offers) if self.iteration not in one["own"]]
            job.history = next((one["history"] for one in offers if one["history"]), {})
        elif "resumed" not in job.prepared and not any(one["completed"] for one in offers):
            resume_losses(job, self.before, 0)  # all have what a run begins with
        else:
            self._from_checkpoint(offers[0]["checkpoint"], having)
        return bool(common)

    def move(self) -> int:
        """Send the neighbor its copy, receive this rank's where it has none."""
        job, past, boundary, group = self.job, self._past, self.iteration, self.job.group("buddies")
        received = 0
        with job.label(COPY):
            if (before := (job.rank - 1) % job.ranks) in self._receives:
                finish(send(past.neighbors[boundary], {}, before, group))
            if job.rank not in self._receives:
                self._snapshot = past.own[boundary]
            else:
                self._snapshot, _ = receive((job.rank + 1) % job.ranks, group)
                received = self._snapshot.nbytes
        self._copies.own[boundary] = self._snapshot
        if boundary in past.neighbors:
            self._copies.neighbors[boundary] = past.neighbors[boundary]
        return received

    def put_back(self) -> None:
        self.job.parts.put_back(InMemory(self._snapshot))
        random_state.put_back(InMemory(self._snapshot), self.job.device, self.job.seed)

    def facts(self) -> dict[str, Any]:
        ranks, run_rank = self.job.ranks, self.job.session.run_rank
        elements = sum(one.numel() for one in self._snapshot.tensors.values())
        each = [
            {
                "source": "buddy",
                "server": run_rank(rank),
                "holder": run_rank((rank + 1) % ranks),
                "owner": run_rank(rank),
                "elements": elements,
                "version": self.iteration,
                "updates_lost": 0,
            }
            for rank in self._receives
        ]
        return {"iteration": self.iteration, "from": each, "go_on": [], "state": "memory"}

    def _from_checkpoint(self, folder: str, having: list[set[int]]) -> None:
        job = self.job
        if not folder:
            lost = [job.session.run_rank(r) for r, one in enumerate(having) if not one]
            raise StateLost(
                f"what ranks {lost} trained is lost: the ranks with a copy of it have ended too, "
                "and there is no checkpoint. Write some: checkpoint=wb.Checkpoint(...)",
                min(lost, default=-1),
                found_by=job.run_rank,
            )
        job.prepared["checkpoint"], job.checkpoints.resumed = folder, True
        self.iteration = job.begun = int(job.checkpoints.put_back())
        if job.rank == 0:
            self.tell({"iteration": self.iteration, "from": [], "go_on": [], "state": "checkpoint"})


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
    return newest_path(job.exp.checkpoint) or job.prepared.get("resumed", "")
