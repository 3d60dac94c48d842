"""Handles of asynchronous operations, and the thread that runs a group's collectives in order."""

from __future__ import annotations

import contextlib
import dis
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from workbench.common.errors import RunTimeout, timed_out
from workbench.messaging.p2p import Transfer


class WorkbenchWork(Work):
    """The handle of an asynchronous operation."""

    def __init__(self, result: list[torch.Tensor], devices: list[torch.device]) -> None:
        super().__init__()
        self._done, self._over, self._teller = threading.Event(), False, 0
        self._result, self._error = result, None
        raw: Future[Any] = Future(devices=[*devices]) if devices else Future()
        self._raw = raw
        # An error set with Future.set_exception never reaches C++; one raised in a callback does.
        self._future = raw.then(self._outcome)
        # Around telling the callers that wait: they may ask for more.
        self.telling: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    _error: BaseException | None

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise RuntimeError(f"{type(self._error).__name__}: {self._error}")
        return self._result

    def complete(self, error: BaseException | None = None) -> None:
        """Run callbacks before threads that wait go on, as over Gloo."""
        self._error = error
        self._over, self._teller = True, threading.get_ident()
        self._raw.set_result(None if error else self._result)
        self._done.set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        limit = timeout.total_seconds() if timeout else None
        if self._over and self._teller == threading.get_ident():
            pass  # one of those that are being told
        elif limit:
            if not self._done.wait(limit):
                raise RunTimeout(f"the operation was not done in time. {timed_out(limit)}")
        else:
            while not self._done.wait(1.0):
                # In slices, so that Ctrl-C gets through; the operation itself has the deadline.
                pass
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._over

    def is_success(self) -> bool:
        return self._over and self._error is None

    def exception(self) -> Any:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future[Any]:
        if self._result and self._result[0].dtype is torch.float16 and _asked_by_cpp():
            from workbench.process_group.typed_future import (
                listed,  # here: it is compiled, and seldom needed
            )

            return listed(self._future)  # type: ignore[no-any-return]
        return self._future


def _asked_by_cpp() -> bool:
    """Return whether the method that asks this was called by C++, as by DDP's reducer, and not by
    Python.

    Only a call that is seen to be one of the method by its name counts as Python's. What C++ gets,
    a future of torch's own type as Gloo's are, does for Python too.
    """
    method = sys._getframe(1)
    caller = method.f_back
    return caller is None or not _calls(caller.f_code, caller.f_lasti, method.f_code.co_name)


_NAMING = ("LOAD_METHOD", "LOAD_ATTR")


@lru_cache(256)
def _calls(code: CodeType, at: int, name: str) -> bool:
    """Return whether the instruction at ``at`` calls the attribute ``name``; both begin at one
    place.
    """
    before = [one for one in dis.get_instructions(code) if one.offset <= at]
    named = [one for one in before if one.argval == name and one.opname in _NAMING]
    here, *places = (one.positions and one.positions[::2] for one in (before[-1], *named))
    if not here or None in here:  # the interpreter was told to keep no places
        return bool(named)
    return here in places


class P2PWork(Work):
    """The handle of a message: a thread that waits for it also moves it."""

    def __init__(self, engine: Any, transfer: Transfer, result: list[torch.Tensor]) -> None:
        super().__init__()
        self.engine, self.transfer, self._result = engine, transfer, result
        self._future: Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        limit = timeout.total_seconds() if timeout else 0.0
        # torch gives 0 for "no limit"
        self.engine.progress_engine.wait(self.engine, self.transfer, limit or math.inf)
        return True

    @property
    def arrived(self) -> torch.Tensor:
        """The message: the tensor that was passed for it, or, of a receive in place, that of its
        sender, which waits until ``give_back``. It is read, and never written.
        """
        x, message = self._result[0], self.transfer.in_place
        return x if message is None else message.tensor(x.dtype)

    def give_back(self) -> None:
        """Let the sender of a message that was received in place go on."""
        self.transfer.give_back()

    def is_completed(self) -> bool:
        return self.transfer.finished

    def is_success(self) -> bool:
        return self.transfer.finished and self.transfer.error is None

    def exception(self) -> Any:
        return self.transfer.error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future[Any]:
        """Return the future, created on demand: creating one costs more than a small message."""
        if self._future is None:
            whole = WorkbenchWork(self._result, [])
            transfer, once = self.transfer, [True]

            def tell() -> None:
                with contextlib.suppress(IndexError):  # once: by us, or as it finishes
                    once.pop()
                    whole.complete(transfer.error)

            transfer.callbacks.append(tell)
            if transfer.finished:
                tell()
            self._future = whole.get_future()
        return self._future

    def _source_rank(self) -> int:
        return int(self.transfer.peer)


