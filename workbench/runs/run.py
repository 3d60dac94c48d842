"""A run: real ranks at work, live in the driver's hands; and the result that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.common import live_runs
from workbench.common.arguments import Facts, Seconds, checked
from workbench.common.descriptors import check_descriptors
from workbench.common.errors import How, RunTimeout, WorkbenchError
from workbench.common.threads import import_aside
from workbench.common.threads import start as start_thread
from workbench.common.units import counted
from workbench.common.user_warnings import warn_user
from workbench.experiment.checks import prepare
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.rank.batches import SIZES
from workbench.rank.stack_dumps import Lookout
from workbench.rank.unreachable import evicts_unreachable
from workbench.recording.events import H_MAGIC, MAGIC
from workbench.recording.meter import Samples
from workbench.recording.recorder import read_meters
from workbench.runs.checkpoints import checkpoint_of, lock_of, sizes_of, write_now
from workbench.runs.display_mixin import Shown
from workbench.runs.elastic import Elastic
from workbench.runs.failure import as_facts, how_of, name_planned
from workbench.runs.launching import launcher_for, set_up_links
from workbench.runs.lifetime import Lifetime
from workbench.runs.outcome import outcome
from workbench.runs.rank_control import RankControl
from workbench.runs.regrouping import Regrouping
from workbench.runs.starting import Starter
from workbench.runs.supervisor import Supervisor
from workbench.shared_memory.control_block import ITERATION
from workbench.shared_memory.control_state import ControlState
from workbench.shared_memory.segments import describe_end
from workbench.store.result import Overhead, Result

if TYPE_CHECKING:
    import polars as pl

    from workbench.store.event_store import Store
    from workbench.store.overlap import Overlap


class Run(Elastic, Lifetime, Shown):
    """A live run.

    Every method returns at once, but for ``wait``; all of them may be called from any thread.
    ``with wb.run(exp) as run:`` ends it when the block is left.
    """

    @checked
    def __init__(self, exp: Experiment, prepared: Facts | None = None) -> None:
        """Start the run. ``prepared``: metadata from the strategy's ``prepare``, kept with the run
        and sent to ranks.
        """
        check_descriptors(exp.ranks)
        self.experiment, self._prepared = exp, dict(prepared or {})
        self._finished = threading.Event()
        resumed = checkpoint_of(exp)
        with contextlib.ExitStack() as undo:  # a notebook keeps the error, and with it this object
            self._checkpoint_lock = lock_of(exp, resumed)
            if self._checkpoint_lock is not None:
                undo.callback(self._checkpoint_lock.close)
            if resumed is not None:
                self._prepared["checkpoint"] = str(resumed.path)
                self._prepared[SIZES] = sizes_of(resumed).to_json()
            self._launcher = launcher_for(exp)
            undo.callback(self._launcher.close, 0)
            watched = self._register(str(getattr(exp.launcher, "name", exp.launcher)))
            undo.callback(self._entry.leave)
            self._launcher.begin(range(exp.ranks))
            self._set_up(exp, undo)
            self._supervisor = Supervisor(
                exp, self._ranks, self._launcher, self._lookout, self.store, watched, self._starter
            )
            self._ranks.group.collector.start()
            start_thread(watched._supervise, "workbench run")
            undo.pop_all()
        self._notice_last_reference()

    # -- starting --

    def _set_up(self, exp: Experiment, undo: contextlib.ExitStack) -> None:
        """Make what the ranks share, while they are being started, and order them to begin."""
        import_aside("polars")
        from workbench.store.event_store import Store  # with polars

        self.store: Store = Store(metadata={"experiment": exp.to_yaml(), **self._prepared})
        group = WorkerGroup(exp.ranks, self._launcher.take, self.store)
        undo.callback(group.close)
        self._ranks = RankControl(group, evicts=evicts_unreachable(exp))
        self._lookout = Lookout()
        set_up_links(exp, self._control)
        self._result = Result()
        self._at_end, self._lock = [], self._ranks.lock
        self._ended_alone: dict[int, int] | None = None  # before the driver ended the rest
        self._started = time.monotonic()
        self._trained_until = 0.0
        self._meters: list[tuple[Samples, float]] = []  # what remains of the ranks' meters
        self._starter = Starter(exp, self._launcher, self._ranks, self._lookout)
        self._starter.begin(self.store, self._prepared)
        self._launched = True

    @property
    def pids(self) -> dict[int, int]:
        """The operating system's process of each rank; none before all have been started."""
        return self._ranks.pids if self._launched else {}

    def _is_over(self) -> bool:
        return self.done

    @property
    def _regrouping(self) -> Regrouping:
        return self._supervisor.regrouping

    # -- watching over it --

    def _supervise(self) -> None:
        self._ranks.thread = self._entry.thread = threading.current_thread()
        supervisor = self._supervisor
        try:
            supervisor.follow()
            self._ranks.group.collector.drain()
            error = supervisor.error(self.store.now)
            if error is not None:
                name_planned(self.experiment, error, self.store)
            result = outcome(
                supervisor.reports,
                supervisor.gone,
                error,
                lambda: supervisor.regrouping.past_losses(self.store, supervisor.lost(spare=True)),
            )
        except Exception as error:  # a fault of ours: callers that wait must hear of it
            text = "".join(traceback.format_exception(error))
            result = Result(error=WorkbenchError(f"the driver's own thread raised:\n{text}"))
        try:
            self._finish(result)
        finally:  # whatever could not be released: the run is over
            self._result = result
            with self._lock:
                calls, self._at_end = self._at_end, None
            for call in calls or []:
                with contextlib.suppress(Exception):  # a picture's fault is not the run's
                    call()
            self._finished.set()
            self._entry.leave()

    def _finish(self, result: Result) -> None:
        """End the ranks, read the rest of their records, and release what the run held."""
        self._ended_alone = dict(self._ranks.ended)
        self.store.metadata |= self._launcher.facts()  # clocks of hosts are known better now
        self._ranks.group.end(patience=1.0 if result.ok else 0.0)
        self.store.metadata["ok"] = str(result.ok)
        if result.error is not None:
            self.store.metadata["error"] = str(result.error)
            self.store.metadata["failure"] = json.dumps(as_facts(result.error))
        self._trained_until = time.monotonic()
        self._meters = self._read_meters()
        self.store.metadata["overhead"] = self._overhead(result.wall_seconds).to_json()
        with self._lock:  # a run that is kept, in a notebook say, keeps the store, not this memory
            self._ranks.group.release()
            self._starter.rendezvous = None
        self._lookout.close()
        if self._checkpoint_lock is not None:
            self._checkpoint_lock.close()
        self._launcher.close(self.experiment.ranks)

    # -- waiting --

    @property
    def result(self) -> Result:
        """The result if the run is over; one with ``ok=False`` and no error while it goes on."""
        return self._result

    @checked
    def wait(
        self, timeout: Seconds | None = None, check: bool = True, progress: bool | None = None
    ) -> Result:
        """Block until the run is over. ``timeout`` in seconds: RunTimeout, and the run goes on.

        Raises what the run failed with, unless ``check=False``. ``progress``: a bar in the terminal
        (default: if there is one).
        """
        self._launcher.must_be_ours("this run")
        progress = sys.stderr.isatty() if progress is None else progress
        if progress and not self.done:
            from workbench.runs.progress import show_progress

            over = show_progress(self, timeout)
        else:
            over = self._wait_quietly(timeout)
        if not over:
            raise RunTimeout(
                f"timed out: the run is not over after {timeout} s (iteration {self.iteration + 1} "
                f"of {self.experiment.iterations}); it goes on"
            )
        if problem := self.store.metadata.get("checkpoint problem"):
            warn_user(f"not every checkpoint was written: {problem}")
        if check and self._result.error is not None:
            raise self._result.error
        return self._result

    def _wait_quietly(self, timeout: float | None) -> bool:
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        try:
            while not self._finished.wait(max(0.0, min(0.2, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    return False
        except KeyboardInterrupt:
            self.stop()
            self._finished.wait(10)
            raise
        return True

    @checked
    def checkpoint(self, timeout: Seconds = 60.0) -> Path:
        """Have a checkpoint written before the next iteration, and return its folder once it is
        whole. ``timeout``: seconds to wait for it; the ranks do not wait.

        Raises SpecError where the experiment names no folder for checkpoints, CheckpointError where
        it could not be written, RunTimeout.
        """
        return write_now(self.experiment.checkpoint, self._control, lambda: self.done, timeout)

    @property
    def iteration(self) -> int:
        """The iteration that the slowest rank is in."""
        living = [rank for rank in self.pids if rank not in self._ranks.ended] or [*self.pids]
        slowest = min(self._control.rank_word(rank, ITERATION) for rank in living)
        return min(slowest, self.experiment.iterations - 1)  # a server counts those that are done

    @property
    def loss(self) -> float | None:
        """The newest local losses' mean, for a progress bar. None until every rank has begun to
        train and there is one; NaN or infinite where training has diverged.
        """
        if not self._supervisor.all_train():
            return None
        each = [self._control.loss(rank) for rank in self.pids]
        losses = [loss for loss in each if loss is not None]
        return sum(losses) / len(losses) if losses else None

    @property
    def control_state(self) -> ControlState:
        """The ranks' control state now: what is done to them, and which have arrived or ended.

        Once the run is over, the last one.
        """
        traces = self._ranks.group.traces  # looked up once: a release puts another dictionary there
        begun = [rank for rank, one in traces.items() if one.words[H_MAGIC] == MAGIC]
        state = self._control.state()
        ended = dict(self._ranks.ended) if self._ended_alone is None else self._ended_alone
        words = {rank: describe_end(code) for rank, code in sorted(ended.items())}
        how: dict[int, How] = {rank: how_of(code) for rank, code in sorted(ended.items())}
        for rank, (report, _) in list(self._supervisor.reports.items()):
            if report.get("kind") == "RankError":
                words.setdefault(rank, "raised an error")
                how.setdefault(rank, "raised")
        arrived = tuple(sorted({*state.arrived, *begun}))
        cut_off = {} if self.done else dict(self._launcher.cut_off())
        return replace(state, arrived=arrived, ended=words, how=how, cut_off=cut_off)

    # -- what was recorded --

    @property
    def events(self) -> pl.DataFrame:
        """The event table up to this very moment; complete once the run is over."""
        if not self.done:
            self._ranks.group.collector.drain()
        return self.store.events

    def overlap(self) -> Overlap:
        """Measure how much communication is hidden behind computation, so far: see
        store/overlap.py.
        """
        from workbench.store.holds import STILL, holds_of
        from workbench.store.overlap import measure

        return measure(self.events, holds_of(self.store.metadata, STILL))

    def overhead(self) -> Overhead:
        """Return what recording has cost so far: records times the cost of one, timed in place on a
        sample of them, and the collector's thread.
        """
        return self._overhead(self._result.wall_seconds)

    def _read_meters(self) -> list[tuple[Samples, float]]:
        return [read_meters(one.memory) for one in self._ranks.group.traces.values()]

    def _overhead(self, seconds: float) -> Overhead:
        """Compute the overhead. ``seconds``: how long training took, NaN while that is unknown."""
        with self._lock:
            meters = self._meters or self._read_meters()
        if not seconds > 0:  # the run is still going on, or it failed
            since, until = self._supervisor.trained_from or self._started, self._trained_until
            seconds = (until or time.monotonic()) - since
        return Overhead.of(
            len(self.store),
            self.dropped,
            meters,
            self._ranks.group.collector.cpu_ns * 1e-9,
            seconds * min(self.experiment.ranks, os.cpu_count() or 1),
        )

    # -- showing itself --

    def __repr__(self) -> str:
        exp = self.experiment
        strategy, task = (getattr(one, "name", one) for one in (exp.strategy, exp.task))
        return f"Run({strategy}, {task}, {counted(exp.ranks, 'rank')})"


def start(exp: Experiment) -> Run:
    """Start a run for another part of the workbench."""
    return Run(exp, prepare(exp))


@checked
def run(exp: Experiment) -> Run:
    """Start the Experiment ``exp`` and return at once; ranks are live.

    The run goes on until its last iteration, ``run.stop()`` or ``wb.shutdown()``. In a notebook it
    goes on also after a cell has failed; in a script it ends, with a ResourceWarning, when no
    reference to it is left. Where others are live, a line on stderr names one; ``wb.runs()`` lists
    them.

    Raises SpecError for what cannot be, WorkbenchError where ranks cannot start.

    >>> print(wb.run(wb.Experiment(ranks=4, iterations=50)).wait())
    """
    live_runs.say_others()
    return start(exp)
