"""``wb.compare``: several experiments, each over several seeds, on common axes.

    report = wb.compare({"bsp": exp, "asp": exp.replace(options={"consistency": "asp"})}, seeds=5)
    report.wait()

They run one after another, or ``at_once`` side by side; first all of them with the first seed, then
with the next, so that what changes on the machine meanwhile changes for all. With a ``folder`` each
one that is done is a file there (``wb.load`` reads it), and is not run again. A run that
fails is reported, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.common import threads
from workbench.common.arguments import (
    AtOnce,
    Count,
    Place,
    Seconds,
    Seeds,
    Text,
    Theme,
    checked,
)
from workbench.common.errors import RunTimeout, SpecError, WorkbenchError, short
from workbench.common.output_files import make_ready
from workbench.experiment.spec import Experiment
from workbench.runs.background_task import LOOK, run_over
from workbench.runs.history import KEEP_ROWS, History, Past
from workbench.studies.comparison.results import Results
from workbench.studies.comparison.trials import Trial, keep, names_for, recall

if TYPE_CHECKING:
    import plotly.graph_objects as go

Begin = Callable[[Trial], Past | None]  # starts a trial's run; None: this one is not to be run
Experiments = Mapping[str, Experiment] | Iterable[Experiment | tuple[str, Experiment]]


class Comparison(Results):
    """The comparison of ``compare``: live while it runs, with its results.

    ``trials`` are the single runs, an experiment and a seed each. Every property tells of what is
    done by now. In a notebook it shows itself, and follows what happens. ``begin`` starts a trial
    where runs belong to someone else, such as a page.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        at_once: int = 1,
        folder: Path | None = None,
        begin: Begin | None = None,
    ) -> None:
        super().__init__(trials, folder)
        self._begin = begin or self._start
        self._history = History(keep=len(trials) + 1, keep_rows=KEEP_ROWS)
        self._left = [trial for trial in trials if not trial.done]
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._working = min(at_once, len(self._left))
        self._threads = [
            threads.start(self._work, "workbench compare", stop=self.stop, launches=True)
            for _ in range(self._working)
        ]
        if not self._threads:
            self.ended.set()

    # ---- running

    def _work(self) -> None:
        while (trial := self._next()) is not None:
            try:
                self._run(trial)
            except Exception as error:  # of one trial; the others go on
                trial.fail(error)
        with self._lock:
            self._working -= 1
            if not self._working:
                self.ended.set()

    def _next(self) -> Trial | None:
        with self._lock:
            return self._left.pop(0) if self._left and not self._stopping.is_set() else None

    def _start(self, trial: Trial) -> Past:
        from workbench.runs.run import start

        return self._history.add(start(trial.experiment), trial.name)

    def _run(self, trial: Trial) -> None:
        if (past := self._begin(trial)) is None:
            return
        trial.past, run, stop_sent = past, past.run, False
        while not run.done:
            if self._stopping.is_set() and not stop_sent:
                run.stop()
                stop_sent = True
            run_over(run, LOOK)
        past.summary()
        if self.folder is not None and past.state == "finished":
            keep(trial, self.folder)
            past.let_go()
        self._history.make_room()

    def stop(self) -> None:
        """Stop what runs, after the iteration that is under way; start no other."""
        self._stopping.set()

    @checked
    def wait(
        self, timeout: Seconds | None = None, check: bool = False, progress: bool | None = None
    ) -> Comparison:
        """Wait until all runs are over; return this object. Ctrl-C stops them.

        ``timeout``: seconds, after which RunTimeout is raised while the runs go on. Raises
        WorkbenchError if no experiment ended well; with ``check``, if any one did not.
        ``progress``: a bar in the terminal (default: where one can be shown).
        """
        from workbench.runs.progress import show_comparison

        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting(), show_comparison(self, progress) as look:
            while not self.ended.wait(LOOK):
                look()
                if deadline is not None and time.monotonic() >= deadline:
                    raise RunTimeout(
                        f"timed out: the comparison is not over after {timeout} s ({self.words}); "
                        "it goes on"
                    )
            look()
        failed = [trial for trial in self.trials if trial.state == "failed"]
        if failed and (check or len(failed) == len(self.trials)):
            raise WorkbenchError("\n".join(f"{one.label}: {one.error}" for one in failed))
        return self

    # ---- in charts

    @checked
    def figure(self, *by: Text, theme: Theme = "light", smooth: Count | None = None) -> go.Figure:
        """Plot losses on common axes: ``by`` updates, seconds, bytes, iterations; all by default.

        Of runs that all play an environment: their returns, by frames too.
        A line is the mean over the seeds; its band reaches from the least to the most. ``smooth``:
        the number of points over which the loss is averaged, going back (default: a fortieth of the
        curve). ``theme``: light or dark.
        """
        from workbench.analysis.comparison import compared
        from workbench.views.pages.figures import grid

        return grid(compared(self.curves(), theme, by, smooth), theme)

    @checked
    def against(self, option: Text, *measures: Text, theme: Theme = "light") -> go.Figure:
        """Plot measures against the experiments' values of an option or field.

        ``against("bucket_cap_mb")``. ``measures``: names of ``measures.MEASURES`` (default: the
        time of
        an iteration, and its exposed communication). ``theme``: light or dark. Raises SpecError for
        an
        unknown measure.
        """
        from workbench.analysis import measures as kinds
        from workbench.analysis.option_costs import against, value_of
        from workbench.views.pages.figure_with_still import with_picture
        from workbench.views.pages.figures import grid

        values = {name: value_of(self[name][0].experiment, option) for name in self.names}
        selection = measures or ("step_ms", "exposed_ms")
        for name in selection:
            if name not in kinds.MEASURES or name in kinds.WORDS:
                raise SpecError(
                    f"there is no measure {name!r}; see workbench.analysis.measures.MEASURES"
                )
        table = self.table
        known = [name for name in selection if name in table.columns]
        result = grid([against(values, table, option, known, theme)], theme)
        return with_picture(result, against(values, table, option, known))

    # ---- in a notebook

    def _shower(self) -> Callable[[Any], None]:
        from workbench.studies.comparison.display import show

        return show


