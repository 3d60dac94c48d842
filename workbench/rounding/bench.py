"""``wb.drift``: is it a bug, or rounding?

    wb.drift()                        data parallel training beside five ways to get it wrong
    wb.drift(train)                   a strategy of your own: train(job, config)
    wb.drift(loop)                    a plain loop: loop(rank, size, model, minibatches)
    print(wb.drift(loop).wait())      what it found, in words

Each is run in float32 and in float64 against sequential training, and ends after 1, 2, 5, 10 ...
updates (a run each: then its parameters are those after exactly so many). judge.py has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench.errors import SpecError
from workbench.rounding.judge import Evidence, Finding, judge
from workbench.rounding.measure import apart
from workbench.rounding.plan import AT, DTYPES, SEQUENTIAL
from workbench.rounding.running import Runs
from workbench.rounding.subjects import Given, Subject, subjects_of
from workbench.source import available

if TYPE_CHECKING:
    import plotly.graph_objects as go

TABLE = pl.Schema(
    {"subject": pl.String(), "mutant": pl.Boolean(), "dtype": pl.String(), "iterations": pl.Int64(),
     "ulps_max": pl.Float64(), "ulps_median": pl.Float64(), "share": pl.Float64(),
     "loss": pl.Float64(), "identical": pl.Boolean()}
)  # fmt: skip


class Report(Runs):
    """What ``drift`` gives: live while it runs, and what was found."""

    # ---- what was found

    @property
    def verdict(self) -> str:
        """Of the (first) subject: "rounding", "no difference", "bug: ..." or "failed: ..."."""
        return self.verdicts[self.subjects[0].name]

    @property
    def verdicts(self) -> dict[str, str]:
        """By name, the mutants' too."""
        return {name: found.verdict for name, found in self.findings.items()}

    @property
    def ok(self) -> bool:
        """Is what was given equal to sequential training, and is every mutant found?"""
        found = self.findings
        return all(
            (found[one.name].kind == "bug") == one.mutant and found[one.name].kind != "failed"
            for one in self.subjects
        )

    @property
    def findings(self) -> dict[str, Finding]:
        """By name: kind, which bug, the reasons, and since which iteration. Grows with the runs."""
        return {one.name: self._judge(one) for one in self.subjects}

    def _judge(self, one: Subject) -> Finding:
        name = one.name
        own = [key for key in list(self._distances) if key[0] == name]
        if not own and name not in self._errors:
            return Finding("waiting")
        reference_losses = self._longest(SEQUENTIAL, "float64")
        shares = [{k: self._distances[n, d, k].share for n, d, k in own if d == dtype}
                  for dtype in DTYPES]  # fmt: skip
        digests = {
            k: len(set(self._results[n, d, k].digests.values())) == 1
            for n, d, k in own
            if len(self._results[n, d, k].digests) > 1
        }
        return judge(
            Evidence(
                ranks=one.experiment.ranks,
                loss32=self._apart(name, "float32"),
                loss64=self._apart(name, "float64"),
                level=abs(reference_losses[0]) if reference_losses else 1.0,
                shares32=shares[0],
                shares64=shares[1],
                identical=digests,
                first=self._matches.get(name),
                uneven=self._start.uneven if self._start else None,
                error=self._errors.get(name),
                ours=one.experiment.strategy in available("strategies"),
            )
        )

    def _longest(self, name: str, dtype: str) -> list[float]:
        """The losses of the longest run of it so far."""
        known = [key for key in list(self._results) if key[:2] == (name, dtype)]
        return self._results[max(known, key=lambda key: key[2])].losses if known else []

    def _apart(self, name: str, dtype: str) -> np.ndarray:
        return apart(self._longest(name, dtype), self._longest(SEQUENTIAL, dtype))

    @property
    def table(self) -> pl.DataFrame:
        """A row a run: subject, mutant, dtype, iterations, ulps_max, ulps_median (of float32's
        spacing at the sequential value), share (of the way that training went), loss (the last
        one's distance from the sequential), identical (the replicas' digests; null: there is one).
        """
        rows = []
        for (name, dtype, updates), far in list(self._distances.items()):
            result = self._results[name, dtype, updates]
            should = self._results[SEQUENTIAL, dtype, updates]
            digests = [*result.digests.values()]
            rows.append({
                "subject": name,
                "mutant": next(one.mutant for one in self.subjects if one.name == name),
                "dtype": dtype, "iterations": updates,
                "ulps_max": far.ulps_max, "ulps_median": far.ulps_median, "share": far.share,
                "loss": abs(result.losses[-1] - should.losses[-1]),
                "identical": len({*digests}) == 1 if len(digests) > 1 else None,
            })  # fmt: skip
        return pl.DataFrame(rows, schema=TABLE)

    @property
    def losses(self) -> pl.DataFrame:
        """A row an iteration of each longest run: subject, dtype, iteration, difference (of the
        loss from the sequential one).
        """
        frames = [
            pl.DataFrame({"difference": self._apart(one.name, dtype)})
            .with_row_index("iteration")
            .select(pl.lit(one.name).alias("subject"), pl.lit(dtype).alias("dtype"),
                    pl.col("iteration").cast(pl.Int64), "difference")
            for one in self.subjects
            for dtype in DTYPES
        ]  # fmt: skip
        return pl.concat(frames)

    @property
    def words(self) -> str:
        """How it stands, in a line."""
        if SEQUENTIAL in self._errors or not self.done:
            return super().words
        return f"{self.subjects[0].name}: {self.verdict}"

    def figure(self, theme: str = "light") -> go.Figure:
        """Losses and parameters against iterations, float32 beside float64 on the same scale."""
        from workbench.views.drift import figure

        return figure(self, theme)

    def __str__(self) -> str:
        from workbench.rounding.told import text

        return text(self)

    def __repr__(self) -> str:
        return f"Report({self.words})"

    def _repr_html_(self) -> str:
        from workbench.views.drift_display import html

        return html(self)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.views.drift_display import show

        return show


def drift(
    subject: Given | Mapping[str, Given] | None = None,
    *,
    ranks: int | None = None,
    iterations: int | None = None,
    mutants: bool = True,
    at: Sequence[int] | None = None,
    **fields: Any,
) -> Report:
    """Hold a training over ranks against the sequential one; returns at once, ``wait()`` waits.

    subject     a strategy's name or path, train(job, config), a plain loop(rank, size, model,
                minibatches) that also may name optimizer and loss, an Experiment, or name -> one
                of these; left out: data_parallel
    ranks       2, or the experiment's own
    iterations  100, or the experiment's own
    mutants     whether five known bugs are run beside it
    at          after how many updates parameters are compared; left out: 1, 2, 5, 10, 20, 50, 100
    fields      more fields of Experiment: task, batch_size (default: one that the ranks cannot
                share evenly), seed, optimizer, lr, momentum, options ...

    Raises SpecError for what cannot be, before anything runs.
    """
    more = {"ranks": ranks, "iterations": iterations}
    given = {**fields, **{name: value for name, value in more.items() if value is not None}}
    if "dtype" in given:
        raise SpecError("drift runs everything in float32 and in float64: leave out dtype")
    found = subjects_of(subject, mutants, given)
    last = found[0].experiment.iterations
    marks = sorted({*(AT if at is None else at), last})
    if marks[0] < 1:
        raise SpecError(f"at = {at!r}: numbers of updates, from 1 on")
    return Report(found, [k for k in marks if k <= last])
