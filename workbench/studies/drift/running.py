"""The runs of a report, one after another, and their measurements."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Self

from workbench.common import threads
from workbench.common.arguments import Seconds, checked
from workbench.common.errors import RunTimeout, WorkbenchError
from workbench.runs.background_task import LOOK, Ongoing, run_over
from workbench.studies.drift.judge import RESUMED
from workbench.studies.drift.measure import Distance, distance
from workbench.studies.drift.plan import SEQUENTIAL, Planned, plan_alone, plan_of, plan_resumed
from workbench.studies.drift.probe import Gradients, gradients_of
from workbench.studies.drift.rank_gradients import RankMatch, match_ranks
from workbench.studies.drift.resuming import Resumed, may_lose
from workbench.studies.drift.subjects import Subject

if TYPE_CHECKING:
    from workbench.runs.run import Run
    from workbench.store.result import Result
    from workbench.studies.drift.first_update import Match, Start


@dataclass
class OnOneRank:
    """A loop beside the same loop on one rank."""

    distances: dict[tuple[str, int], Distance] = field(default_factory=dict)  # by dtype, updates
    losses: dict[str, list[float]] = field(default_factory=dict)  # of one rank, by dtype
    match: RankMatch | None = None
    error: str | None = None  # why the loop does not run on one rank


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
        self._ends: dict[str, Mapping[str, Any]] = {}  # the last parameters in float64
        self._resumed: dict[str, Resumed] = {}
        self._kept: dict[tuple[str, str, int], Mapping[str, Any]] = {}  # parameters of loops
        self._on_one_rank: dict[str, OnOneRank] = {}
        self._start: Start | None = None
        self._running: Run | None = None
        self._stopping, self._count = threading.Event(), 0
        self._thread = threads.start(self._work, "workbench drift", stop=self.stop, launches=True)

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
            if not self._stopping.is_set() and SEQUENTIAL not in self._errors:
                self._compare_with_one_rank()
                self._name_resumed()
        except Exception as error:  # the caller that waits must hear of it
            self._errors[SEQUENTIAL] = str(error) or repr(error)
        for result in self._results.values():
            result.parameters = {}
        self._ends.clear()
        self._kept.clear()
        self.ended.set()

    def _prepare(self) -> None:
        """Compute where training starts, in this process."""
        from workbench.studies.drift.first_update import start_of

        self._start = start_of(self.subjects[0].experiment)
        if not self._start.draws:  # then there is nothing to see of a generator's state
            self.subjects = tuple(one for one in self.subjects if not one.draws)
            self.plan = plan_of(self.subjects, self.at)

    def _do(self, one: Planned) -> None:
        result = self._result(one)
        if not result.ok:
            self._errors[one.name] = str(result.error)
        elif not self._stopping.is_set():
            self._take(one, result)

    def _result(self, one: Planned) -> Result:
        """Do a run, and wait for its end."""
        from workbench.runs.run import start

        self._running = start(one.experiment)
        while not self._running.done:
            if self._stopping.is_set():
                self._running.stop()
            run_over(self._running, LOOK)
        result = self._running.result
        self._running = None
        return result

    def _differs(self, name: str) -> bool:
        """Return whether a training is not sequential training."""
        raise NotImplementedError

    def _compare_with_one_rank(self) -> None:
        """Run the loops that are not sequential training on one rank, too."""
        for one in self.subjects:
            if one.alone is None or not self._differs(one.name):
                continue
            plan = plan_alone(one, self.at)
            self.plan += plan
            beside, gradients = OnOneRank(), list[Gradients]()
            for run in plan:
                if self._stopping.is_set():
                    return
                if beside.error is None:
                    result = self._result(run)
                    if not result.ok:
                        beside.error = str(result.error)
                    elif run.probe:
                        gradients.append(gradients_of(result.parameters))
                    else:
                        self._put_beside(one, run, result, beside)
                self._count += 1
            if len(gradients) == 2 and self._start is not None:
                beside.match = match_ranks(gradients[1], gradients[0], self._start)
            self._on_one_rank[one.name] = beside

    def _put_beside(self, one: Subject, run: Planned, result: Result, beside: OnOneRank) -> None:
        assert self._start is not None
        _, dtype, updates = run.key
        mine = self._kept[one.name, dtype, updates]
        beside.distances[dtype, updates] = distance(mine, result.parameters, self._start.parameters)
        beside.losses[dtype] = result.losses

    def _resumptions(self, name: str) -> Iterable[int]:
        """Return the iterations at which a training may have resumed, by what is known of it."""
        raise NotImplementedError

    def _name_resumed(self) -> None:
        """Find those that equal one process that resumed without some of its state."""
        assert self._start is not None
        ground, last = self.subjects[0].experiment, self.at[-1]
        known: dict[Resumed, Mapping[str, Any]] = {}
        for name in [one.name for one in self.subjects if one.name in self._ends]:
            for at, lost in product(
                self._resumptions(name), may_lose(ground, draws=self._start.draws)
            ):
                what = Resumed(lost, at)
                if what not in known and not self._stopping.is_set():
                    result = self._result(plan_resumed(ground, lost, at))
                    known[what] = result.parameters if result.ok else {}
                if not known.get(what):
                    continue
                far = distance(self._ends[name], known[what], self._start.parameters).share
                if far <= RESUMED * self._distances[name, "float64", last].share:
                    self._resumed[name] = what
                    break

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
        if (dtype, updates) == ("float64", self.at[-1]):
            self._ends[name] = result.parameters
        if updates in (self.at[0], self.at[-1]) and self._is_loop(name):
            self._kept[one.key] = result.parameters
        result.parameters = {}  # a large model has many of them
        self._results[one.key] = result
        self._distances[one.key] = far  # last: a reader meanwhile finds its result

    def _is_loop(self, name: str) -> bool:
        return any(one.name == name and one.alone is not None for one in self.subjects)

    def stop(self) -> None:
        """Stop the current run, and start no other."""
        self._stopping.set()

    @checked
    def wait(self, timeout: Seconds | None = None, progress: bool | None = None) -> Self:
        """Wait until all runs are over; return this object. Ctrl-C stops them.

        ``timeout``: seconds, after which RunTimeout is raised while the runs go on. ``progress``: a
        bar in the terminal (default: where one can be shown). Raises WorkbenchError if there is no
        sequential training to compare with.
        """
        from workbench.runs.progress import show_drift

        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting(), show_drift(self, progress) as look:
            while not self.ended.wait(LOOK):
                look()
                if deadline is not None and time.monotonic() >= deadline:
                    raise RunTimeout(
                        f"timed out: not over after {timeout} s ({self.words}); it goes on"
                    )
            look()
        if SEQUENTIAL in self._errors:
            raise WorkbenchError(self.words)
        return self

    @property
    def over(self) -> int:
        """The number of planned runs that are done."""
        return self._count

    @property
    def words(self) -> str:
        """The state in a line."""
        if SEQUENTIAL in self._errors:
            return f"there is nothing to compare with: {self._errors[SEQUENTIAL]}"
        return f"{self.over} of {len(self.plan)} runs done"
