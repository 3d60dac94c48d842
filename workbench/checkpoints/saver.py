"""Checkpoints written beside training: it waits while its state is copied, a thread writes.

exposed  the rows "copy" and "wait" of training's lane: the copy at an iteration's boundary, and the
         wait for the checkpoint before if that is still being written
hidden   the rows "write" and "commit" of the writer's lane
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workbench.checkpoints import random_state
from workbench.checkpoints.folder import (
    AnotherRankFailed,
    commit,
    discard,
    give_up,
    part_of,
    tensors_of,
    values_of,
    write_json,
)
from workbench.checkpoints.parts import Parts, Snapshot
from workbench.checkpoints.tensor_file import write
from workbench.common.errors import WorkbenchError
from workbench.common.threads import start as start_thread
from workbench.experiment.spec import Experiment
from workbench.recording.events import CODE, Where, now
from workbench.recording.recorder import Recorder

_KIND = CODE["checkpoint"]
_LOOK = 0.02  # seconds of waiting after which it looks whether a rank was lost


class Saver:
    """Writes one rank's files of every checkpoint; the first rank makes them whole."""

    def __init__(
        self,
        exp: Experiment,
        run: str,
        recorder: Recorder,
        device: torch.device,
        look: Callable[[], None] = lambda: None,
        spared: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Prepare to write. ``run``: a word that no other run has. ``look``: raises where a rank
        was lost, whose files will never come. ``spared``: whether this rank was, and the run goes
        on without it.
        """
        assert exp.checkpoint is not None
        self._exp, self.plan, self._run = exp, exp.checkpoint, run
        self._folder = Path(self.plan.folder).absolute()
        self._recorder, self._device, self._look = recorder, device, look
        self._spared = spared
        self._buffers: dict[str, torch.Tensor] = {}  # of the copy, used again and again
        self._copied: tuple[int, Snapshot] | None = None
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        self._discarded: Path | None = None  # another rank may have made it again since
        self.problem = ""  # the last one of this rank's own

    def due(self, iteration: int) -> bool:
        """Return whether a checkpoint is written after so many iterations unasked."""
        return self.plan.every > 0 and iteration > 0 and iteration % self.plan.every == 0

    def prepare(self, parts: Parts) -> None:
        """Reserve the memory of the copy now, so that the first one takes no longer than others."""
        for key, value in parts.snapshot().tensors.items():
            self._buffers[key] = torch.zeros(value.shape, dtype=value.dtype)

    def save(self, parts: Parts, iteration: int, more: Mapping[str, Any]) -> None:
        """Copy ``parts`` as they are after so many iterations. ``more``: other values of this rank.

        Waits until the checkpoint before is written: it is in the same memory.
        """
        self._await(iteration)
        start = now()
        snapshot = parts.snapshot()
        tensors, values = random_state.capture(self._device)
        snapshot.tensors |= tensors
        snapshot.rows |= dict.fromkeys(tensors)
        snapshot.values |= {random_state.NAME: values, **more}
        self._copy(snapshot)
        self._mark("compute", start, "copy", iteration, snapshot.nbytes)
        self._copied = iteration, snapshot

    def write(
        self,
        rank: int,
        present: Sequence[int],
        ranks: int,
        done: Callable[[int, bool], None],
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Write what was copied. ``present``: those of the ``ranks`` that do; the first of them
        makes the checkpoint whole, and says with ``done`` whether it is; ``more`` returns values
        that it adds.
        """
        assert self._copied is not None
        (iteration, snapshot), self._copied = self._copied, None

        def work() -> None:
            whole = self._written(rank, present, ranks, snapshot, iteration, more)
            if rank == present[0]:
                done(iteration, whole)

        self._thread = start_thread(work, "checkpoint")
        if not self.plan.background:
            self._await(iteration)

    def close(self) -> None:
        """Wait until what was begun is on the disk."""
        self._await(-1)

    def abandon(self) -> None:
        """End writing: a checkpoint that is not whole yet never will be."""
        self._abandoned.set()
        if self._thread is not None:
            self._thread.join(self._exp.timeout_ns * 1e-9)

    def _await(self, iteration: int) -> None:
        """Wait for the checkpoint before. Raises what ``look`` raises."""
        if self._thread is None:
            return
        start, limit = now(), self._exp.timeout_ns
        while self._thread.is_alive() and now() - start < limit:
            self._thread.join(_LOOK)
            self._look()
        if self._thread.is_alive():  # a slow disk: the copy there is still being written
            self._buffers = {}
        self._thread = None
        if now() - start > 100_000:  # else there was nothing to wait for
            self._mark("compute", start, "wait", iteration)

    def _copy(self, snapshot: Snapshot) -> None:
        """Copy the tensors into buffers in host memory, which the next checkpoint uses again."""
        for key, value in snapshot.tensors.items():
            buffer = self._buffers.get(key)
            if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
                buffer = self._buffers[key] = torch.empty(value.shape, dtype=value.dtype)
            snapshot.tensors[key] = buffer.copy_(value)

    # -- in the writer's thread --

    def _written(
        self,
        rank: int,
        present: Sequence[int],
        ranks: int,
        snapshot: Snapshot,
        iteration: int,
        more: Callable[[], Mapping[str, Any]],
    ) -> bool:
        """Write this rank's files; the first rank waits for the others'. Returns success."""
        part, first = part_of(self._folder, iteration, self._run), rank == present[0]
        if self._discarded is not None:
            discard(self._discarded)
        try:
            if first:
                snapshot.values |= more()
            self._write(rank, snapshot, iteration)
            if first:
                self._commit(present, ranks, iteration)
        except (OSError, KeyError, TypeError, ValueError, WorkbenchError) as error:
            # The first rank removes what another waits to write into: not a cause.
            removed = isinstance(error, FileNotFoundError) and self._folder.exists()
            if not removed and not isinstance(error, AnotherRankFailed):
                self.problem = f"checkpoint after iteration {iteration}: {error}"
            if first:
                self._discarded = part
                discard(part)
            else:
                give_up(part, rank)
            self._mark("checkpoint", now(), "failed", iteration)
            return False
        return True

    def _write(self, rank: int, snapshot: Snapshot, iteration: int) -> None:
        part = part_of(self._folder, iteration, self._run)
        start = now()
        part.mkdir(exist_ok=True)
        nbytes, sha = write(part / tensors_of(rank), snapshot.tensors)
        rows = {
            key: None if held is None else [held.total, held.ranges]
            for key, held in snapshot.rows.items()
        }
        described = {
            "sha256": sha,
            "tensors": rows,
            "values": snapshot.values,
            "per_rank": snapshot.per_rank,
        }
        write_json(part / values_of(rank), described)
        self._mark("checkpoint", start, "write", iteration, nbytes)

    def _commit(self, present: Sequence[int], ranks: int, iteration: int) -> None:
        start, exp = now(), self._exp
        described = {
            "iteration": iteration,
            "ranks": ranks,
            "present": [*present],
            "spec": exp.model_dump(mode="json"),
            "written": time.time(),
        }
        part = part_of(self._folder, iteration, self._run)
        deadline = time.monotonic() + exp.timeout_ns * 1e-9
        commit(part, described, self.plan.keep, deadline, self._will_not_come)
        self._mark("checkpoint", start, "commit", iteration)

    def _will_not_come(self, rank: int) -> bool:
        return self._abandoned.is_set() or self._spared(rank)

    def _mark(self, lane: str, start: int, name: str, iteration: int, nbytes: int = -1) -> None:
        """Record a span that ends now."""
        recorder = self._recorder
        if recorder.active:
            to = recorder.lane(lane)
            to.context(where=Where(iteration))
            to.write(_KIND, start, now(), nbytes=nbytes, name=recorder.name(name))
