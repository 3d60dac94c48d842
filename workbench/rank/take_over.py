"""The state that a generation takes over from the one before: the steps that all its ranks take.

    offer      what a rank has: it goes to all the others
    plan       made of all offers, the same on every rank: with which iteration they go on
    move       a rank that lacks something receives it from one that has it
    put back   into what this rank trains
    note       in its records, and in those of the run

A plan for each way in which ranks hold what is trained: replicated, and of each rank its own
(rank/furthest.py); divided (training/buddies/copies.py); on servers
(training/parameter_servers/taking_over.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from workbench.checkpoints.parts import Parts, Snapshot
from workbench.checkpoints.rows import Rows
from workbench.common.errors import CheckpointError
from workbench.experiment.team import Team
from workbench.experiment.traits import Traits
from workbench.process_group.session import Session
from workbench.rank.samples_taken import Taken
from workbench.recording.events import CODE, Where, now
from workbench.recording.recorder import Recorder
from workbench.store.recoveries import REGAINED

_PAUSE = 0.3e-3  # seconds between two looks at the store
NOTHING = -1  # iterations that a fresh process has done


@dataclass
class Before:
    """The state and history that a survivor takes along from the generation before.

    ``completed``: iterations whose update it has made. ``buffers``: those of its modules as they
    were before the iteration that was under way, which changed them. ``agreed``: a copy of all that
    it trains, from when all replicas last agreed, where they differ since. ``carried``: what the
    strategy itself keeps for the next generation, where no rank has all that is trained.
    ``started_ns``: when it began its first iteration.
    """

    completed: int
    begun: int  # the first iteration that ``losses`` has
    losses: list[float]
    samples: list[int]
    history: dict[str, list[float]]
    parts: Parts
    taken: Taken | None = None
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    agreed: Snapshot | None = None
    carried: object = None
    started_ns: int = 0

    def snapshot(self) -> Snapshot:
        """Return what there is to go on from."""
        if self.agreed is not None:
            return self.agreed
        result = self.parts.snapshot(everything=True)
        result.tensors |= self.buffers
        return result


class InMemory:
    """A snapshot, with the methods with which parts read a checkpoint (``Saved``)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.manifest = self  # errors name ``manifest.path``
        self.path = Path("the survivors' memory")

    def own(self, name: str) -> Any:
        """Return what was kept under this name, first part of it."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[Any]:
        """Return what was kept under this name."""
        values: list[Any] = self._snapshot.values.get(name, [])
        return values

    def has(self, key: str) -> bool:
        """Return whether there is such a tensor."""
        return key in self._snapshot.tensors

    def own_tensor(self, key: str) -> torch.Tensor | None:
        """Return a tensor; None if there is none."""
        return self._snapshot.tensors.get(key)

    def tensor(self, key: str, rows: Rows | None = None) -> torch.Tensor:
        """Return a tensor, all its rows. Raises CheckpointError where there is none."""
        if (tensor := self.own_tensor(key)) is None:
            raise CheckpointError(f"{self.path} has no tensor {key!r}")
        return tensor


class Joining(Protocol):
    """The interface of a rank's job that takes over."""

    rank: int
    ranks: int
    device: torch.device
    recorder: Recorder
    parts: Parts
    losses: list[float]
    samples: list[int]
    history: dict[str, list[float]]
    begun: int
    traits: Traits
    session: Session
    team: Team

    def group(self, name: str) -> dist.ProcessGroup: ...

    def tell(self, message: dict[str, str]) -> None: ...


class TakeOver:
    """The take-over of one rank: the steps, of which a plan says how each is done."""

    name = "offers"  # under which ranks find each other's

    def __init__(self, job: Joining, before: Before | None) -> None:
        """Prepare. ``before``: what this rank has of the generation before; None in a fresh
        process.
        """
        self.job, self.before = job, before
        self.iteration, self.version = 0, -1  # to go on with

    @property
    def completed(self) -> int:
        """The iterations that this rank has done."""
        return NOTHING if self.before is None else self.before.completed

    @property
    def history(self) -> dict[str, list[float]]:
        """The losses from before the run's last start, as far as this rank was told."""
        return {} if self.before is None else self.before.history

    def take_over(self) -> int:
        """Make all that the job keeps what the plan says. Returns the iteration to go on with."""
        job, start = self.job, now()
        texts = exchange(job, self.name, json.dumps(self.offer()))
        if not self.plan([json.loads(one) for one in texts]):
            return self.iteration
        nbytes = self.move()
        resume_losses(job, self.before, self.iteration)
        with torch.no_grad():
            self.put_back()
        lane, name = job.recorder.lane("compute"), "received" if nbytes else "kept"
        lane.context(where=Where(self.iteration, version=self.version))
        number = job.recorder.name(name)
        lane.write(CODE["restore"], start, now(), nbytes=nbytes or -1, name=number)
        if job.rank == 0 and (facts := self.facts()):
            self.tell(facts)
        return self.iteration

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Tell the run from where this generation has its state."""
        self.job.tell({f"{REGAINED} {self.job.team.generation}": json.dumps(facts)})

    def offer(self) -> Any:
        """Return what this rank has, as JSON can hold it."""
        raise NotImplementedError

    def plan(self, offers: list[Any]) -> bool:
        """Decide by the offers of all ranks, in order. Returns whether there is state to move and
        to put back; else all is done.
        """
        raise NotImplementedError

    def move(self) -> int:
        """Send what others lack, receive what this rank does. Returns the bytes received."""
        raise NotImplementedError

    def put_back(self) -> None:
        """Put the state into what the job trains."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any] | None:
        """Return what the first rank tells the run; None: nothing."""
        return None


def resume_losses(job: Joining, before: Before | None, iteration: int) -> None:
    """Set what ``job`` has reported to what it had before this iteration."""
    if before is None:
        job.begun = iteration
        return
    job.history, job.begun = before.history, min(before.begun, iteration)
    kept = iteration - job.begun
    left_out = [0.0] * (kept - len(before.losses))  # iterations, of a rank that was behind
    job.losses = before.losses[:kept] + left_out
    job.samples = before.samples[:kept] + [0 for _ in left_out]


def exchange(job: Joining, name: str, text: str) -> list[str]:
    """Return what each rank says under this name. They meet in the group's store: most often no
    rank has to receive anything, and a group for it would be the longest part of recovery.
    """
    store = PrefixStore(name, dist.group.WORLD.get_group_store())  # type: ignore[union-attr]
    store.set(str(job.rank), text)
    names = [str(rank) for rank in range(job.ranks)]
    while not store.check(names):
        job.session.look()
        time.sleep(_PAUSE)
    return [store.get(name).decode() for name in names]
