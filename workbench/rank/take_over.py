"""The state that a generation takes over from the one before: the furthest survivor's, in memory.

A rank that was lost may have ended at any moment, so survivors stand at either side of an update.
All take the state of the one that has done most iterations: its last gradient was whole, and is
applied once. A rank that had not applied it receives what that one has; so does a fresh process.

Where every rank trains for itself (gossip, MALT), each goes on with what it has, and a fresh
process with what the furthest one has. One that was behind leaves out the iterations in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from workbench.checkpoints.parts import Parts, Snapshot
from workbench.checkpoints.rows import Rows
from workbench.common.errors import CheckpointError
from workbench.experiment.traits import Traits
from workbench.process_group.session import Session
from workbench.rank.samples_taken import Taken
from workbench.recording.events import CODE, Where, now
from workbench.recording.recorder import Recorder

BATCH = 16 << 20  # bytes that are received at a time
_PAUSE = 0.3e-3  # seconds between two looks at the store
_NOTHING = -1  # iterations that a fresh process has done
_SERVES = -2  # of a rank that trains nothing


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

    def group(self, name: str) -> dist.ProcessGroup: ...


def take_over(job: Joining, before: Before | None) -> int:
    """Make all that ``job`` keeps what the furthest survivor has. ``before``: what this rank has of
    the generation before; None in a fresh process.

    Returns the iteration to go on with.
    """
    start = now()
    completed = _NOTHING if before is None else before.completed
    done = [int(one) for one in exchange(job, "completed", str(completed))]
    furthest = max(done)
    source = done.index(furthest)
    snapshot = Snapshot() if before is None else before.snapshot()
    # A rank that has done less receives.
    behind = _NOTHING + 1 if job.traits.replicas == "own" else furthest
    receives, nbytes = done[job.rank] < behind, 0
    if _any_below(done, behind):
        history = before.history if before is not None else {}
        sent, job.history = _broadcast(snapshot, history, source, job)
        if receives:
            snapshot, nbytes = sent, sent.nbytes
    resume_losses(job, before, furthest)
    with torch.no_grad():
        job.parts.put_back(InMemory(snapshot))
    lane = job.recorder.lane("compute")
    lane.context(where=Where(furthest))
    name = job.recorder.name("received" if nbytes else "kept")
    lane.write(CODE["restore"], start, now(), nbytes=nbytes or -1, name=name)
    return furthest


def attend(job: Joining) -> None:
    """Take part in a take-over as a rank that trains nothing."""
    done = [int(one) for one in exchange(job, "completed", str(_SERVES))]
    if _any_below(done, max(done)):
        _broadcast(Snapshot(), {}, done.index(max(done)), job)


def _any_below(done: Sequence[int], behind: int) -> bool:
    return any(one < behind for one in done if one != _SERVES)


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


def _broadcast(
    snapshot: Snapshot,
    history: dict[str, list[float]],
    source: int,
    job: Joining,
) -> tuple[Snapshot, dict[str, list[float]]]:
    """Return the source's snapshot and history on every rank."""
    group = job.group("recovery")
    described = {
        "tensors": [
            [key, str(one.dtype).removeprefix("torch."), list(one.shape)]
            for key, one in snapshot.tensors.items()
        ],
        "values": snapshot.values,
        "history": history,
    }
    text = np.frombuffer(json.dumps(described).encode(), np.uint8).copy()
    length = torch.tensor([len(text)])
    dist.broadcast(length, source, group=group)
    letters = (
        torch.from_numpy(text)
        if job.rank == source
        else torch.empty(int(length), dtype=torch.uint8)
    )
    dist.broadcast(letters, source, group=group)
    letter = json.loads(letters.numpy().tobytes())
    result = Snapshot(values=letter["values"])
    result.tensors = _receive(letter["tensors"], snapshot.tensors, source, job, group)
    return result, letter["history"]


def _receive(
    described: list[list[Any]],
    own: Mapping[str, torch.Tensor],
    source: int,
    job: Joining,
    group: dist.ProcessGroup,
) -> dict[str, torch.Tensor]:
    """Return the source's tensors: many in one message, since a fresh rank's first call of a size
    is worked out again, for milliseconds each.
    """
    if job.rank == source:
        result = {key: own[key].detach().contiguous() for key, _, _ in described}
    else:
        result = {
            key: torch.empty(shape, dtype=getattr(torch, dtype), device=job.device)
            for key, dtype, shape in described
        }
    for parts in _batches(one.reshape(-1).view(torch.uint8) for one in result.values()):
        flat = torch.cat(parts)
        dist.broadcast(flat, source, group=group)
        if job.rank != source:
            for part, received in zip(parts, torch.split(flat, [*map(len, parts)]), strict=True):
                part.copy_(received)
    return result


def _batches(parts: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Divide flat tensors of bytes into batches of ``BATCH`` bytes and little more."""
    batch: list[torch.Tensor] = []
    for part in parts:
        batch.append(part)
        if sum(map(len, batch)) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
