"""The take-over of replicas: all take the state of the furthest survivor, in memory.

A rank that was lost may have ended at any moment, so survivors stand at either side of an update.
All take the state of the one that has done most iterations: its last gradient was whole, and is
applied once. A rank that had not applied it receives what that one has; so does a fresh process.

Where every rank trains for itself (gossip, MALT), each goes on with what it has, and a fresh
process with what the furthest one has. One that was behind leaves out the iterations in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.checkpoints.parts import Snapshot
from workbench.rank.take_over import NOTHING, Before, InMemory, Joining, TakeOver, exchange

BATCH = 16 << 20  # bytes that are received at a time
_SERVES = -2  # iterations of a rank that trains nothing


class Furthest(TakeOver):
    """Replicas that are equal: a rank that has done less than the furthest receives."""

    name = "completed"
    serves = False

    def offer(self) -> int:
        return _SERVES if self.serves else self.completed

    def plan(self, offers: list[Any]) -> bool:
        self._done, self.iteration = offers, max(offers)
        self._snapshot = Snapshot() if self.before is None else self.before.snapshot()
        return True

    @property
    def behind(self) -> int:
        """The iterations below which a rank receives."""
        return self.iteration

    def move(self) -> int:
        if not any(one < self.behind for one in self._done if one != _SERVES):
            return 0
        source = self._done.index(self.iteration)
        sent, self.job.history = _broadcast(self._snapshot, self.history, source, self.job)
        if self._done[self.job.rank] >= self.behind:
            return 0
        self._snapshot = sent
        return sent.nbytes

    def put_back(self) -> None:
        self.job.parts.put_back(InMemory(self._snapshot))


class Own(Furthest):
    """Of each rank its own: only a fresh process receives."""

    @property
    def behind(self) -> int:
        return NOTHING + 1


def take_over(job: Joining, before: Before | None) -> int:
    """Make all that ``job`` keeps what the furthest survivor has, or its own. Returns the iteration
    to go on with.
    """
    return (Own if job.traits.replicas == "own" else Furthest)(job, before).take_over()


def attend(job: Joining) -> None:
    """Take part in a take-over as a rank that trains nothing."""
    beside = Furthest(job, None)
    beside.serves = True
    beside.plan([json.loads(one) for one in exchange(job, beside.name, json.dumps(_SERVES))])
    beside.move()


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
