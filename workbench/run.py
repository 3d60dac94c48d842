"""A run: real ranks at work, live in the driver's hands; and the result that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.choosing.costs import Costs, links_of, load
from workbench.control import (  # fmt: skip
    ABORT,
    FROZEN_BY_USER,
    ITERATION,
    SLOW,
    SPARE,
    STATE,
    THAW_AT,
    TRAINING,
    Control,
    ControlState,
)
from workbench.errors import (
    RunTimeout,
    WorkbenchError,
)
from workbench.events import DATA_AT, H_MAGIC, MAGIC, TRACE_BYTES, Recorder, metered
from workbench.failure import what_went_wrong
from workbench.launchers import worker
from workbench.launchers.local import meeting_place, nursery
from workbench.launchers.worker import Worker, enlist
from workbench.meter import Samples
from workbench.result import Overhead, Result, digest, mean_losses, tensors
from workbench.shared import Segment, describe_end, process_state, reserve
from workbench.shown import Shown
from workbench.spec import Experiment, Slow
from workbench.spec_checks import prepare
from workbench.stacks import ASK, Lookout, users_place
from workbench.steering import Steering
from workbench.units import counted

if TYPE_CHECKING:
    import polars as pl
    import torch

    from workbench.buckets.overlap import Overlap
    from workbench.collector import Collector
    from workbench.store import Store

NOTICE, AFTERMATH = (
    0.15,
    0.4,
)  # seconds after a failure: then survivors are told; then they are ended


class Run(Steering, Shown):
    """A live run.

    Every method returns at once, but for ``wait``; all of them may be called from any thread.
    """

    def __init__(self, exp: Experiment, prepared: Mapping[str, str] | None = None) -> None:
        """``prepared``: what the strategy's ``prepare`` said; kept with the run, told to ranks."""
        from workbench.collector import Collector
        from workbench.store import Store

        self.experiment, self._prepared = exp, dict(prepared or {})
        self._control, self._lookout = Control.create(exp.ranks), Lookout()
        self._set_up_links(exp)
        self.store: Store = Store(metadata={"experiment": exp.to_yaml(), **self._prepared})
        self._segments = [trace_segment(f"rank {rank}") for rank in range(exp.ranks)]
        self._driver_trace = trace_segment("the driver")
        self._recorder = Recorder.into_segment(self._driver_trace, -1)
        traces = {rank: segment.memory for rank, segment in enumerate(self._segments)}
        self._collector: Collector = Collector(
            self.store, {**traces, -1: self._driver_trace.memory}
        )
        self._result = Result()
        self._finished = threading.Event()
        self._at_end: list[Callable[[], None]] | None = []
        self._lock = threading.RLock()
        self._reports: dict[int, tuple[dict[str, Any], bytearray]] = {}
        self._ended_alone: dict[int, int] | None = None  # before the driver ended the rest
        self._started = time.monotonic()
        self._trained_from = self._trained_until = 0.0  # all ranks were in training
        self._meters: list[tuple[Samples, float]] = []  # what remains of the ranks' meters
        self._workers = self._launch(exp)
        self.pids: dict[int, int] = {one.rank: one.pid for one in self._workers}
        self._thread = threading.Thread(target=self._supervise, daemon=True, name="workbench run")
        self._collector.start()
        self._thread.start()

    # -- starting --

    def _set_up_links(self, exp: Experiment) -> None:
        for a in range(exp.ranks):
            for b in range(exp.ranks):
                if a != b:
                    link = exp.network.link(a, b)
                    self._control.set_link(
                        a,
                        b,
                        latency_ns=link.latency_ns,
                        bytes_per_second=link.bytes_per_second,
                        down=link.down,
                    )
        for fault in exp.faults:
            if isinstance(fault, Slow):
                self._control.set_rank(fault.rank, SLOW, round(fault.factor * 1000))

    def _launch(self, exp: Experiment) -> list[Worker]:
        home = self._home = nursery()  # first: it imports torch while we do
        self._rendezvous = meeting_place(exp.ranks)
        port = self._rendezvous.port
        workers = enlist(home, range(exp.ranks))
        cores = os.cpu_count() or 1
        threads = exp.threads or max(1, cores // exp.ranks)
        self.store.metadata |= {"cores": str(cores), "threads": str(threads)}
        spec, costs = exp.to_json(), load().over(links_of(exp.network, exp.ranks))
        told_costs = costs.to_json()
        for one in workers:
            orders = {
                "rank": one.rank,
                "spec": spec,
                "port": port,
                "threads": threads,
                "prepared": self._prepared,
                "costs": told_costs,
                "folder": os.getcwd(),
            }
            one.order(
                orders,
                fds=[self._control.segment.fd, self._segments[one.rank].fd, self._lookout.fd],
            )
        if exp.all_reduce == "auto" and exp.ranks > 1:
            store = weakref.ref(self.store)  # it may be over and forgotten before this is done
            threading.Thread(
                target=tell_choice, args=(exp, costs, store), daemon=True, name="run's choice"
            ).start()
        return workers

    @property
    def _ended(self) -> dict[int, int]:  # type: ignore[override]  # as it is now
        return worker.ended(self._workers)

    # -- watching over it --

    def _supervise(self) -> None:
        try:
            self._follow()
            self._collector.drain()
            self._store_now = self.store.now
            result = self._collect()
        except Exception as error:  # a fault of ours: whoever waits for the run must hear of it
            text = "".join(traceback.format_exception(error))
            result = Result(error=WorkbenchError(f"the driver's own thread raised:\n{text}"))
        self._finish(result)

    def _follow(self) -> None:
        """Until every rank has reported, or those that have not will not any more."""
        failed_at: float | None = None
        with selectors.DefaultSelector() as selector:
            for one in self._workers:
                selector.register(one.socket, selectors.EVENT_READ, one)
            while any(rank not in self._reports and rank not in self._ended for rank in self.pids):
                for key, _ in selector.select(0.01):
                    self._read_report(key, selector)
                self._thaw_due()
                if not self._trained_from and self._all_train():
                    self._trained_from = time.monotonic()
                if not self._lost(spare=False) and not any(
                    "failed" in report for report, _ in self._reports.values()
                ):
                    continue
                # Survivors find out by themselves within 50 ms, and then say what they were in.
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > NOTICE:
                    self._control.words[ABORT] = 1
                    self._control.refresh()
                    self._control.open_gates()
                if time.monotonic() - failed_at > AFTERMATH:
                    break
            for key, _ in selector.select(0):  # a last word of one that has ended
                self._read_report(key, selector)

    def _lost(self, *, spare: bool) -> dict[int, int]:
        """Ranks that ended without a report, and how: those that it can spare, or the others."""
        return {
            rank: code
            for rank, code in sorted(self._ended.items())
            if rank not in self._reports and bool(self._control.rank_word(rank, SPARE)) == spare
        }

    def _read_report(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
        message = key.data.hear()
        if message is None:  # its end is told by the nursery, with its cause
            selector.unregister(key.fileobj)
        elif "told" in message[0]:
            self.store.metadata |= message[0]["told"]
        else:
            self._reports[key.data.rank] = message

    def _thaw_due(self) -> None:
        """Wake ranks that froze themselves (``wb.Freeze``) when their time has come."""
        for rank in self.pids:
            due = self._control.rank_word(rank, THAW_AT)
            if not due:
                continue
            if not self._control.rank_word(rank, FROZEN_BY_USER):
                self._note_frozen(rank, True)
            if time.monotonic_ns() >= due:
                self._control.set_rank(rank, THAW_AT, 0)
                self._note_frozen(rank, False)
                self._signal(rank, signal.SIGCONT)

    def _finish(self, result: Result) -> None:
        """End the ranks, read what is left of their records, and give back what the run held."""
        self._ended_alone = dict(self._ended)
        for one in self._workers:
            one.close()
        worker.end(self._workers, patience=1.0 if result.ok else 0.0)
        self._collector.stop()
        self.store.metadata["ok"] = str(result.ok)
        if result.error is not None:
            self.store.metadata["error"] = str(result.error)
        self._trained_until = time.monotonic()
        self._meters = [metered(segment.memory) for segment in self._segments]
        self.store.metadata["overhead"] = self._overhead(result.wall_seconds).to_json()
        for segment in (*self._segments, self._driver_trace, self._control.segment):
            segment.close()
        self._lookout.close()
        with self._lock:  # a run that is kept, in a notebook say, keeps the store, not this memory
            self._segments.clear()
            self._recorder = Recorder.off(-1)
            del self._driver_trace, self._rendezvous
        self._home.keep(self.experiment.ranks)
        self._result = result
        with self._lock:
            calls, self._at_end = self._at_end, None
        for call in calls or []:
            with contextlib.suppress(Exception):  # a picture's fault is not the run's
                call()
        self._finished.set()

    def _collect(self) -> Result:
        done = {rank: report for rank, (report, _) in self._reports.items() if "done" in report}
        result = Result(
            digests={
                rank: report["digest"] for rank, report in sorted(done.items()) if report["digest"]
            },
            bytes_sent={rank: report["bytes_sent"] for rank, report in sorted(done.items())},
            lost=[*self._lost(spare=True)],
        )
        result.error = self._error()
        result.ok = result.error is None
        if result.error is not None:
            result.error.result = result
        if trained := [report for _, report in sorted(done.items()) if report["losses"]]:
            numbers = sorted({report["model"] for report in trained})
            result.model_losses = [
                mean_losses([report for report in trained if report["model"] == number])
                for number in numbers
            ]
            result.losses = result.model_losses[0]
            spans = [(one["started_ns"], one["ended_ns"]) for one in done.values()]
            first = min(start for start, _ in spans if start)
            result.wall_seconds = (max(end for start, end in spans if start) - first) / 1e9
        result.memory = {
            rank: report["memory"]
            for rank, report in sorted(done.items())
            if report["memory"] is not None
        }
        result.metrics = next((one["metrics"] for one in done.values() if one["metrics"]), {})
        for rank in [rank for rank, one in sorted(done.items()) if one["parameters"]][:1]:
            result.parameters = tensors(*self._reports[rank])
        if parts := {rank: one for rank, one in done.items() if one["replica"] is not None}:
            result.parameters, result.digests = self._whole(parts)
        return result

    def _whole(
        self, parts: Mapping[int, Mapping[str, Any]]
    ) -> tuple[dict[str, torch.Tensor], dict[int, str]]:
        """The parameters of a model that ranks hold in parts; and each replica's digest, under its
        first rank.
        """
        replicas: dict[int, dict[str, torch.Tensor]] = {}
        first: dict[int, int] = {}
        for rank, report in sorted(parts.items()):
            number = report["replica"]
            first.setdefault(number, rank)
            replicas.setdefault(number, {}).update(tensors(*self._reports[rank]))
        digests = {first[number]: digest(whole) for number, whole in replicas.items()}
        return replicas[min(replicas)], digests

    def _error(self) -> WorkbenchError | None:
        """What went wrong, the cause before its consequences."""
        lost = self._lost(spare=False)
        if lost and not self._home.alive:
            return WorkbenchError(f"{self._home.end}, and the ranks with it")
        failures = {
            rank: report
            for rank, (report, _) in sorted(self._reports.items())
            if "failed" in report
        }
        iterations = {rank: self._control.rank_word(rank, ITERATION) for rank in lost}
        error = what_went_wrong(lost, failures, self.pids, iterations, self._store_now)
        if isinstance(error, RunTimeout) and (places := self._places()):
            return RunTimeout("\n  ".join([str(error), *places]))
        return error

    def _places(self) -> list[str]:
        """Of ranks that say nothing any more: the line of the user's code that they are at."""
        found = []
        for one in self._workers:
            if one.rank not in self._reports and process_state(one.pid) not in "TtZX":
                stacks = self._lookout.stacks(one.rank, partial(one.signal, ASK))
                if place := users_place(stacks):
                    words = place.words(self.experiment)
                    found.append(f"rank {one.rank} (process {one.pid}) is at {words}")
        return found

    # -- waiting --

    @property
    def done(self) -> bool:
        """Is it over, well or not?"""
        return self._finished.is_set()

    @property
    def result(self) -> Result:
        """The result if the run is over; one with ``ok=False`` and no error while it goes on."""
        return self._result

    def wait(
        self, timeout: float | None = None, check: bool = True, progress: bool | None = None
    ) -> Result:
        """Block until the run is over. ``timeout`` in seconds: RunTimeout, and the run goes on.

        Raises what the run failed with, unless ``check=False``. ``progress``: a bar in the terminal
        (default: if there is one).
        """
        if progress is None:
            progress = sys.stderr.isatty()
        if progress and not self.done:
            from workbench.progress import show_progress

            over = show_progress(self, timeout)
        else:
            over = self._wait_quietly(timeout)
        if not over:
            raise RunTimeout(
                f"the run is not over after {timeout} s (iteration {self.iteration} of "
                f"{self.experiment.iterations}); it goes on"
            )
        if check and self._result.error is not None:
            raise self._result.error
        return self._result

    def _wait_quietly(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._finished.wait(
                0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))
            ):
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        except KeyboardInterrupt:
            self.stop()
            self._finished.wait(10)
            raise
        return True

    def at_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the run is over, before whoever waits for it goes on; now, if
        it is over.
        """
        with self._lock:
            if self._at_end is not None:
                return self._at_end.append(call)
        call()

    def __await__(self) -> Generator[Any, None, Result]:
        """``result = await run``: the notebook stays responsive."""
        return self._awaited().__await__()

    async def _awaited(self) -> Result:
        while not self.done:
            await asyncio.sleep(0.02)
        return self.wait(0)

    @property
    def iteration(self) -> int:
        """The iteration that the slowest rank is in."""
        here = [rank for rank in self.pids if rank not in self._ended] or [*self.pids]
        return min(self._control.rank_word(rank, ITERATION) for rank in here)

    @property
    def loss(self) -> float:
        """The newest local losses' mean, for a progress bar."""
        if not self._all_train():
            return float("nan")
        losses = [loss for rank in self.pids if (loss := self._control.loss(rank))]  # 0: none yet
        return sum(losses) / len(losses) if losses else float("nan")

    def _all_train(self) -> bool:
        """Has every rank begun to train?"""
        ranks = range(self.experiment.ranks)
        return all(self._control.rank_word(rank, STATE) >= TRAINING for rank in ranks)

    @property
    def control_state(self) -> ControlState:
        """What is done to the ranks now, who has arrived, and who has ended by itself; as it last
        was once the run is over.
        """
        with self._lock:
            begun = [r for r, s in enumerate(self._segments) if s.words[H_MAGIC] == MAGIC]
        state = self._control.state()
        ended = dict(self._ended) if self._ended_alone is None else self._ended_alone
        words = {rank: describe_end(code) for rank, code in sorted(ended.items())}
        for rank, (report, _) in list(self._reports.items()):
            if report.get("kind") == "RankError":
                words.setdefault(rank, "raised an error")
        arrived = tuple(sorted({*state.arrived, *begun}))
        return replace(state, arrived=arrived, ended=words)

    # -- what was recorded --

    @property
    def events(self) -> pl.DataFrame:
        """The event table up to this very moment; complete once the run is over."""
        if not self.done:
            self._collector.drain()
        return self.store.events

    def overlap(self) -> Overlap:
        """What of the communication computing hides, so far: see buckets/overlap.py."""
        from workbench.buckets.overlap import measure

        return measure(self.events)

    def overhead(self) -> Overhead:
        """What recording has cost so far: records times the cost of one, timed in place on a sample
        of them, and the collector's thread.
        """
        return self._overhead(self._result.wall_seconds)

    def _overhead(self, seconds: float) -> Overhead:
        """``seconds``: how long training took, NaN while that is not known."""
        with self._lock:
            meters = self._meters or [metered(segment.memory) for segment in self._segments]
        if not seconds > 0:  # it goes on, or it failed
            since, until = self._trained_from or self._started, self._trained_until
            seconds = (until or time.monotonic()) - since
        return Overhead.of(
            len(self.store),
            self.dropped,
            meters,
            self._collector.cpu_ns * 1e-9,
            seconds * min(self.experiment.ranks, os.cpu_count() or 1),
        )

    # -- showing itself --

    def __repr__(self) -> str:
        exp = self.experiment
        strategy, task = (getattr(one, "name", one) for one in (exp.strategy, exp.task))
        return f"Run({strategy}, {task}, {counted(exp.ranks, 'rank')})"


def run(exp: Experiment) -> Run:
    """Start the Experiment ``exp`` and return at once; ranks are live.

    Raises SpecError for what cannot be, WorkbenchError where ranks cannot start.
    """
    exp = Experiment.model_validate(exp.model_dump()) if not isinstance(exp, Experiment) else exp
    return Run(exp, prepare(exp))


def tell_choice(exp: Experiment, costs: Costs, wanted: Callable[[], Store | None]) -> None:
    """What "auto" takes is known to whoever looks: the ranks find it out by themselves.

    ``wanted`` gives the run's store. Of many ranks this is many seconds' work, which is left as it
    is when nobody has the run any more.
    """
    from workbench.choosing.choose import choose, in_words, powers, ranges

    costs = costs.cut_into(exp.chunk_bytes)
    for nbytes in powers():
        if wanted() is None:
            return
        choose("all_reduce", exp.ranks, nbytes, costs)
    words = in_words(ranges("all_reduce", exp.ranks, costs))
    if (store := wanted()) is not None:
        store.metadata["auto"] = json.dumps(words)


def trace_segment(whose: str) -> Segment:
    """A trace's memory: its head reserved, each lane when the rank first needs it."""
    fd = os.memfd_create(f"workbench trace of {whose}", os.MFD_CLOEXEC)
    try:
        reserve(fd, 0, DATA_AT, f"the trace of {whose}")
        os.ftruncate(fd, TRACE_BYTES)
        return Segment(fd, TRACE_BYTES)
    except BaseException:
        os.close(fd)
        raise
