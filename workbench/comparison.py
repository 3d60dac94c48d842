"""``wb.compare``: several experiments, each over several seeds, on common axes.

    found = wb.compare({"bsp": exp, "asp": exp.replace(options={"consistency": "asp"})}, seeds=5)
    found.wait()

They run one after another, or ``at_once`` side by side; first all of them with the first seed, then
with the next, so that what changes on the machine meanwhile changes for all. With a ``folder`` each
one that is done is a file there (``wb.load`` reads it), and is not run again. One that fails is
said, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import measures
from workbench.errors import RunTimeout, SpecError, WorkbenchError
from workbench.history import KEEP_ROWS, History
from workbench.ongoing import LOOK, Ongoing, run_over
from workbench.spec import Experiment
from workbench.trials import Trial, keep, names_for, recall

if TYPE_CHECKING:
    import plotly.graph_objects as go

Experiments = Mapping[str, Experiment] | Iterable[Experiment | tuple[str, Experiment]]


class Comparison(Ongoing):
    """What ``compare`` gives: live while it runs, and what was found.

    ``trials`` are the single runs, an experiment and a seed each. Every property tells of what is
    done by now. In a notebook it shows itself, and follows what happens.
    """

    def __init__(
        self, trials: Sequence[Trial], at_once: int = 1, folder: Path | None = None
    ) -> None:
        super().__init__()
        self.trials, self.folder = tuple(trials), folder
        self._history = History(keep=len(trials) + 1, keep_rows=KEEP_ROWS)
        self._left = [trial for trial in trials if not trial.done]
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._working = min(at_once, len(self._left))
        self._threads = [
            threading.Thread(target=self._work, name="workbench compare", daemon=True)
            for _ in range(self._working)
        ]
        if not self._threads:
            self.ended.set()
        for thread in self._threads:
            thread.start()

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

    def _run(self, trial: Trial) -> None:
        from workbench.run import run as start

        run = start(trial.experiment)
        trial.past = past = self._history.add(run, trial.name)
        asked = False
        while not run.done:
            if self._stopping.is_set() and not asked:
                run.stop()
                asked = True
            run_over(run, LOOK)
        past.summary()
        if self.folder is not None and past.state == "finished":
            keep(trial, self.folder)
            past.let_go()
        self._history.make_room()

    def stop(self) -> None:
        """Stop what runs, after the iteration that is under way; start no other."""
        self._stopping.set()

    def wait(
        self, timeout: float | None = None, check: bool = False, progress: bool | None = None
    ) -> Comparison:
        """Block until all is over; gives itself. ``timeout`` in seconds: RunTimeout, and it goes
        on. Ctrl-C stops it.

        Raises WorkbenchError if no experiment came to its end; with ``check``, if one did not.
        ``progress``: a bar in the terminal (default: if there is one).
        """
        from workbench.progress import show_comparison

        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting(), show_comparison(self, progress) as look:
            while not self.ended.wait(LOOK):
                look()
                if deadline is not None and time.monotonic() >= deadline:
                    raise RunTimeout(
                        f"the comparison is not over after {timeout} s ({self.words}); it goes on"
                    )
            look()
        failed = [trial for trial in self.trials if trial.state == "failed"]
        if failed and (check or len(failed) == len(self.trials)):
            raise WorkbenchError("\n".join(f"{one.label}: {one.error}" for one in failed))
        return self

    # ---- what was found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the experiments, in their order."""
        return tuple(dict.fromkeys(trial.name for trial in self.trials))

    def __getitem__(self, name: str) -> list[Trial]:
        """The trials of one experiment, a seed each: ``found["asp"][0].run``."""
        own = [trial for trial in self.trials if trial.name == name]
        if not own:
            raise KeyError(f"there is no {name!r}; there are {', '.join(self.names)}")
        return own

    @property
    def runs(self) -> pl.DataFrame:
        """A row a trial: name, seed, error, and all of measures.MEASURES as numbers."""
        rows = [
            {"name": one.name, "seed": one.seed, "error": one.error}
            | {name: one.summary()[name] for name in measures.MEASURES}
            for one in self.trials
        ]
        words = ("name", "error", *measures.WORDS)
        schema = {
            name: pl.String() if name in words else pl.Int64() if name == "seed" else pl.Float64()
            for name in rows[0]
        }
        return pl.DataFrame(rows, schema=schema, strict=False)

    @property
    def table(self) -> pl.DataFrame:
        """A row an experiment: name, how many seeds came to their end, and of each measure the
        mean, the least and the most over them: loss_end, loss_end_least, loss_end_most.
        """
        p, runs = pl.col, self.runs
        numbers = [name for name in measures.MEASURES if name not in measures.WORDS]
        known = [name for name in numbers if runs[name].null_count() < runs.height]
        each = [p("strategy").first(), p("algorithm").first()]
        for name in known:
            each += [
                p(name).mean(), p(name).min().alias(f"{name}_least"),
                p(name).max().alias(f"{name}_most"),
            ]  # fmt: skip
        done = p("state") == "finished"
        found = runs.filter(done).group_by("name").agg(pl.len().alias("seeds"), *each)
        names = pl.DataFrame({"name": [*self.names]})
        return names.join(found, on="name", how="left", maintain_order="left").with_columns(
            p("seeds").fill_null(0)
        )

    def curves(self) -> dict[str, list[pl.DataFrame]]:
        """Name -> a table a seed: iteration, updates, seconds, loss, nbytes."""
        return {
            name: [one.losses() for one in self[name] if one.losses().height] for name in self.names
        }

    def figure(self, *by: str, theme: str = "light", smooth: int | None = None) -> go.Figure:
        """Losses on common axes: ``by`` updates, seconds, bytes, iterations; all by default.

        A line is the mean over the seeds, its band reaches from the least to the most. ``smooth``:
        over how many points the loss is averaged, going back (default: a fortieth of the curve).
        ``theme``: light or dark.
        """
        from workbench.views.charts import grid
        from workbench.views.compared import compared

        return grid(compared(self.curves(), theme, by, smooth), theme)

    def against(self, option: str, *measures: str, theme: str = "light") -> go.Figure:
        """Measures (names of ``measures.MEASURES``; default: a step, and what of it is exposed)
        against what each experiment has of an option or field: ``against("bucket_cap_mb")``.
        ``theme``: light or dark. Raises ValueError if there is no such measure.
        """
        from workbench import measures as kinds
        from workbench.views.against import against, value_of
        from workbench.views.charts import grid
        from workbench.views.pictured import pictured

        values = {name: value_of(self[name][0].experiment, option) for name in self.names}
        wanted = measures or ("step_ms", "exposed_ms")
        for name in wanted:
            if name not in kinds.MEASURES or name in kinds.WORDS:
                raise ValueError(f"there is no measure {name!r}; see workbench.measures.MEASURES")
        table = self.table
        known = [name for name in wanted if name in table.columns]
        made = grid([against(values, table, option, known, theme)], theme)
        return pictured(made, against(values, table, option, known))

    def until(self, loss: float) -> pl.DataFrame:
        """What it took until the smoothed loss was first below ``loss``: columns name, seed,
        iterations, updates, seconds, bytes; null where it never was.
        """
        from workbench.views.compared import first_below

        rows = [
            {"name": one.name, "seed": one.seed, **first_below(one.losses(), loss)}
            for one in self.trials
        ]
        return pl.DataFrame(rows)

    @property
    def words(self) -> str:
        """How it stands, in a line."""
        states = [trial.state for trial in self.trials]
        parts = [f"{states.count('finished')} of {len(states)} runs done"]
        for state in ("running", "starting", "failed", "stopped"):
            if state in states:
                parts.append(f"{states.count(state)} {state}")
        if recalled := sum(trial.recalled for trial in self.trials):
            parts.append(f"{recalled} from {self.folder}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"Comparison({' · '.join(self.names)}: {self.words})"

    # ---- in a notebook

    def _shower(self) -> Callable[[Any], None]:
        from workbench.views.compared_display import show

        return show


def compare(
    experiments: Experiments,
    *,
    seeds: int | Sequence[int] | None = None,
    at_once: int = 1,
    folder: str | Path | None = None,
) -> Comparison:
    """Run these experiments; returns at once, ``wait()`` or ``await`` waits.

    experiments  name -> experiment, or a list of experiments or of (name, experiment). Those that
                 have no name are named by what sets them apart.
    seeds        how many (from the experiment's own on) or which; left out: the experiment's own
    at_once      how many run side by side: they share the cores, so their times say less
    folder       where those that are done are kept, and found again; made if it is not there

    Raises SpecError for what cannot be, before anything runs.
    """
    named = names_for(_listed(experiments))
    if at_once < 1:
        raise SpecError(f"at_once = {at_once}: it is 1 or more")
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
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"folder = {str(folder)!r}: {error.strerror}") from None
        for trial in trials:
            recall(trial, place)
    return Comparison(trials, at_once, place)


def _listed(experiments: Experiments) -> list[tuple[str, Experiment]]:
    """(name or "", experiment) of whatever way they were given."""
    if isinstance(experiments, Experiment):
        raise SpecError("compare takes several experiments: a list, or name -> experiment")
    each = experiments.items() if isinstance(experiments, Mapping) else experiments
    found: list[tuple[str, Experiment]] = []
    for number, one in enumerate(each):
        name, exp = one if isinstance(one, tuple) and len(one) == 2 else ("", one)
        if not isinstance(exp, Experiment) or not isinstance(name, str):
            raise SpecError(
                f"experiments[{number}] is {type(exp).__name__}: each is an Experiment, or a pair "
                "(name, Experiment)"
            )
        found.append((name, exp))
    if not found:
        raise SpecError("compare was given no experiment")
    return found


def _seeds(seeds: int | Sequence[int] | None, own: int) -> list[int]:
    if seeds is None:
        return [own]
    found = list(range(own, own + seeds)) if isinstance(seeds, int) else [*seeds]
    if not found or len({*found}) < len(found):
        raise SpecError(f"seeds = {seeds!r}: a number from 1 on, or numbers that all differ")
    return found
