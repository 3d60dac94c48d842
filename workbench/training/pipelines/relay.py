"""Messages between the stages of a pipeline: activations forwards, gradients backwards.

Every value that crosses a cut is a message of its own. Its tag gives the microbatch, the stage
and the value, so ranks may do things in different orders. Receives are posted before they are
needed; a send completes when its receiver has taken it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from workbench.rank.job import Job
from workbench.recording.events import CODE, Where, now
from workbench.recording.recorder import Recorder
from workbench.training.pipelines.schedule import Action

Tensors = tuple[torch.Tensor, ...]
Cuts = Callable[[int], Sequence[Sequence[torch.Tensor]]]  # by samples in a microbatch
MOST_TAGGED = 4096  # microbatches in flight at the same time, at most


class Relay:
    """The messages of one rank's stages.

    ``world``: the world rank of each rank of the pipeline. ``rank_of``: the rank of each stage.
    ``cuts``: tensors with the shape, strides, dtype and requires_grad of what crosses each
    cut. A received tensor has the memory layout of the sent one, as in the uncut model: what the
    next layer keeps for its backward may depend on it.
    """

    def __init__(
        self,
        job: Job,
        world: Sequence[int],
        rank_of: Sequence[int],
        cuts: Cuts,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.job, self.world, self.rank_of, self.cuts = job, world, rank_of, cuts
        self.recorder: Recorder = job.recorder
        self.me = world.index(job.rank)
        self.group = group
        self._posted: dict[Action, list[tuple[dist.Work, torch.Tensor]]] = {}
        self._near: dict[Action, Tensors] = {}  # from a stage on this very rank
        self._leaving: list[tuple[dist.Work, torch.Tensor]] = []

    # An action's *need* is known by the action itself: what 2F0 needs are the activations of 1F0,
    # what 2B0 or 2I0 needs are the gradients of 3B0 or 3I0 (written as 2B0 here).

    def expect(self, action: Action, samples: int, where: Where) -> None:
        """Post the receives of what this action needs from another rank, if any.

        ``where``: the place in training of their rows.
        """
        key, source = self._need(action)
        if source < 0 or self.rank_of[source] == self.me or key in self._posted:
            return
        peer = self.world[self.rank_of[source]]
        before, self.recorder.where = self.recorder.where, where
        self._note("recv", peer, now())
        self._posted[key] = []
        with self.job.label("activation" if key.kind == "F" else "gradient"):
            for number, like in enumerate(self._values(key, samples)):
                lying = _lying(like, like)
                into = torch.empty(lying.shape, dtype=like.dtype, device=self.job.device)
                work = dist.irecv(into, peer, group=self.group, tag=self._tag(key, number))
                assert work is not None
                self._posted[key].append((work, _standing(into, like)))
        self.recorder.where = before

    def take(self, action: Action, samples: int) -> Tensors:
        """Wait for the inputs of this action, and return them; activations with a gradient are
        leaves.
        """
        key, source = self._need(action)
        if source < 0:
            return ()
        if key in self._near:
            return self._leaves(key, self._near.pop(key), samples)
        self.expect(action, samples, self.recorder.where)
        tensors = []
        for work, tensor in self._posted.pop(key):
            work.wait()
            tensors.append(tensor)
        return self._leaves(key, tuple(tensors), samples)

    def give(self, action: Action, tensors: Sequence[torch.Tensor], samples: int) -> None:
        """Pass on this action's results: a forward's outputs, a backward's gradients."""
        stage, kind, microbatch = action
        target = stage + 1 if kind == "F" else stage - 1
        if not 0 <= target < len(self.rank_of):
            return
        key = Action(target, "F" if kind == "F" else "B", microbatch)
        if self.rank_of[target] == self.me:
            self._near[key] = tuple(x.detach() for x in tensors)
            return
        peer, moment = self.world[self.rank_of[target]], now()
        with self.job.label("activation" if kind == "F" else "gradient"):
            likes = self._values(key, samples)
            for number, (x, like) in enumerate(zip(tensors, likes, strict=True)):
                sent = _lying(x.detach(), like).contiguous()
                work = dist.isend(sent, peer, group=self.group, tag=self._tag(key, number))
                assert work is not None
                self._leaving.append((work, sent))
        self._note("send", peer, moment)  # after the send, whose receiver is waiting
        self._leaving = [one for one in self._leaving if not one[0].is_completed()]

    def flush(self) -> None:
        """Wait until every message has left."""
        for work, _ in self._leaving:
            work.wait()
        self._leaving = []

    def _need(self, action: Action) -> tuple[Action, int]:
        """Return the key of the action's input, and the stage that it comes from; -1: none."""
        stage, kind, microbatch = action
        if kind == "F":
            return Action(stage, "F", microbatch), stage - 1
        if kind == "W" or stage + 1 == len(self.rank_of):
            return action, -1
        return Action(stage, "B", microbatch), stage + 1

    def _values(self, key: Action, samples: int) -> list[torch.Tensor]:
        """Return the tensors that cross the cut before a forward, or after a backward."""
        if key.kind == "F":
            return list(self.cuts(samples)[key.stage - 1])
        return [x for x in self.cuts(samples)[key.stage] if x.requires_grad]

    def _leaves(self, key: Action, values: Tensors, samples: int) -> Tensors:
        if key.kind == "F":
            for value, like in zip(values, self._values(key, samples), strict=True):
                value.requires_grad_(like.requires_grad)
        return values

    def _tag(self, key: Action, number: int) -> int:
        stages, widest = len(self.rank_of), 64
        place = key.microbatch % MOST_TAGGED * stages + key.stage
        return (place * 2 + (key.kind == "F")) * widest + number

    def _note(self, phase: str, peer: int, moment: int) -> None:
        """Record that a send or receive was posted."""
        lane, name = self.recorder.lane("compute"), self.recorder.name
        lane.context(where=self.recorder.where)
        lane.write(
            CODE["metric"], moment, moment, peer=peer, name=name("posted"), phase=name(phase)
        )


def _lying(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Permute the dimensions of ``x`` to the order of those of ``like`` in memory."""
    return x.permute(_order(like))


def _standing(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Invert ``_lying``: permute the dimensions of ``x`` back to their own order."""
    order = _order(like)
    return x.permute([order.index(d) for d in range(len(order))])


def _order(like: torch.Tensor) -> list[int]:
    return sorted(range(like.dim()), key=like.stride, reverse=True)