@checked
def compare(
    experiments: Experiments,
    *,
    seeds: Seeds | None = None,
    at_once: AtOnce = 1,
    folder: Place | None = None,
) -> Comparison:
    """Run these experiments; returns at once, ``wait()`` or ``await`` waits.

    experiments  name -> experiment, or a list of experiments or of (name, experiment). Those that
                 have no name are named by what sets them apart.
    seeds        how many (from the experiment's own on) or which; left out: the experiment's own
    at_once      how many run side by side: they share the cores, so their times say less
    folder       where those that are done are kept, and found again; made if it is not there

    Raises SpecError for what cannot be, before anything runs.

    >>> ring = wb.Experiment(iterations=20, all_reduce="ring")
    >>> print(wb.compare([ring, ring.replace(all_reduce="tree")]).wait())
    """
    named = names_for(_named_experiments(experiments))
    trials = [
        Trial(name, exp.replace(seed=seed), seed)
        for number in range(len(_seeds(seeds, 0)))
        for name, exp in named
        for seed in [_seeds(seeds, exp.seed)[number]]
    ]
    place = None
    if folder is not None:
        place = Path(folder).expanduser()
        try:
            make_ready(place / "run.parquet", "runs")
        except WorkbenchError as error:
            raise SpecError(f"folder = {str(folder)!r}: {error}") from None
        for trial in trials:
            recall(trial, place)
    return Comparison(trials, at_once, place)


def _named_experiments(experiments: Experiments) -> list[tuple[str, Experiment]]:
    """Return (name or "", experiment) for every accepted form of the argument."""
    if isinstance(experiments, Experiment):
        raise SpecError("compare takes several experiments: a list, or name -> experiment")
    each = experiments.items() if isinstance(experiments, Mapping) else experiments
    if not isinstance(each, Iterable):
        raise SpecError(
            f"compare(experiments={short(each)}): experiments must be a list of Experiments, or "
            "name -> Experiment"
        )
    result: list[tuple[str, Experiment]] = []
    for number, one in enumerate(each):
        name, exp = one if isinstance(one, tuple) and len(one) == 2 else ("", one)
        if not isinstance(exp, Experiment) or not isinstance(name, str):
            raise SpecError(
                f"experiments[{number}] is {type(exp).__name__}: each is an Experiment, or a pair "
                "(name, Experiment)"
            )
        result.append((name, exp))
    if not result:
        raise SpecError("compare was given no experiment")
    return result


def _seeds(seeds: int | Sequence[int] | None, default: int) -> list[int]:
    if seeds is None:
        return [default]
    result = list(range(default, default + seeds)) if isinstance(seeds, int) else [*seeds]
    if not result or len({*result}) < len(result):
        raise SpecError(f"seeds = {seeds!r}: a number from 1 on, or numbers that all differ")
    return result
