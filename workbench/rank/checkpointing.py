"""Checkpoints of one rank: when one is due, all ranks at the same iteration; and the way back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from workbench.checkpoints import random_state
from workbench.checkpoints.folder import read_manifest
from workbench.checkpoints.parts import Parts
from workbench.checkpoints.saved import Saved
from workbench.checkpoints.saver import Saver
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.process_group.session import Session
from workbench.rank.batches import Minibatches
from workbench.rank.boundaries import agree
from workbench.rank.lost_reports import fetch
from workbench.rank.replica_digests import ReplicaDigests
from workbench.recording.events import CODE, Where, now
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import (
    ABORT,
    CHECKPOINT,
    CHECKPOINT_ASKED,
    ITERATION,
    NOT_SAVED,
    SAVED,
    Control,
)
from workbench.store.result import losses_since

_HISTORY = "history"  # iterations that were done, their losses and samples
_OF_LOST = "history of lost ranks"  # that had done some of them


class Trained(Protocol):
    """The interface of a rank's job that checkpoints need."""

    exp: Experiment
    rank: int
    run_rank: int
    ranks: int
    seed: int
    number: int  # of the model that the rank trains
    lead: int  # iterations that another rank may be ahead
    prepared: dict[str, str]
    minibatches: Minibatches
    session: Session
    parts: Parts
    device: torch.device
    recorder: Recorder
    control: Control
    begun: int
    losses: list[float]
    samples: list[int]
    history: dict[str, list[float]]
    team: Team
    tell: Callable[[dict[str, str]], None]

    def metrics_group(self) -> dist.ProcessGroup:
        """Return a group of all ranks for what is not training."""


