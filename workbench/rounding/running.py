"""The runs of a report, one after another, and what is measured of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from workbench.errors import RunTimeout, WorkbenchError
from workbench.ongoing import LOOK, Ongoing, run_over
from workbench.rounding.measure import Distance, distance
from workbench.rounding.plan import SEQUENTIAL, Planned, plan_of
from workbench.rounding.subjects import Subject

if TYPE_CHECKING:
    from workbench.result import Result
    from workbench.rounding.first_update import Match, Start
    from workbench.run import Run


class Runs(Ongoing):
    """They run in a thread of their own, and end with it; each is measured as it is over."""

    def __init__(self, subjects: Sequence[Subject], at: Sequence[int]) -> None:
        super().__init__()
        self.subjects, self.at = tuple(subjects), tuple(at)
        self.plan = plan_of(subjects, at)
        self._results: dict[tuple[str, str, int], Result] = {}
        self._distances: dict[tuple[str, str, int], Distance] = {}
        self._matches: dict[str, Match] = {}
        self._errors: dict[str, str] = {}
        self._start: Start | None = None
        self._running: Run | None = None
        self._stopping, self._count = threading.Event(), 0
        self._thread = threading.Thread(target=self._work, name="workbench drift", daemon=True)
        self._thread.start()

    # ---- running

    def _work(self) -> None:
        try:
            self._prepare()
            for one in self.plan:
                if self._stopping.is_set():
                    break
                if one.name not in self._errors and SEQUENTIAL not in self._errors:
                    self._do(one)
                self._count += 1
        except Exception as error:  # whoever waits must hear of it
            self._errors[SEQUENTIAL] = str(error) or repr(error)
        for result in self._results.values():
            result.parameters = {}
        self.ended.set()

    def _prepare(self) -> None:
        """What one process can work out of the task: where training starts."""
        from workbench.rounding.first_update import start_of

        self._start = start_of(self.subjects[0].experiment)

    def _do(self, one: Planned) -> None:
        from workbench.run import run

        self._running = run(one.experiment)
        while not self._running.done:
            if self._stopping.is_set():
                self._running.stop()
            run_over(self._running, LOOK)
        result = self._running.result
        self._running = None
        if not result.ok:
            self._errors[one.name] = str(result.error)
        elif not self._stopping.is_set():
            self._take(one, result)

    def _take(self, one: Planned, result: Result) -> None:
        """Measure a run that is over against the sequential one, which is run before it."""
        assert self._start is not None
        name, dtype, updates = one.key
        if one.probe:
            self._matches[name] = self._start.match(result.parameters, one.experiment.rate_at(0))
            return
        if name == SEQUENTIAL:
            self._results[one.key] = result
            return
        same = self._results[SEQUENTIAL, dtype, updates]
        try:
            far = distance(result.parameters, same.parameters, self._start.parameters)
        except ValueError as error:
            self._errors[name] = str(error)
            return
        if (dtype, updates) == ("float64", 1) and one.experiment.optimizer == "sgd":
            rate = one.experiment.rate_at(0)
            self._matches[name] = self._start.match(result.parameters, rate)
        result.parameters = {}  # a large model has many of them
        self._results[one.key] = result
        self._distances[one.key] = far  # last: whoever reads meanwhile finds its result

    def stop(self) -> None:
        """Stop the run that is under way; start no other."""
        self._stopping.set()

    def wait(self, timeout: float | None = None, progress: bool | None = None) -> Self:
        """Block until all is over; gives itself. ``timeout`` in seconds: RunTimeout, and it goes
        on. Ctrl-C stops it.

        ``progress``: a bar in the terminal (default: if there is one). Raises
        WorkbenchError if there is nothing to compare with.
        """
        from workbench.progress import show_drift

        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting(), show_drift(self, progress) as look:
            while not self.ended.wait(LOOK):
                look()
                if deadline is not None and time.monotonic() >= deadline:
                    raise RunTimeout(f"not over after {timeout} s ({self.words}); it goes on")
            look()
        if SEQUENTIAL in self._errors:
            raise WorkbenchError(self.words)
        return self

    @property
    def over(self) -> int:
        """How many of the planned runs are done."""
        return self._count

    @property
    def words(self) -> str:
        """How it stands, in a line."""
        if SEQUENTIAL in self._errors:
            return f"there is nothing to compare with: {self._errors[SEQUENTIAL]}"
        return f"{self.over} of {len(self.plan)} runs done"