def wait_any(works: Sequence[Any], timeout_seconds: float = math.inf) -> list[int]:
    """Block until one of these messages is done; return the indexes of all that are done then."""
    messages = [work for work in works if isinstance(work, P2PWork)]
    if messages:
        messages[0].engine.progress_engine.poll()
    if not any(work.is_completed() for work in works):
        if works and len(messages) == len(works):
            engine = messages[0].engine
            transfers = [work.transfer for work in messages]
            engine.progress_engine.wait_any(transfers, timeout_seconds, engine.spin_ns)
        else:
            deadline, pause = time.monotonic() + timeout_seconds, 20e-6
            while not any(work.is_completed() for work in works) and time.monotonic() < deadline:
                time.sleep(pause)
                pause = min(pause * 1.5, 1e-3)
    return [i for i, work in enumerate(works) if work.is_completed()]


class JobQueue:
    """Runs a group's collectives one after the other: in the caller if it may, else on a thread."""

    def __init__(self, name: str, before: Callable[[], None]) -> None:
        """Prepare a queue whose thread calls ``before`` before each job."""
        self.before = before
        self.lock = threading.RLock()
        self._jobs: deque[tuple[Callable[[], None], WorkbenchWork]] = deque()
        self._wake = threading.Condition()
        self._running = self.closed = False
        self._thread: threading.Thread | None = None
        self._name = name

    def idle(self) -> bool:
        return not self._jobs and not self._running

    def submit(self, job: Callable[[], None], work: WorkbenchWork) -> None:
        """Append the job.

        A job submitted on the queue's own thread, by a callback of a finished collective
        (PowerSGD), goes first: it would wait for itself, and this way all ranks agree on its place.
        """
        if threading.current_thread() is self._thread:
            self._do(job, work)
            return
        with self._wake:
            self._jobs.append((job, work))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, daemon=True, name=f"workbench {self._name}"
                )
                self._thread.start()
            self._wake.notify()

    def _loop(self) -> None:
        torch.set_num_threads(1)
        while True:
            with self._wake:
                while not self._jobs and not self.closed:
                    self._wake.wait()
                if not self._jobs:
                    return
                self._running = True  # first: where no job is seen to wait, one is seen to run
                job, work = self._jobs.popleft()
            self._do(job, work)

    def _do(self, job: Callable[[], None], work: WorkbenchWork) -> None:
        error: BaseException | None = None
        self._running = True
        try:
            with self.lock:
                self.before()
                job()
        except BaseException as caught:  # it belongs to the caller that waits, exit() too
            error = caught
        self._running = False
        with work.telling():
            work.complete(error)

    def close(self, give_up: Callable[[], None], grace: float = 5.0) -> None:
        """Let the queue finish, for ``grace`` seconds; then ``give_up`` and stop the thread."""
        deadline = time.monotonic() + grace
        while not self.idle() and time.monotonic() < deadline:
            time.sleep(1e-3)
        give_up()
        with self._wake:
            self.closed = True
            self._wake.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10.0)


class AllWork(Work):
    """The handle of several operations: done when all are."""

    def __init__(self, works: Sequence[Any], result: Any) -> None:
        """Join ``works``; None among them is work that is done already."""
        super().__init__()
        self._works, self._result = [work for work in works if work is not None], result
        self._future: Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0.0
        deadline = time.monotonic() + seconds
        for work in self._works:
            left = max(1e-3, deadline - time.monotonic())
            work.wait(timedelta(seconds=left)) if seconds else work.wait()
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        return next((error for work in self._works if (error := work.exception())), None)

    def result(self) -> Any:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future[Any]:
        if self._future is None and not self._works:
            self._future = Future()
            self._future.set_result(self._result)
        elif self._future is None:
            result = self._result

            def outcome(done: Future[Any]) -> Any:
                for one in done.value():
                    one.value()  # raises what went wrong
                return result

            futures = [work.get_future() for work in self._works]
            self._future = torch.futures.collect_all(futures).then(outcome)
        return self._future
