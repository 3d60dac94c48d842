"""Digests of what each rank trains, compared every few iterations: a replica that differs is found.

All ranks of such a strategy hold the same bits. A bit that flips in one of them, in memory or on
its way, changes no law of messages and raises nothing: its rank goes on, and with every sum others
learn what is wrong. So each rank digests its parameters and moments, tensor by tensor, and all
gather the digests. What most of them have is right.

A run with a recovery policy treats such a rank as lost: it is ended, and the others go on as the
policy says. A checkpoint is written of replicas only that were compared before it, so "restart"
goes back to a time at which all were the same; "replace" and "shrink" go on with what the others
have, into which the wrong replica's gradients went since they were last compared. Where no majority
tells which replica is wrong, as of two, "restart" has all go back in new processes; with any other
policy the run ends.

Cost  8 bytes a tensor and rank, and one pass over memory, every ``digest_every`` iterations.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from workbench.checkpoints.parts import Parts
from workbench.common.errors import CorruptReplica
from workbench.common.units import counted
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder

DIFFERS = "a replica differs"  # the name of the row
MOST_NAMED = 3  # tensors


class Compared(Protocol):
    """The interface of a rank's job whose replicas are compared."""

    exp: Experiment
    rank: int
    ranks: int
    parts: Parts
    team: Team
    recorder: Recorder

    def metrics_group(self) -> dist.ProcessGroup: ...


class ReplicaDigests:
    """The comparisons of one rank's replica with the others'."""

    def __init__(self, job: Compared) -> None:
        self._job, self._every = job, job.exp.digest_every
        self._same_at = -1  # the iteration before which all were last the same

    def at(self, iteration: int, *, end: bool = False) -> None:
        """Compare before this iteration, if it is time. Raises CorruptReplica."""
        if not self._every or self._job.ranks == 1 or iteration == self._same_at:
            return
        if not (end or iteration % self._every == 0 or self._same_at < 0):
            return
        tensors = self._tensors()
        digests = torch.tensor([digest(one) for one in tensors.values()], dtype=torch.int64)
        all_ranks = [torch.empty_like(digests) for _ in range(self._job.ranks)]
        dist.all_gather(all_ranks, digests, group=self._job.metrics_group())
        table = torch.stack(all_ranks).tolist()
        if any(row != table[0] for row in table):
            raise self._verdict(table, [*tensors], iteration)
        self._same_at = iteration

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return what is the same on all ranks, by name."""
        parts = self._job.parts
        snapshot, buffers = parts.snapshot(everything=True), parts.buffers()
        return {
            name: tensor
            for name, tensor in snapshot.tensors.items()
            if name not in buffers and name.partition("/")[0] not in snapshot.per_rank
        }

    def _verdict(
        self, table: Sequence[Sequence[int]], names: Sequence[str], iteration: int
    ) -> CorruptReplica:
        """Return the error, and record the ranks that it names."""
        job, members = self._job, self._job.team.members
        bad, where = minority(table)
        since = f"since iteration {max(0, self._same_at) + 1}"
        named = [names[at] for at in where[:MOST_NAMED]]
        more = f" and {len(where) - len(named)} more" if len(where) > len(named) else ""
        what = f"{counted(len(where), 'tensor')}: {', '.join(named)}{more}"
        until = f"found before iteration {iteration + 1}, digest_every={self._every}"
        ranks = [members[rank] for rank in bad]
        words, first = self._words(ranks, since, what, until), ranks[0] if ranks else -1
        if not bad and job.exp.recovery == "restart":  # a checkpoint is right in any case
            ranks = [*members]
        speaker = min(set(range(job.ranks)) - {*bad}, default=0)
        for rank in ranks if job.rank == speaker else ():
            job.recorder.mark(CODE["detect"], DIFFERS, value=self._same_at, peer=rank)
        doing = f"iteration {iteration + 1}"
        error = CorruptReplica(words, first, how="raised", doing=doing)
        error.replicas = tuple(ranks)
        return error

    def _words(self, ranks: Sequence[int], since: str, what: str, until: str) -> str:
        if not ranks:
            return (
                f"replicas differ {since} in {what} ({until}), and no more than half of the "
                f"{self._job.ranks} ranks agree, so none is known to be right. Three ranks or more "
                "have a majority, and recovery='restart' needs none"
            )
        subject = f"rank {ranks[0]} differs" if len(ranks) == 1 else f"ranks {ranks} differ"
        return (
            f"{subject} from the others {since} in {what} ({until}): its memory, or a message to "
            "it, is corrupt. What was trained since then is not to be trusted: go on from a "
            "checkpoint that is older (recovery='restart' does)"
        )


def digest(tensor: torch.Tensor) -> int:
    """Return 64 bits that are equal, but for a chance of 2⁻⁶⁴, only where all bytes are."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    hashed = hashlib.blake2b(flat.numpy().data, digest_size=8).digest()
    return int.from_bytes(hashed, "little", signed=True)


def minority(table: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the rows that differ from what more than half of them have, and the columns in which
    any do; no rows where no column's majority says.
    """
    bad, where, unknown = set[int](), list[int](), False
    for column, values in enumerate(zip(*table, strict=True)):
        value, count = Counter(values).most_common(1)[0]
        if count == len(values):
            continue
        where.append(column)
        if 2 * count <= len(values):
            unknown = True
            continue
        bad |= {row for row, one in enumerate(values) if one != value}
    return ([] if unknown else sorted(bad)), where
