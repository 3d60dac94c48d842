"""A run: real ranks at work, live in the driver's hands; and the result that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench import wire
from workbench.control import (  # fmt: skip
    ABORT,
    ABORTED,
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
    CollectiveError,
    PeerLost,
    RankError,
    RunTimeout,
    SpecError,
    WorkbenchError,
)
from workbench.events import DATA_AT, H_MAGIC, MAGIC, TRACE_BYTES, Recorder, metered
from workbench.launchers.local import RankProcess, nursery
from workbench.meter import Samples
from workbench.result import Overhead, Result, mean_losses, tensors
from workbench.shared import Segment, describe_end, process_state, reserve
from workbench.shown import Shown
from workbench.spec import Experiment, Slow
from workbench.steering import Steering

if TYPE_CHECKING:
    from workbench.collector import Collector
    from workbench.store import Store

NOTICE, AFTERMATH = (
    0.15,
    0.4,
)  # seconds after a failure: then survivors are told; then they are ended
_ERRORS: dict[str, type[WorkbenchError]] = {
    error.__name__: error
    for error in (CollectiveError, RankError, RunTimeout, SpecError, WorkbenchError)
}


class Run(Steering, Shown):
    """A live run.

    Every method returns at once, but for ``wait``; all of them may be called from any thread.
    """

    def __init__(self, exp: Experiment) -> None:
        from workbench.collector import Collector
        from workbench.store import Store

        self.experiment = exp
        self._control = Control.create(exp.ranks)
        self._set_up_links(exp)
        self.store: Store = Store(metadata={"experiment": exp.to_yaml()})
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
        self._ended: dict[int, int] = {}
        self._ended_alone: dict[int, int] | None = None  # before the driver ended the rest
        self._started = time.monotonic()
        self._trained_from = self._trained_until = 0.0  # all ranks were in training
        self._meters: list[tuple[Samples, float]] = []  # what remains of the ranks' meters
        self._processes = self._launch(exp)
        self.pids: dict[int, int] = {
            rank: process.pid for rank, process in enumerate(self._processes)
        }
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

    def _launch(self, exp: Experiment) -> list[RankProcess]:
        home = self._home = nursery()  # first: it imports torch while we do
        from torch._C._distributed_c10d import TCPStore

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(exp.ranks + 8)
        port = listener.getsockname()[1]
        self._rendezvous = TCPStore(
            "127.0.0.1",
            port,
            None,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        processes = home.take(exp.ranks)
        cores = os.cpu_count() or 1
        threads = exp.threads or max(1, cores // exp.ranks)
        self.store.metadata |= {"cores": str(cores), "threads": str(threads)}
        spec = exp.to_json()
        for rank, process in enumerate(processes):
            home.watch(process.pid, self._on_end(rank))
            orders = {"rank": rank, "spec": spec, "port": port, "threads": threads}
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # one that died is seen by the watch
                wire.send(
                    process.socket, orders, fds=[self._control.segment.fd, self._segments[rank].fd]
                )
        return processes

    def _on_end(self, rank: int) -> Callable[[int, int], None]:
        def ended(pid: int, code: int) -> None:
            self._ended[rank] = code

        return ended

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
            for rank, process in enumerate(self._processes):
                selector.register(process.socket, selectors.EVENT_READ, rank)
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
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        try:
            message = wire.receive(sock)
        except (OSError, ValueError):
            message = None
        if message is None:  # its end is told by the nursery, with its cause
            selector.unregister(sock)
        else:
            self._reports[key.data] = (message[0], message[1])

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
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.socket.close()
        deadline = time.monotonic() + (1.0 if result.ok else 0.0)
        while len(self._ended) < self.experiment.ranks and time.monotonic() < deadline:
            time.sleep(0.002)
        for rank in self.pids:
            self._signal(rank, signal.SIGKILL)
        deadline = time.monotonic() + 5.0
        while len(self._ended) < self.experiment.ranks and time.monotonic() < deadline:
            time.sleep(0.002)
        self._collector.stop()
        self.store.metadata["ok"] = str(result.ok)
        if result.error is not None:
            self.store.metadata["error"] = str(result.error)
        self._trained_until = time.monotonic()
        self._meters = [metered(segment.memory) for segment in self._segments]
        self.store.metadata["overhead"] = self._overhead(result.wall_seconds).to_json()
        for segment in (*self._segments, self._driver_trace, self._control.segment):
            segment.close()
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
            first = min(report["started_ns"] for report in trained)
            result.wall_seconds = (max(report["ended_ns"] for report in trained) - first) / 1e9
        if 0 in done:
            result.metrics = done[0]["metrics"]
            result.parameters = tensors(*self._reports[0])
        return result

    def _error(self) -> WorkbenchError | None:
        """What went wrong, the cause before its consequences."""
        lost = self._lost(spare=False)
        failures = {
            rank: report
            for rank, (report, _) in sorted(self._reports.items())
            if "failed" in report
        }
        own = {rank: report for rank, report in failures.items() if report["kind"] != "PeerLost"}
        if lost and not self._home.alive:
            return WorkbenchError(f"{self._home.end}, and the ranks with it")
        if lost:
            rank, code = min(lost.items())
            return PeerLost(
                f"rank {rank} (process {self.pids[rank]}) was {describe_end(code)} in iteration "
                f"{self._control.rank_word(rank, ITERATION)}. "
                f"Under way: {self._under_way(failures)}",
                rank,
            )
        if own:
            rank, report = min(own.items(), key=lambda item: (_knows_least(item[1]), item[0]))
            others = [
                other for other in own if other != rank and own[other]["text"] != report["text"]
            ]
            text = report["text"]
            if report["kind"] == "RankError":
                return RankError(f"rank {rank} raised:\n{text}", rank)
            more = "".join(f"\n  rank {other}: {own[other]['text']}" for other in others)
            return _ERRORS.get(report["kind"], WorkbenchError)(text + more + self._stopped_ranks())
        if failures:
            rank, report = next(iter(failures.items()))
            return PeerLost(report["text"], report["lost"])
        return None

    def _stopped_ranks(self) -> str:
        """Who is stopped right now: a rank that waits for one that waits for it cannot know."""
        return "".join(
            f"\n  rank {rank} (process {pid}) is stopped (SIGSTOP)"
            for rank, pid in self.pids.items()
            if process_state(pid) in "Tt"
        )

    def _under_way(self, failures: dict[int, dict[str, Any]]) -> str:
        """What every rank was in when the run failed, dead ones too, from the status blocks."""
        told = {
            rank: report["text"]
            for rank, report in failures.items()
            if report["kind"] != "WorkbenchError"
        }
        for row in self._store_now.iter_rows(named=True):
            if row["rank"] >= 0 and row["rank"] not in told:
                what = " ".join(
                    str(part)
                    for part in (row["collective"] or row["kind"], row["op"])
                    if part not in ("", -1)
                )
                told[row["rank"]] = f"in {what}" + (
                    f", step {row['step']}, chunk {row['chunk']}" if row["step"] >= 0 else ""
                )
        return (
            "; ".join(f"rank {rank}: {text}" for rank, text in sorted(told.items()))
            or "nothing was said"
        )

    # -- waiting --

    @property
    def done(self) -> bool:
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
        return f"Run({strategy}, {task}, {exp.ranks} ranks)"


def run(exp: Experiment) -> Run:
    """Start the experiment and return at once; ranks are live.

    Raises SpecError for what cannot be.
    """
    exp = Experiment.model_validate(exp.model_dump()) if not isinstance(exp, Experiment) else exp
    if exp.memory_limit is not None:
        raise SpecError(
            f"memory_limit={exp.memory_limit!r}: strategy {exp.strategy!r} does not measure "
            "memory; leave it out"
        )
    return Run(exp)


def trace_segment(whose: str) -> Segment:
    """A trace's memory: its head reserved, each lane when the rank first needs it."""
    fd = os.memfd_create(f"workbench trace of {whose}", os.MFD_CLOEXEC)
    reserve(fd, 0, DATA_AT, f"the trace of {whose}")
    os.ftruncate(fd, TRACE_BYTES)
    return Segment(fd, TRACE_BYTES)


def _knows_least(report: dict[str, Any]) -> tuple[bool, bool]:
    """Sorts failed ranks' reports: whoever was told to end knows nothing of the cause; and who
    waits for a stopped process knows more than who waits for a rank that waits itself."""
    return report["text"] == ABORTED, "SIGSTOP" not in report["text"]
