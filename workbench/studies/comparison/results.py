"""The results of a comparison's trials, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import polars as pl

from workbench.analysis import measures
from workbench.analysis.verdict import verdict
from workbench.common.arguments import Real, Text, checked
from workbench.runs.background_task import Ongoing
from workbench.studies.comparison.trials import Trial


class Results(Ongoing):
    """The trials, and the results of those that are over; ``folder``: where they are kept."""

    def __init__(self, trials: Sequence[Trial], folder: Path | None) -> None:
        super().__init__()
        self.trials, self.folder = tuple(trials), folder

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the experiments, in their order."""
        return tuple(dict.fromkeys(trial.name for trial in self.trials))

    def __getitem__(self, name: str) -> list[Trial]:
        """Return the trials of one experiment, one per seed: ``comparison["asp"][0].run``."""
        trials = [trial for trial in self.trials if trial.name == name]
        if not trials:
            raise KeyError(f"there is no {name!r}; there are {', '.join(self.names)}")
        return trials

    @checked
    def verdict(self, *measures: Text) -> str:
        """Return in a sentence which experiment comes first by these measures, and by how much:
        "By time per step, ring comes first with 41.20 ms, ..."; "" until two have finished.

        ``measures``: step_ms, loss_end, bytes_all or others of analysis/verdict.py (default: the
        time of a step). Values are means over the seeds. Raises SpecError for another measure.
        """
        decides, runs = measures or ("step_ms",), {}
        for name in self.names:
            each = [one.summary() for one in self[name] if one.state == "finished"]
            values = {of: [one.get(of) for one in each] for of in ("iterations", *decides)}
            if each:
                known = {
                    of: [one for one in all_of if one is not None] for of, all_of in values.items()
                }
                runs[name] = {of: mean(one) if one else None for of, one in known.items()}
        return verdict(runs, decides)

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
                p(name).mean(),
                p(name).min().alias(f"{name}_least"),
                p(name).max().alias(f"{name}_most"),
            ]
        done = p("state") == "finished"
        result = runs.filter(done).group_by("name").agg(pl.len().alias("seeds"), *each)
        names = pl.DataFrame({"name": [*self.names]})
        return names.join(result, on="name", how="left", maintain_order="left").with_columns(
            p("seeds").fill_null(0)
        )

    def curves(self) -> dict[str, list[pl.DataFrame]]:
        """Return name -> a table per seed: iteration, updates, seconds, loss, nbytes; and frames,
        return where an environment is played.
        """
        return {
            name: [one.losses() for one in self[name] if one.losses().height] for name in self.names
        }

    @checked
    def until(self, loss: Real) -> pl.DataFrame:
        """Return the cost until the smoothed loss was first below ``loss``.

        Columns name, seed, iterations, seconds, updates, bytes, frames; null where it never was.
        """
        from workbench.analysis.comparison import first_below

        rows = [
            {"name": one.name, "seed": one.seed, **first_below(one.losses(), loss)}
            for one in self.trials
        ]
        return pl.DataFrame(rows)

    @checked
    def reached(self, score: Real) -> pl.DataFrame:
        """Return the cost until the mean return of 20 episodes was first ``score`` or more.

        Columns as those of ``until``; null where it never was, and without an environment.
        """
        from workbench.analysis.comparison import first_reached

        rows = [
            {"name": one.name, "seed": one.seed, **first_reached(one.losses(), score)}
            for one in self.trials
        ]
        return pl.DataFrame(rows)

    @property
    def words(self) -> str:
        """The state in a line."""
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