class Checkpointing:
    """The part of a rank's job that writes checkpoints and goes on from one.

    ``writers``: the ranks that train; the first of them makes each checkpoint whole. ``lost``:
    those of them that have ended, and without which the run goes on. ``meets``: at a checkpoint all
    wait for each other, as ranks must that may be at any iteration and exchange at any moment.
    """

    def __init__(self, job: Trained, run: str) -> None:
        """Prepare for the job of a rank. ``run``: a word that no other run has."""
        self._job, self._run, self._last = job, run, -1
        self.writers: Sequence[int] = range(job.ranks)
        self.lost: Collection[int] = ()
        self.meets = False
        self._open_saver: Saver | None = None
        self._digests = ReplicaDigests(job)
        self.resumed = "checkpoint" in job.prepared  # the driver has chosen it

    @property
    def _saver(self) -> Saver | None:
        if self._open_saver is None and self._job.exp.checkpoint is not None:
            job = self._job
            session = job.session
            self._open_saver = Saver(
                job.exp, self._run, job.recorder, job.device, session.look, session.spared
            )
        return self._open_saver

    def put_back(self) -> int:
        """Make all that is kept what it was in the checkpoint to go on from, if there is one.

        Returns the iteration to begin with. Raises CheckpointError.
        """
        job = self._job
        if job.exp.checkpoint is not None or self.resumed:
            job.parts.check()
        if self._saver is not None:
            self._saver.prepare(job.parts)
        if not self.resumed:
            return 0
        start = now()
        manifest = read_manifest(Path(job.prepared["checkpoint"]))
        saved = Saved(manifest, job.rank, job.ranks)
        with torch.no_grad():
            job.parts.put_back(saved)
        self._last = self._put_back_history(saved)
        seed = job.seed + 1_000_003 * (job.rank + 1) + saved.iteration
        random_state.put_back(saved, job.device, seed)
        lane = job.recorder.lane("compute")
        lane.context(where=Where(saved.iteration))
        lane.write(CODE["restore"], start, now(), name=job.recorder.name("checkpoint"))
        return self._last

    def due(self, iteration: int) -> bool:
        """Return whether a checkpoint is still to be written before this iteration."""
        if self._saver is None or iteration == self._last:
            return False
        request = self._job.control.words[CHECKPOINT]
        # Where no rank waits for all, one that is ahead learns of it late.
        late = self.meets and self._last < request <= iteration
        return 0 < request == iteration or late or self._saver.due(iteration)

    def heed(self, iteration: int) -> None:
        """Make the user's wish for a checkpoint an iteration that no rank has begun yet."""
        if self._job.control.words[CHECKPOINT] == CHECKPOINT_ASKED:
            agree(self._job, CHECKPOINT, iteration)

    def at(self, iteration: int) -> None:
        """Write a checkpoint before this iteration if one is due, or asked for. Raises
        CorruptReplica where replicas differ: none is written of such.
        """
        job = self._job
        self._digests.at(iteration)
        if self._saver is None:
            return
        if job.rank == self.writers[0]:
            current = iteration
            if self.meets:
                at = map(job.session.run_rank, self.writers)
                current = max(job.control.rank_word(rank, ITERATION) for rank in at)
            self.heed(current + 1 + job.lead)
        if self.due(iteration):
            self._digests.at(iteration, end=True)
            self.save(iteration)

    def at_end(self, iteration: int) -> None:
        """Write a last checkpoint, unless the run was aborted: what was trained is not lost."""
        if not self._job.control.words[ABORT]:
            self._digests.at(iteration, end=True)
        if self._saver is None or self._job.control.words[ABORT]:
            return
        if self._job.rank == self.writers[0]:
            self.heed(iteration)
        news = iteration if iteration > max(0, self._last) else 0
        if self.meets:
            while self._meet(iteration, news, ended=True):
                news = iteration if iteration > self._last else 0
        elif news:
            self.save(iteration)

    def save(self, iteration: int) -> None:
        """Write a checkpoint before this iteration."""
        assert self._saver is not None
        words, job = self._job.control.words, self._job
        before, self._last = self._last, iteration
        if self.meets:
            asked = before < words[CHECKPOINT]
            self._meet(iteration, words[CHECKPOINT] if asked else iteration, ended=False)
        else:
            self._saver.save(job.parts, iteration, self._history(iteration))
            self._write()

    def _meet(self, iteration: int, number: int, *, ended: bool) -> bool:
        """Write a checkpoint with the others, each of which is at an iteration of its own. A rank
        that has ``ended`` comes until all have. ``number``: the checkpoint's, or 0, by this rank;
        that of those that go on counts, then that of the furthest. Returns whether any goes on.
        """
        job, group = self._job, self._job.metrics_group()
        words = torch.tensor([0 if ended else number, number if ended else 0, int(not ended)])
        dist.all_reduce(words, dist.ReduceOp.MAX, group=group)
        asked, furthest, goes_on = words.tolist()
        if chosen := asked if goes_on else furthest:
            assert self._saver is not None
            self._last = iteration
            self._saver.save(job.parts, chosen, self._history(iteration))
            dist.barrier(group=group)
            self._write()
        return bool(goes_on)

    def _write(self) -> None:
        """Write what was copied, in the background."""
        assert self._saver is not None
        job = self._job
        lost = [rank for rank in self.writers if rank in self.lost]
        present = [rank for rank in self.writers if rank not in lost]
        of_lost = partial(self._of_lost, [*map(job.session.run_rank, lost)])
        self._saver.write(job.rank, present, job.ranks, self._note, of_lost)

    def abandon(self) -> None:
        """Give up a checkpoint that is not whole yet: a rank that it needs was lost."""
        if self._open_saver is not None:
            self._open_saver.abandon()

    def close(self) -> None:
        """Wait until all that was begun is on the disk."""
        if self._open_saver is not None:
            self._open_saver.close()
            if self._open_saver.problem:
                self._job.tell({"checkpoint problem": self._open_saver.problem})

    def _history(self, iteration: int) -> dict[str, Any]:
        """Return what this rank has reported since it began, and the losses of before."""
        job = self._job
        history = {
            "losses": [*job.losses],
            "samples": [*job.samples],
            "begun": job.begun,
            "model": job.number,
            "sizes": job.minibatches.sizes,
        }
        return {_HISTORY: {"iteration": iteration, "before": job.history, **history}}

    def _of_lost(self, spared: Collection[int]) -> dict[str, Any]:
        """Return what ranks had reported that were lost. ``spared``: those of this generation."""
        session, limit = self._job.session, self._job.exp.timeout_ns * 1e-9
        return {_OF_LOST: fetch(session.store, session.generation, spared, limit)}

    def _put_back_history(self, saved: Saved) -> int:
        """Set the losses of the iterations that were done, by model. Returns the iteration to begin
        with.
        """
        job, each, saved_history = self._job, saved.all(_HISTORY), saved.own(_HISTORY)
        each += [one for one in saved.all(_OF_LOST) if one["begun"] < saved.iteration]
        for number in sorted({one["model"] for one in each}):
            reports = [one for one in each if one["model"] == number]
            job.history[str(number)] = losses_since(each[0]["before"].get(str(number), []), reports)
        return (
            int(saved_history["iteration"])
            if saved.same_ranks and saved_history
            else saved.iteration
        )

    def _note(self, iteration: int, whole: bool) -> None:
        self._job.control.words[SAVED if whole else NOT_SAVED] = 1 + iteration
